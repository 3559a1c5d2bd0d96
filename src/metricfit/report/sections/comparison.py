"""The section that compares methods: means with intervals, differences to a reference, and training times."""

from __future__ import annotations

from collections.abc import Sequence

from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, get_metric
from metricfit.report import formatting
from metricfit.report.charts.drawing import FIRST, MUTED, Chart, Drawing, Widths, label, styled
from metricfit.report.page import Section
from metricfit.tabular.compare.verdict import ComparisonRow


def comparison(
    methods: Sequence[ComparisonRow],
    metric: str | Metric,
    *,
    reference: str | None = None,
    level: float = 0.95,
    folds: int | None = None,
    simultaneous: bool = False,
    title: str = "Comparison",
    lead: str = "",
) -> Section:
    """Make a table of methods, best mean first, and a chart of means and intervals.

    Args:
        methods: One row per method.
        metric: The metric that the methods are judged by.
        reference: Name of the method that differences refer to.
        level: Level of the intervals.
        folds: Number of folds, if ``held`` of the rows counts folds.
        simultaneous: Whether p-values and intervals of differences are corrected for the number of comparisons.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If there are no methods, or the reference is not among them.

    Example:
        >>> rows = [ComparisonRow("BCE at 0.5", 0.61), ComparisonRow("mix", 0.7, (0.67, 0.73), difference=0.09)]
        >>> [row.name for row in comparison(rows, "f1", reference="BCE at 0.5").context["methods"]]
        ['mix', 'BCE at 0.5']
    """
    if not methods:
        raise InvalidValueError("a comparison needs at least one method")
    if reference is not None and reference not in [row.name for row in methods]:
        raise InvalidValueError(
            f"the reference {reference!r} is not among the methods: {[row.name for row in methods]}"
        )
    judged = get_metric(metric)
    ordered = sorted(methods, key=lambda row: row.mean if judged.minimize else -row.mean)
    context = {
        "methods": ordered,
        "metric": judged.name,
        "better": "lower" if judged.minimize else "higher",
        "reference": reference,
        "level": f"{100 * level:g} %",
        "differences": any(row.difference is not None for row in ordered),
        "intervals": any(row.interval is not None for row in ordered),
        "held": any(row.held is not None for row in ordered),
        "folds": folds,
        "simultaneous": simultaneous,
        "seconds": any(row.seconds is not None for row in ordered),
        "charts": Widths(*(_chart(ordered, judged.name, reference, level, narrow) for narrow in (False, True))),
    }
    return Section(title, "comparison.html", context, lead)


@styled
def _chart(methods: Sequence[ComparisonRow], metric: str, reference: str | None, level: float, narrow: bool) -> Chart:
    drawing = Drawing(width=4.6 if narrow else 9.4, height=0.9 + 0.33 * len(methods))
    axes = drawing.axes
    for position, row in enumerate(methods):
        if row.name == reference:
            axes.axvline(row.mean, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        if row.interval is not None:
            axes.plot(row.interval, [position, position], color=FIRST, linewidth=2.4, solid_capstyle="round")
        axes.plot([row.mean], [position], "o", color=FIRST, markersize=8 if position == 0 else 6)
    axes.set_yticks(range(len(methods)), [label(row.name, 30 if narrow else 34) for row in methods])
    axes.set(ylim=(len(methods) - 0.5, -0.5), xlabel=label(metric))
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.04)
    best = methods[0]
    axes.locator_params(axis="x", nbins=5 if narrow else 10)
    intervals = f" and {100 * level:g} % intervals" if any(row.interval is not None for row in methods) else ""
    description = f"Means{intervals} of {metric}, best first: {best.name} with {formatting.value(best.mean)}."
    return drawing.finished("Methods compared", description)
