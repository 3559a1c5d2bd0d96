"""The pages of a fitted model: on the rows held out of training, and on other labelled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, column_or_1d

from metricfit.data.reading import ParquetTable
from metricfit.decide.bounds import format_percent
from metricfit.decide.decision import REFERRED
from metricfit.metrics.curves import InfeasibleError, best_threshold
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.spoken_names import name_metric
from metricfit.report import formatting
from metricfit.report.evaluation import DecidedRows, Pair, compare_with_training
from metricfit.report.explorer import scores
from metricfit.report.first_screen import Alternative, FirstScreen, RequirementState, Statement, compare_decisions
from metricfit.report.page import PathLike, Report, Section, facts_of_page, positive_class_fact, title_page, write
from metricfit.report.stops import are_few_groups
from metricfit.report.tables import (
    column_importance,
    cost_table,
    group_values,
    models,
    multiclass,
    period_values,
    referral_table,
    worst_decisions,
)
from metricfit.report.todays_rule import Today
from metricfit.report.training_curves import learning_curves
from metricfit.tabular.classifier import ScoredRows
from metricfit.tabular.ensemble import Selection
from metricfit.tabular.facts import ROW_OF_A_GROUP, model_facts
from metricfit.tabular.insight.importance import MIN_ROWS, measure_importance
from metricfit.tabular.insight.judged_rows import (
    find_worst_rows,
    held_out_rows,
    judged_file_rows,
    judged_rows,
    read_sample,
)
from metricfit.tabular.insight.value_intervals import describe_fall, values_by_period

SUBJECT = "This model"
THRESHOLD_INTERVAL = "95 % bootstrap interval of the threshold"
OUT_OF_FOLD = "Out of fold: each row is scored by models that did not train on it."
APART = "These rows were kept apart from training."
CHOSEN_HERE = (
    "The labels of these rows chose the decision, so the values here are usually slightly better than on new rows."
)
#: How a confidence becomes exact.
EXACT = "With --calibration 0.3 (calibration=0.3 in Python) rows are kept apart, which makes the test exact."
#: The importance of columns is measured on this many rows, with this many shuffles.
MAX_ROWS, REPEATS = 2000, 3
#: It may take this share of the training time, and this many seconds in any case.
SHARE_OF_TRAINING, ALWAYS = 0.2, 4.0
WORST = 30  # rows that are most wrong


def write_model_page(
    model: Any,
    path: PathLike,
    *,
    data: str | None = None,
    target: str | None = None,
    command: str | None = None,
    rows: tuple[Any, Any] | None = None,
    group: str | None = None,
    times: Sequence[Any] | None = None,
    today: Today | None = None,
) -> Path:
    """Write the page of a fitted model: its decisions on rows held out of training, and the models it consists of.

    Args:
        model: The fitted model.
        path: The file to write.
        data: Name of the table.
        target: Name of the column that was predicted.
        command: The command line that made it, if there was one.
        rows: The table and the labels that were passed to ``fit``. With them the page shows which columns matter, and
            the rows that are most wrong with their values. Not for a model that was loaded.
        group: Name of the column with the groups, if groups were passed to ``fit``.
        times: The time of each row, if the rows were passed to ``fit`` in the order of time.
        today: Today's decisions about the rows that were passed to ``fit``.

    Returns:
        The path of the page.
    """
    held_out = DecidedRows.of_training(model)
    facts = held_out.facts
    shown = {
        "Rows": f"{len(held_out):,}, each scored by models that did not train on it or on a copy of it",
        **positive_class_fact(held_out.classes),
        "Models": ", ".join(f"{row.name} ({formatting.percent(row.weight)})" for row in facts.families if row.weight),
        f"Estimate of {facts.label}": f"{formatting.value(facts.value)}: {facts.basis}",
    }
    if facts.threshold is not None and facts.threshold_interval is not None:
        ends = formatting.between(facts.threshold_interval)
        shown["Threshold"] = f"{formatting.threshold(facts.threshold)}, with a 95 % bootstrap interval of {ends}"
    if facts.referral is not None:
        shown["Referred to a person"] = facts.referral
    periods = values_by_period(model, times)
    fall = describe_fall(periods, facts.held_out_value, held_out.metric)
    sections = [
        *([period_values(periods, facts.label, fall)] if periods else []),
        *_decision_sections(held_out, group),
        *([] if rows is None else insight_sections(model, *rows)),
        _families_section(held_out),
    ]
    if model.history_:
        members: dict[int, list[Mapping[str, Any]]] = {}
        for epoch in model.history_:
            members.setdefault(epoch.get("member", 0), []).append(epoch)
        curves = learning_curves(list(members.values()), lead="The losses of the networks: one line per fold.")
        sections.append(replace(curves, folded=True))
    name = name_model_metric(held_out)
    page = Report(
        title_page(name, data, target),
        f"{name} is {formatting.value(facts.value)}{_bracketed(facts.value_interval)}{_at(facts.threshold)}, "
        "estimated for new rows.",
        verdict_of_fit(model) if fall is None else f"{fall} {verdict_of_fit(model)}",
        sections,
        facts_of_page(shown, data=data, target=target, subject_to=model.subject_to, command=command),
        screen_of_fit(model, target, today),
        judges=False,
    )
    return write(page, path)


def write_evaluation_page(
    model: Any,
    X: Any,
    y: Any,
    path: PathLike,
    *,
    threshold: float | None = None,
    data: str | None = None,
    command: str | None = None,
    groups: Any = None,
    group: str | None = None,
    today: Today | None = None,
    times: Any = None,
    weight: Any = None,
) -> Path:
    """Write the page of a model on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        path: The file to write.
        threshold: A threshold in place of the model's; for two classes.
        data: Name of the table.
        command: The command line that made it, if there was one.
        groups: One group per row, for the values by group; rows without one are a group of their own.
        group: Name of the column with the groups.
        today: Today's decisions about these rows.
        times: The time of each row, if rows are in the order of time.
        weight: One weight per row, or None.

    Returns:
        The path of the page.
    """
    rows = DecidedRows.of(model, X, y, threshold, None if groups is None else _group_names(groups, y), weight)
    facts, target = rows.facts, getattr(y, "name", None)
    value, (interval,) = rows.value(rows.metric), rows.intervals([rows.metric])
    periods = rows.periods(times)
    sections = [period_values(periods, facts.label, None, "Rows in the order of time.")] if periods else []
    sections += _decision_sections(rows, group)
    if threshold is None and not isinstance(X, ScoredRows):
        sections.append(worst_decisions(find_worst_rows(judged_rows(model, X, y), WORST)))
    shown = {"Rows": f"{len(y):,}", **positive_class_fact(rows.classes)}
    if rows.referred is not None:
        shown["Referred to a person"] = f"{rows.referred:,} of these rows. {facts.referral}"
    name, used = name_model_metric(rows), facts.threshold if threshold is None else threshold
    at_threshold = "" if facts.threshold is None else _at(used)
    page = Report(
        title_page(name, data, None if target is None else str(target)),
        f"{name} is {formatting.value(value)}{_bracketed(interval)}{at_threshold}, on {len(y):,} rows.",
        _verdict_of_evaluation(rows, value, interval),
        sections,
        facts_of_page(shown, data=data, target=target, subject_to=model.subject_to, command=command),
        _screen_of_evaluation(rows, value, target, today),
    )
    return write(page, path)


def _decision_sections(rows: DecidedRows, group: str | None) -> list[Section]:
    """Show what is referred, the decisions, and the values by group."""
    sections: list[Section] = []
    model, facts, classes, metric = rows.model, rows.facts, rows.classes, rows.metric
    short = "" if not rows.held_out else APART if facts.apart else OUT_OF_FOLD
    lead = f"{short} {CHOSEN_HERE}" if rows.held_out and facts.chosen_on_labels else short
    table: dict[str, Any] = {"metric": metric, "weight": rows.weight}
    if rows.referred is not None:
        sections.append(referral_table(rows, short))
    if rows.costs is not None:
        sections.append(cost_table(rows, lead))
    elif facts.threshold is None or rows.scores is None:
        kept = rows.decided != REFERRED
        groups = rows.groups[kept] if rows.held_out and rows.groups is not None else None  # groups were not split
        table["weight"] = None if rows.weight is None else rows.weight[kept]
        several = {"classes": classes, "average": model.average, "groups": groups}
        sections.append(multiclass(rows.decided[kept], rows.y[kept], lead=lead, **several, **table))
    else:
        explorer = scores(
            rows.scores,
            rows.y,
            threshold=facts.threshold if rows.threshold is None else rows.threshold,
            requirements=model.chosen_.names.requirements(model.subject_to),
            classes=classes,
            interval=facts.threshold_interval if rows.threshold is None else None,
            interval_name=THRESHOLD_INTERVAL + ("" if rows.held_out else " in training"),
            groups=rows.groups,
            group_name=group or "group",
            lead=lead,
            **table,
        )
        sections.append(explorer)
    if rows.groups is None:
        return sections
    by_group = group_values(rows, "Values by group" if group is None else f"Values by “{group}”")
    if by_group is not None:  # folded if the explorer above it has a table of the same groups
        folded = facts.threshold is not None and are_few_groups(rows.groups)
        sections.append(replace(by_group, folded=folded))
    return sections


def insight_sections(model: Any, X: Any, y: Any) -> list[Section]:
    """Return the sections about the rows of ``fit``, each decided by models that were not trained on it.

    Args:
        model: The fitted model, not a loaded one.
        X: The table that was passed to ``fit``. Of Parquet files, the importance of columns is that on a sample of
            the held-out rows; the rows that are most wrong are found among all held-out rows.
        y: The labels that were passed to ``fit``.

    Returns:
        The columns that matter, if there are rows enough, and the rows that are most wrong.

    Raises:
        ValueError: These are not the rows of ``fit``, or the model was loaded.
    """
    in_files = isinstance(X, ParquetTable)
    rows = judged_file_rows(model, X) if in_files else judged_rows(model, X, y, out_of_fold=True)
    sections: list[Section] = []
    important: list[Any] = []
    if len(rows) >= MIN_ROWS:
        training = sum(row.seconds or 0.0 for row in model.models_)
        importance = measure_importance(
            read_sample(rows) if in_files else rows,
            repeats=REPEATS,
            max_rows=MAX_ROWS,
            max_seconds=max(ALWAYS, SHARE_OF_TRAINING * training),
        )
        important = importance.table["column"].tolist()
        if important:
            lead = f"{model_facts(model).label} depends most on “{important[0]}”."
            sections.append(column_importance(importance, lead=lead))
    return [*sections, worst_decisions(find_worst_rows(rows, WORST), first=important)]


def _families_section(held_out: DecidedRows) -> Section:
    """Show the families with their weights."""
    facts = held_out.facts
    used = sum(row.weight > 0 for row in facts.families)
    mixed = "" if used == 1 else " Their calibrated predictions are averaged with weights."
    return models(
        facts.families,
        held_out.metric,
        label=facts.label,
        lead=f"The classifier consists of {used} kind{'s' * (used > 1)} of model.{mixed} Weights are chosen for the "
        "metric, on rows held out of training.",
    )


def verdict_of_fit(model: Any) -> str:
    """Say what the value is an estimate of, whether requirements are met, and what to do next."""
    held_out = DecidedRows.of_training(model)
    facts = held_out.facts
    sentences = [
        "The decision was chosen on the held-out rows where the value was measured. New rows usually have a slightly "
        "worse value."
        if facts.requirements
        else f"The value is estimated for new rows: {facts.basis}."
    ]
    sentences += [] if facts.referral is None else [facts.referral]
    met = "; ".join(f"{each.text} ({formatting.value(each.value)})" for each in facts.requirements)
    if facts.not_reachable is not None:
        sentences.insert(
            0,
            f"The requirements cannot be met: {facts.not_reachable}. The model decides as near to them as it can; "
            "choose other requirements with MetricClassifier.load(...).rethreshold(subject_to=...).",
        )
    elif met and facts.certificate is not None and facts.confidence is not None:
        certificate = facts.certificate[0].upper() + facts.certificate[1:]
        about = f" for {ROW_OF_A_GROUP}" if facts.in_groups else ""
        sentences.append(f"{certificate} at {format_percent(facts.confidence)} confidence{about}: {met} here.")
        if facts.out_of_fold:
            sentences.append(f"New rows are scored by other models than these rows. {EXACT}")
    elif met:
        remedy = "--confidence 0.95 (confidence=0.95 in Python) asks for a decision with a margin"
        if facts.refer_region is not None:
            remedy = "ask for more than you need"
        sentences.append(
            f"Met on held-out rows only: {met}. A requirement that is met with little room may fail on new rows; "
            f"{remedy}."
        )
    better = held_out.better_without_model(facts.held_out_value)
    end = "The command metricfit compare shows whether a simpler method does as well."
    return " ".join([*sentences, *([] if better is None else [better]), end])


def _verdict_of_evaluation(rows: DecidedRows, value: float, interval: Pair | None) -> str:
    """Say how a model does on labelled rows compared with training, and whether its requirements hold there."""
    compared = compare_with_training(rows.facts, value, interval, positives=rows.rarest, threshold=rows.threshold)
    held = (
        f"The requirement {text} {'is not known' if result is None else _holds(result)} here{shown and f' ({shown})'}."
        for text, result, shown in _shown_requirements(rows)
    )
    better = rows.better_without_model(value)
    return " ".join([compared.sentence, *held, *([] if better is None else [better])])


def _shown_requirements(rows: DecidedRows) -> list[tuple[str, RequirementValue | None, str]]:
    """Return each requirement on labelled rows, and its value as it is shown; nothing is shown if it is not known."""
    found = rows.requirement_values().items()
    return [(text, result, "" if result is None else formatting.value(result.value)) for text, result in found]


def _holds(result: RequirementValue) -> str:
    return "holds" if result.met else "does not hold"


def screen_of_fit(model: Any, target: str | None, today: Today | None = None) -> FirstScreen:
    """Make the first screen of a fitted model's page, from the rows that were held out of training."""
    rows = DecidedRows.of_training(model)
    facts, single = rows.facts, _best_family(rows)
    note = "Counts and values are measured on the training rows, each decided by models that did not train on it."
    if facts.apart:
        note = "Counts and values are measured on rows that were kept apart from training."
    note += _weighted(rows)
    referred = []
    if facts.refer_region is not None:
        share = formatting.rough_percent(facts.referred_share)
        ending = " of the rows to a person; these are not counted here."
        referred = [Statement("Refers ", share, ending, facts.referred_share)]
    requirements = [
        RequirementState(
            each.text,
            each.state,
            each.description + ("" if facts.confidence is not None else ", not guaranteed on new rows"),
        )
        for each in facts.requirements
    ]
    decisions = _decisions(rows, facts.held_out_value)
    if today is not None:
        decisions.append((today.name, *rows.judge(model.chosen_.basis.take(today.decided))))
    return compare_decisions(
        decisions,
        rows.classes,
        target,
        name_model_metric(rows),
        statements=referred,
        alternatives=[] if single is None else [single],
        requirements=requirements,
        note=note,
        costs=rows.in_costs,
    )


def _screen_of_evaluation(rows: DecidedRows, value: float, target: Any, today: Today | None) -> FirstScreen:
    """Make the first screen of a model's page on labelled rows."""
    requirements = [
        RequirementState(text, "unknown", "not known on these rows")
        if result is None
        else RequirementState(
            text, "met" if result.met else "unmet", f"{_holds(result)} on these rows ({shown}){_readiness(rows, text)}"
        )
        for text, result, shown in _shown_requirements(rows)
    ]
    decisions = _decisions(rows, value)
    if today is not None:
        decisions.append((today.name, *rows.judge(today.decided)))
    return compare_decisions(
        decisions,
        rows.classes,
        None if target is None else str(target),
        name_model_metric(rows),
        alternatives=[Alternative(f"{SUBJECT}, as training expected it", value=rows.facts.value)],
        requirements=requirements,
        note=f"Counts and values are measured on these {len(rows):,} rows.{_weighted(rows)}",
        costs=rows.in_costs,
    )


def _weighted(rows: DecidedRows) -> str:
    return "" if rows.weight is None else " Rows count by their weights."


def _readiness(rows: DecidedRows, text: str) -> str:
    """Say whether rows prove a requirement, or about how many more would; nothing if that is not known."""
    said = rows.readiness[text]
    return "" if said is None else f": {said}"


def _decisions(rows: DecidedRows, value: float) -> list[tuple[str, Any, float | None]]:
    """Return the decisions of the model and of what needs no model, with their counts and values."""
    others = [(name, counts, rows.value(rows.metric, counts)) for name, counts in rows.without_model.items()]
    return [(SUBJECT, rows.counts, value), *others]


def name_model_metric(rows: DecidedRows) -> str:
    """Return what people call the model's metric, with its average if there are several classes."""
    return name_metric(rows.metric, None if rows.of_two else rows.average)


def _best_family(rows: DecidedRows) -> Alternative | None:
    """Return the best kind of model by itself; None if the classifier is nothing else.

    Its value belongs to its best decision in hindsight, which flatters. It is therefore not in the column of values,
    but next to the value of the whole model that was found in the same way.
    """
    fitted = [(row.value, row.name) for row in rows.facts.families if row.value is not None]
    hindsight = _value_in_hindsight(rows) if len(fitted) > 1 else None
    if hindsight is None:
        return None
    value, name = (min if rows.metric.minimize else max)(fitted, key=lambda row: row[0])
    return Alternative(
        f"“{name}” alone, the best single kind of model: {formatting.value(value)} at its best decision in hindsight, "
        f"where this model has {formatting.value(hindsight)}"
    )


def _value_in_hindsight(rows: DecidedRows) -> float | None:
    """Return the value at the best decision on the held-out rows; None for costs of rows and if none is feasible."""
    model = rows.model
    if not rows.of_two:
        held_out = held_out_rows(model)
        return Selection(held_out.y, held_out.weight, rows.metric, model.average).value(held_out.logits)
    if model.threshold_ is None:
        return None
    try:
        return best_threshold(
            rows.scores, rows.y, rows.metric, model.chosen_.names.requirements(model.subject_to), weight=rows.weight
        ).value
    except InfeasibleError:
        return None


def _bracketed(ends: Pair | None) -> str:
    """Write an interval in brackets; nothing if there is none."""
    return "" if ends is None else f" (95 % interval {formatting.between(ends)})"


def _at(threshold: float | None) -> str:
    return "" if threshold is None else f" at threshold {formatting.threshold(threshold)}"


def _group_names(groups: Any, y: Any) -> NDArray[Any]:
    """Return the group of each row as text; rows without one are the group "missing"."""
    values = column_or_1d(np.asarray(groups))
    check_consistent_length(values, y)
    missing = np.asarray(pd.isna(values))
    return np.array(["missing" if absent else str(value) for value, absent in zip(values, missing, strict=True)])
