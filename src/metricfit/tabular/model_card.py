"""The model card: a page of Markdown for people, saved with the files of a model. Loading ignores it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from metricfit._version import __version__
from metricfit.errors import shorten
from metricfit.metrics import accuracy, averaged, f1, precision, recall, specificity
from metricfit.stats.resampling import percentile_interval
from metricfit.tabular.facts import ModelFacts, model_facts
from metricfit.tabular.insight.judged_rows import held_out_decisions, held_out_rows
from metricfit.tabular.insight.value_intervals import drawn_counts, weighted_counts

PACKAGES = ("torch", "scikit-learn", "lightgbm", "numpy", "pandas", "scipy")
#: Maximum number of classes or columns that the card lists.
LISTED = 60
KINDS = {"number": "numeric", "category": "categorical", "date": "dates", "text": "text"}
MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~!$])")
#: Metrics of the held-out decisions that every card of classes shows.
SHOWN = (precision, recall, specificity, f1, accuracy)
#: Maximum length of a sentence of the facts.
SENTENCE = 2_000


def model_card(model: Any, *, data: str | None = None, target: str | None = None) -> str:
    """Describe a fitted model in Markdown: data, metric, decision, values, models, limits and versions.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        data: Name of the table.
        target: Name of the predicted column.

    Returns:
        The text. What comes from the user is escaped, and it has no entries of rows.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model_card(model, data="churn.csv").splitlines()[0]
        '# Model card: churn.csv'
    """
    facts = model_facts(model)
    about = [name for name in (data, target) if name is not None]
    title = ", ".join(escaped(name) for name in about) or f"decisions for {escaped(facts.metric)}"
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    parts = [
        f"# Model card: {title}",
        f"A {facts.kind}, saved on {day} by metricfit {__version__}. This file is for people: loading the "
        "model ignores it. It has no entries of rows.",
        _section("Data", _data_lines(facts, data, target)),
        _section("Decision", _decision_lines(facts)),
        _section("Values", [*_value_lines(facts), *_other_metrics(model)]),
        _section("Models", _model_lines(facts)),
        _section("Limits", [f"- {escaped(limit, SENTENCE)}" for limit in facts.limits]),
        _section("Versions", [f"- {name} {number}" for name, number in _versions()]),
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: Any, longest: int = 120) -> str:
    r"""Return text as Markdown shows it literally, on one line and not too long.

    >>> escaped("<b>a_b|c\n</b>")
    '&lt;b&gt;a\\_b\\|c &lt;/b&gt;'
    """
    plain = "".join(letter if letter.isprintable() else " " for letter in str(text))
    short = shorten(" ".join(plain.split()), longest)
    return MARKDOWN.sub(r"\\\1", short).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, the first column to the left and the others to the right."""
    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines])


def _data_lines(facts: ModelFacts, data: str | None, target: str | None) -> list[str]:
    lines = [] if data is None else [f"- Table: {escaped(data)}"]
    lines += [] if target is None else [f"- Predicted column: {escaped(target)}"]
    total = "" if facts.total in (None, facts.rows) else f" of {facts.total:,}"
    judged = "were kept apart from training" if facts.apart else "were held out of some model's training"
    lines += [f"- Rows that {judged}, and judged: {facts.rows:,}{total}", f"- {_columns(facts)}"]
    if facts.groups is not None and facts.groups < facts.rows:
        lines.append(f"- Groups of rows that were held out together: {facts.groups:,}")
    if facts.task == "multilabel":
        shares = [(escaped(each.name), f"{each.share:.2%}") for each in facts.classes[:LISTED]]
        return [*lines, "", *_table(["Label", "Share of rows"], shares)]
    largest = sorted(facts.classes, key=lambda each: -each.rows)[:LISTED]
    listed = [(escaped(each.name), f"{each.rows:,}", f"{each.share:.2%}") for each in largest]
    more = [f"\n... and {len(facts.classes) - LISTED} more classes"] if len(facts.classes) > LISTED else []
    return [*lines, "", *_table(["Class", "Rows", "Share"], listed), *more]


def _columns(facts: ModelFacts) -> str:
    if facts.columns is None:
        return "Columns: as the estimator takes them"
    of_kinds = ", ".join(f"{facts.column_kinds[kind]} {KINDS[kind]}" for kind in KINDS if kind in facts.column_kinds)
    names = [escaped(name) for name in facts.column_names]
    listed = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    return f"Columns: {facts.columns}" + (f" ({of_kinds})" if of_kinds else "") + (f": {listed}" if names else "")


def _decision_lines(facts: ModelFacts) -> list[str]:
    """Say for which metric and requirements the model decides, and how."""
    of = "labels" if facts.task == "multilabel" else "classes"
    average = "" if facts.average is None else f", {facts.average} average over the {of}"
    better = "lower" if facts.minimize else "higher"
    lines = [f"- Metric: {escaped(facts.metric)}{average}; {better} is better"]
    if facts.positive is not None:
        lines.append(f"- Positive class: {escaped(facts.positive)}")
    lines += [f"- Requirement {escaped(each.text)}: {each.description}" for each in facts.requirements]
    lines.append(f"- Decision: {escaped(facts.decision, SENTENCE)}")
    if facts.refer_region is not None:
        low, high = facts.refer_region
        lines.append(
            f"- Referred to a person: probabilities from {low:.4g} to {high:.4g}, {facts.referred_share:.1%} of the "
            "held-out rows"
        )
    if facts.prevalence is not None:
        lines.append(
            f"- Class balance that it decides for: {_balance(facts.prevalence)}; the balance of training was another"
        )
    return lines


def _balance(balance: float | Mapping[Any, float]) -> str:
    if isinstance(balance, Mapping):
        return ", ".join(f"{escaped(name)} {share:.3g}" for name, share in balance.items())
    return f"{balance:.3g} of the positive class"


def _value_lines(facts: ModelFacts) -> list[str]:
    ends = facts.value_interval
    interval = "" if ends is None else f" (95 % interval {ends[0]:.4g} to {ends[1]:.4g})"
    return [f"{escaped(facts.metric)} is {facts.value:.4g}{interval}, estimated for new rows: {facts.basis}."]


def _other_metrics(model: Any) -> list[str]:
    """Return a table of other metrics on the held-out rows; nothing for several labels."""
    held_out = held_out_rows(model)
    y = np.asarray(held_out.y)
    if y.ndim == 2:
        return []
    decided, classes = np.asarray(held_out_decisions(model)), len(model.classes_)
    counted = decided >= 0
    weight = None if held_out.weight is None else np.asarray(held_out.weight, dtype=np.float64)[counted]
    part = (decided[counted], y[counted])
    ones = np.ones((1, int(counted.sum()))) if weight is None else weight[None]
    exact, drawn = weighted_counts(classes, part[1], part[0], ones), drawn_counts(*part, classes, weight)
    if classes == 2:
        exact, drawn = (counts.map(lambda cell: cell[..., 1:]) for counts in (exact, drawn))
    rows = []
    for shown in SHOWN:
        if classes > 2 and shown is specificity:
            continue
        value = float(averaged(shown, exact, "macro")[0])
        low, high = percentile_interval(averaged(shown, drawn, "macro"))
        name = shown.name if classes == 2 or shown.whole_matrix else f"macro {shown.name}"
        rows.append((name, f"{value:.4g}", f"{min(low, value):.4g} to {max(high, value):.4g}"))
    return ["", *_table(["On held-out rows", "Value", "95 % interval"], rows)]


def _model_lines(facts: ModelFacts) -> list[str]:
    if facts.estimator is not None:
        return [f"- Estimator: {escaped(facts.estimator)}"]
    fitted = [
        (escaped(row.name), f"{row.weight:.2f}", f"{row.value:.4g}", f"{row.log_loss:.4g}", f"{row.seconds:.1f}")
        for row in facts.families
        if row.left_out is None
    ]
    head = ["Family", "Weight", f"{escaped(facts.metric)} out of fold", "Cross-entropy", "Seconds"]
    left_out = [f"- Left out: {escaped(row.name)} ({escaped(row.left_out)})" for row in facts.families if row.left_out]
    return [*_table(head, fitted), *([""] if left_out else []), *left_out]


def _versions() -> list[tuple[str, str]]:
    found = [("metricfit", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found
