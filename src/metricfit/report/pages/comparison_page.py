"""The page of a comparison of methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metricfit import report
from metricfit.metrics import get_metric
from metricfit.report import formatting
from metricfit.report.facts import data_fact, made_by, positive_class_fact, requirements_fact
from metricfit.report.page import PathLike
from metricfit.report.pages.comparison_screen import decisions_by_method, screen_of_comparison
from metricfit.report.sections.cost_table import cost_table
from metricfit.report.titles import title_page
from metricfit.tabular import Comparison, ComparisonRow
from metricfit.tabular.compare.methods import BASELINES, METHODS, REFERENCE
from metricfit.tabular.compare.verdict import headline


def write_comparison_page(comparison: Comparison, path: PathLike, *, command: str | None = None) -> Path:
    """Write the page of a comparison.

    Args:
        comparison: The result of ``metricfit.compare``.
        path: The file to write.
        command: The command line that made it, if there was one.

    Returns:
        The path of the page.
    """
    rows, subject_to, classes = comparison.rows, comparison.subject_to, comparison.classes
    folds, total = len(rows[0].values), len(comparison.labels)
    compared = sum(row.name not in BASELINES for row in rows) - 1
    not_reached = "".join(
        f" With {row.name} no threshold met the requirements on the training rows of {len(row.not_reachable)} of "
        f"{folds} folds; there the nearest threshold decided ({row.not_reachable[0]})."
        for row in rows
        if row.not_reachable
    )
    sections = [
        report.comparison(
            rows,
            comparison.metric,
            reference=REFERENCE,
            folds=folds,
            simultaneous=True,
            lead=f"Every method was trained on the same rows and judged on the same {folds} folds, on rows it had not "
            "seen. Each chose its decision on its training rows, except the one that is called untuned."
            + _about_baselines(rows)
            + not_reached,
        )
    ]
    sections.append(_comparison_decisions(comparison))
    together = "" if comparison.group is None else f", and so do rows of one “{comparison.group}”"
    facts = data_fact(comparison.name, comparison.target) | {
        **_described_methods(rows),
        "Rows": f"{total:,}: {_class_shares(comparison)}",
        **(positive_class_fact((classes[0], classes[1])) if len(classes) == 2 else {}),
        "Folds": f"{folds}, each with the same shares of the classes; copies of a row stay together{together}"
        if comparison.time is None
        else f"{folds}, in the order of “{comparison.time}”: each is judged by models of earlier rows, and the first "
        "rows of the table are in none",
        "Differences": "paired by fold; Nadeau and Bengio's corrected t-test, because the folds' training rows "
        f"overlap; corrected for {compared} comparisons: p-values by Holm's method, intervals by Bonferroni's",
    }
    if comparison.notes:
        facts["Left out"] = "; ".join(comparison.notes)
    screen = screen_of_comparison(comparison)
    page = report.Report(
        title_page(screen.metric, comparison.name, comparison.target),
        headline(rows, comparison.metric, screen.metric),
        comparison.verdict,
        sections,
        facts | requirements_fact(subject_to) | made_by(command),
        screen,
    )
    return report.write(page, path)


def _comparison_decisions(comparison: Comparison) -> report.Section:
    """Show how the recommended method decided each row; for two classes the reader can choose another method."""
    decisions = decisions_by_method(comparison)
    name, shown = next(iter(decisions.items()))
    lead = f"The decisions of “{name}”, each row's by models that did not train on it."
    if comparison.costs is not None:
        metric, names = get_metric(comparison.metric), (comparison.classes[0], comparison.classes[1])
        return cost_table(shown.decided, comparison.labels, comparison.costs, metric=metric, classes=names, lead=lead)
    if len(comparison.classes) > 2 or shown.threshold is None:
        return report.multiclass(
            shown.decided,
            comparison.labels,
            classes=comparison.classes,
            metric=comparison.metric,
            average=comparison.average,
            lead=lead,
        )
    scored = {
        method: report.ScoredMethod(kept.scores, kept.threshold, _range(kept.thresholds))
        for method, kept in decisions.items()
        if kept.threshold is not None
    }
    first = scored.pop(name)
    choice = " Choose another method to see its decisions." if scored else ""
    return report.scores(
        first.scores,
        comparison.labels,
        threshold=first.threshold,
        metric=comparison.metric,
        requirements=list(comparison.subject_to) or None,
        classes=(comparison.classes[0], comparison.classes[1]),
        interval=first.interval,
        interval_name="range of the folds' thresholds",
        method=f"{name} (recommended)" if name == comparison.recommended else name,
        others=scored,
        groups=comparison.groups,
        group_name=comparison.group or "group",
        lead=f"{lead} The threshold is the mean of the folds' thresholds, so the numbers differ slightly from those "
        f"above, where each fold has its own.{choice}",
    )


def _range(thresholds: Sequence[float]) -> tuple[float, float] | None:
    return (min(thresholds), max(thresholds)) if len(thresholds) > 1 else None


def _class_shares(comparison: Comparison) -> str:
    """List the classes with their numbers of rows; of two, the positive one alone."""
    total, names = len(comparison.labels), list(enumerate(comparison.classes))
    shown = names[1:] if len(names) == 2 else names
    rows = [(name, int((comparison.labels == number).sum())) for number, name in shown]
    return ", ".join(f"{count:,} “{name}” ({formatting.percent(count / total)})" for name, count in rows)


def _about_baselines(rows: Sequence[ComparisonRow]) -> str:
    names = ", ".join(f"“{row.name}”" for row in rows if row.name in BASELINES)
    return f" Decisions without a model ({names}) are what every method has to beat." if names else ""


def _described_methods(rows: Sequence[ComparisonRow]) -> dict[str, str]:
    """Say what each method of the table is."""
    names = {row.name for row in rows}
    described = [f"{method.name}: {method.description}" for method in METHODS if method.name in names]
    return {"Methods": "; ".join(described)}
