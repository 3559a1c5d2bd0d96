"""The page of a comparison of methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import escape

from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit.metrics.spoken_names import name_metric
from metricfit.report import formatting
from metricfit.report.evaluation import Decisions, count_decisions
from metricfit.report.explorer import ScoredMethod, scores
from metricfit.report.first_screen import FirstScreen, RequirementState, compare_decisions, decisions_without_model
from metricfit.report.page import PathLike, Report, Section, facts_of_page, positive_class_fact, title_page, write
from metricfit.report.tables import comparison as comparison_table
from metricfit.report.tables import cost_table, multiclass
from metricfit.tabular import Comparison, ComparisonRow
from metricfit.tabular.compare.judging import MethodDecisions
from metricfit.tabular.compare.methods import BASELINES, DEFAULT, METHODS, REFERENCE, YOURS

#: Marks the recommended row.
MARK = "\u25b6"


def write_comparison_page(comparison: Comparison, path: PathLike, *, command: str | None = None) -> Path:
    """Write the page of a comparison.

    Args:
        comparison: The result of ``metricfit.compare``.
        path: The file to write.
        command: The command line that made it, if there was one.

    Returns:
        The path of the page.
    """
    rows, classes = comparison.reference_first, comparison.classes
    folds, total = len(rows[0].values), len(comparison.labels)
    compared = sum(row.name not in BASELINES for row in rows) - 1
    not_reached = "".join(
        f" With {row.name} no threshold met the requirements on the training rows of {len(row.not_reachable)} of "
        f"{folds} folds; there the nearest threshold decided ({row.not_reachable[0]})."
        for row in rows
        if row.not_reachable
    )
    sections = [
        comparison_table(
            rows,
            comparison.metric,
            reference=REFERENCE,
            recommended=comparison.recommended,
            folds=folds,
            simultaneous=True,
            lead=f"Every method was trained on the same rows and judged on the same {folds} folds, on rows it had not "
            f"seen. “{REFERENCE}” is what one would do without this library: it decides by its own predict."
            + _about_own(comparison)
            + _about_baselines(rows)
            + not_reached,
        )
    ]
    if comparison.periods:
        over_time = {"periods": comparison.periods, "names": comparison.over_time}
        lead = "Each period was judged by models of earlier rows."
        sections.append(Section("Values over time", "periods.html", over_time, lead))
    reasons = Section("Why this one", "reasons.html", {"reasons": comparison.details}, folded=True)
    sections += [reasons, _comparison_decisions(comparison)]
    together = "" if comparison.group is None else f", and so do rows of one “{comparison.group}”"
    facts = {
        **_described_methods(rows),
        "Rows": f"{total:,}: {_class_shares(comparison)}",
        **positive_class_fact(classes),
        "Folds": f"{folds}, each with the same shares of the classes; copies of a row stay together{together}"
        if comparison.time is None
        else f"{folds}, in the order of “{comparison.time}”: each is judged by models of earlier rows, and the first "
        "rows of the table are in none",
        "Differences": f"{comparison.tested_by}; corrected for {compared} comparisons: p-values by Holm's "
        "method, intervals by Bonferroni's",
    }
    if comparison.notes:
        facts["Left out"] = "; ".join(comparison.notes)
    screen = screen_of_comparison(comparison)
    first, second = comparison.advice(screen.metric).sentences
    page = Report(
        title_page(screen.metric, comparison.name, comparison.target),
        first,
        second,
        sections,
        facts_of_page(
            facts, data=comparison.name, target=comparison.target, subject_to=comparison.subject_to, command=command
        ),
        screen,
    )
    return write(page, path)


def show_comparison(comparison: Comparison) -> str:
    """Return the verdict and the table as HTML for a notebook, with the recommended row marked.

    The reasons, the intervals and the tests are folded away.
    """
    everything = comparison.to_frame().rename(columns={"recommended": ""})
    everything[""] = everything[""].map({True: MARK, False: ""})
    shown = [column for column in ("", "method", "mean", "difference", "seconds", "held") if column in everything]
    short, full = (
        table.to_html(index=False, border=0, na_rep="", float_format="{:.3f}".format)
        for table in (everything[shown], everything)
    )
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in (*comparison.details, *comparison.notes))
    return (
        f"<p><strong>{escape(comparison.verdict)}</strong></p>{short}<p>Differences are to {escape(REFERENCE)}.</p>"
        f"<details><summary>Reasons, intervals and tests</summary><ul>{reasons}</ul>{full}</details>"
    )


def _comparison_decisions(comparison: Comparison) -> Section:
    """Show how the recommended method decided each row; for two classes the reader can choose another method."""
    decisions = decisions_by_method(comparison)
    name, shown = next(iter(decisions.items()))
    lead = f"The decisions of “{name}”, each row's by models that did not train on it."
    if comparison.costs is not None:
        metric, names = get_metric(comparison.metric), comparison.classes
        rows = Decisions(
            comparison.labels, shown.decided, names, metric, weight=comparison.weight, costs=comparison.costs
        )
        return cost_table(rows, lead)
    if len(comparison.classes) > 2 or shown.threshold is None:
        return multiclass(
            shown.decided,
            comparison.labels,
            classes=comparison.classes,
            metric=comparison.metric,
            average=comparison.average,
            weight=comparison.weight,
            lead=lead,
        )
    scored = {
        method: ScoredMethod(kept.scores_at_mean, kept.threshold, _range(kept.thresholds))
        for method, kept in decisions.items()
        if kept.threshold is not None
    }
    first = scored.pop(name)
    choice = " Choose another method to see its decisions." if scored else ""
    return scores(
        first.scores,
        comparison.labels,
        threshold=first.threshold,
        metric=comparison.metric,
        weight=comparison.weight,
        requirements=list(comparison.subject_to) or None,
        classes=(comparison.classes[0], comparison.classes[1]),
        interval=first.interval,
        interval_name="range of the folds' thresholds",
        method=f"{name} (recommended)" if name == comparison.recommended else name,
        others=scored,
        groups=comparison.groups,
        group_name=comparison.group or "group",
        lead=f"{lead} The threshold is the mean of the folds' thresholds. The probabilities of each fold are shifted, "
        f"so that this threshold decides as the fold's own did.{choice}",
    )


def _range(thresholds: Sequence[float]) -> tuple[float, float] | None:
    return (min(thresholds), max(thresholds)) if len(thresholds) > 1 else None


def _class_shares(comparison: Comparison) -> str:
    """List the classes with their numbers of rows; of two, the positive one alone."""
    total, names = len(comparison.labels), list(enumerate(comparison.classes))
    shown = names[1:] if len(names) == 2 else names
    rows = [(name, int((comparison.labels == number).sum())) for number, name in shown]
    return ", ".join(f"{count:,} “{name}” ({formatting.percent(count / total)})" for name, count in rows)


def _about_own(comparison: Comparison) -> str:
    names = ", ".join(f"“{name}”" for name in comparison.models if name != REFERENCE)
    tuned = "Rows that end in “, tuned” are the same models with a decision that was chosen on the training rows."
    return f" Your own models ({names}) decide by their own predict. {tuned}" if names else ""


def _about_baselines(rows: Sequence[ComparisonRow]) -> str:
    names = ", ".join(f"“{row.name}”" for row in rows if row.name in BASELINES)
    return f" Decisions without a model ({names}) are what every method has to beat." if names else ""


def _described_methods(rows: Sequence[ComparisonRow]) -> dict[str, str]:
    """Say what each method of the table is."""
    names = {row.name for row in rows}
    described = [f"{REFERENCE}: LGBMClassifier with its defaults"]
    described += [f"{method.name}: {method.description}" for method in METHODS if method.name in names]
    return {"Methods": "; ".join(described)}


def decisions_by_method(comparison: Comparison) -> dict[str, MethodDecisions]:
    """Return the decisions of each method, the recommended one first and the others by their means."""
    names = [comparison.recommended, *(row.name for row in comparison.rows)]
    return {name: comparison.decisions[name] for name in dict.fromkeys(names) if name in comparison.decisions}


def screen_of_comparison(comparison: Comparison) -> FirstScreen:
    """Make the first screen of a comparison's page."""
    rows, classes = {row.name: row for row in comparison.rows}, list(comparison.classes)
    decisions = decisions_by_method(comparison)
    shown = next(iter(decisions))
    row = rows[shown]
    as_they_are = [name for name in decisions if rows[name].plain and name != shown]
    metric = name_metric(comparison.metric, None if len(classes) == 2 else comparison.average)
    compared: list[tuple[str, Counts, float | None]] = []
    for name in (shown, *as_they_are):
        counts = count_decisions(decisions[name].decided, comparison.labels, len(classes), comparison.weight)
        compared.append((_label(rows[name]), counts, rows[name].mean))
    baselines = ("largest class",) if len(classes) > 2 else ("none positive", "all positive")
    without = decisions_without_model(compared[0][1], classes).items()
    for (words, counts), name in zip(without, baselines, strict=True):
        compared.append((words, counts, rows[name].mean if name in rows else None))
    note = (
        f"Counts are over all rows, each decided by models that did not train on it. {metric} is the mean of the "
        f"{len(row.values)} folds.{' Rows count by their weights.' if comparison.weight is not None else ''}"
    )
    requirements = _requirements(comparison, row)
    costs = get_metric(comparison.metric).base_name == "cost"
    return compare_decisions(
        compared,
        classes,
        comparison.target,
        metric,
        requirements=requirements,
        note=note,
        costs=costs,
    )


def _label(row: ComparisonRow) -> str:
    """Return what to call a row; names that the user chose stay as they are."""
    if row.name == DEFAULT:
        return "metricfit's default"
    return row.name if row.complexity <= YOURS + 1 else row.name[:1].upper() + row.name[1:]


def _requirements(comparison: Comparison, row: ComparisonRow) -> list[RequirementState]:
    """Say how the requirements held on the test rows, together and by fold."""
    if not comparison.subject_to or row.held is None:
        return []
    folds = f"held on {row.held} of {len(row.values)} folds, on rows that had no part in choosing the threshold"
    if not row.requirements:
        met = row.held == len(row.values)
        return [
            RequirementState(" and ".join(comparison.subject_to), "met" if met else "unmet", f"{folds}; not guaranteed")
        ]
    states = []
    for requirement in row.requirements:
        low, high = requirement.interval
        value = f"{requirement.value:.3f} (95 % interval {low:.3f} to {high:.3f}) on all folds together"
        states.append(
            RequirementState(
                requirement.text, "met" if requirement.held else "unmet", f"{value}; {folds}; not guaranteed"
            )
        )
    return states
