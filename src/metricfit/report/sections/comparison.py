"""Methods side by side: means with intervals, differences to one of them, and what training took."""

from __future__ import annotations

from collections.abc import Sequence

from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, get_metric
from metricfit.report import formatting as words
from metricfit.report.charts.drawing import FIRST, MUTED, Chart, Drawing, Widths, label, styled
from metricfit.report.page import Section
from metricfit.tabular.compare.comparison_row import ComparisonRow


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
    """A table of methods, best mean first, and a chart of means and intervals.

    ``reference`` names the method that differences are to, ``folds`` says how many ``held`` is out of, and
    ``simultaneous`` says that p-values and the intervals of differences are corrected for the number of comparisons.

    >>> rows = [ComparisonRow("BCE at 0.5", 0.61), ComparisonRow("mix", 0.7, (0.67, 0.73), 0.09, (0.06, 0.12), 0.002)]
    >>> [row.name for row in comparison(rows, "f1", reference="BCE at 0.5").context["methods"]]
    ['mix', 'BCE at 0.5']
    """
    if not methods:
        raise InvalidValueError("a comparison needs at least one method")
    if reference is not None and reference not in [each.name for each in methods]:
        raise InvalidValueError(
            f"the reference {reference!r} is not among the methods: {[each.name for each in methods]}"
        )
    judged = get_metric(metric)
    ordered = sorted(methods, key=lambda each: each.mean if judged.minimize else -each.mean)
    context = {
        "methods": ordered,
        "metric": judged.name,
        "better": "lower" if judged.minimize else "higher",
        "reference": reference,
        "level": f"{100 * level:g} %",
        "differences": any(each.difference is not None for each in ordered),
        "intervals": any(each.interval is not None for each in ordered),
        "held": any(each.held is not None for each in ordered),
        "folds": folds,
        "simultaneous": simultaneous,
        "seconds": any(each.seconds is not None for each in ordered),
        "charts": Widths(*(_chart(ordered, judged.name, reference, level, narrow) for narrow in (False, True))),
    }
    return Section(title, "comparison.html", context, lead)


@styled
def _chart(methods: Sequence[ComparisonRow], metric: str, reference: str | None, level: float, narrow: bool) -> Chart:
    drawing = Drawing(width=4.6 if narrow else 9.4, height=0.9 + 0.33 * len(methods))
    axes = drawing.axes
    for row, each in enumerate(methods):
        if each.name == reference:
            axes.axvline(each.mean, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        if each.interval is not None:
            axes.plot(each.interval, [row, row], color=FIRST, linewidth=2.4, solid_capstyle="round")
        axes.plot([each.mean], [row], "o", color=FIRST, markersize=8 if row == 0 else 6)
    axes.set_yticks(range(len(methods)), [label(each.name, 30 if narrow else 34) for each in methods])
    axes.set(ylim=(len(methods) - 0.5, -0.5), xlabel=label(metric))
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.04)
    best = methods[0]
    axes.locator_params(axis="x", nbins=5 if narrow else 10)
    intervals = f" and {100 * level:g} % intervals" if any(each.interval is not None for each in methods) else ""
    description = f"Means{intervals} of {metric}, best first: {best.name} with {words.value(best.mean)}."
    return drawing.finished("Methods compared", description)
