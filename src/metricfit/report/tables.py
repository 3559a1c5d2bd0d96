"""The sections that are tables: methods, models, classes, costs, referred rows, columns, rows and groups."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metricfit.core.arrays import to_numpy
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.decision import REFERRED
from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, averaged, f1, get_metric, precision, recall, specificity
from metricfit.metrics.group_gap import is_undefined
from metricfit.metrics.matrix import MatrixMetric
from metricfit.report import formatting
from metricfit.report.charts import FIRST, MUTED, Chart, Drawing, Widths, label, styled
from metricfit.report.evaluation import Decisions, Floats, count_decisions, paid
from metricfit.report.page import Section
from metricfit.tabular.compare.verdict import ComparisonRow
from metricfit.tabular.insight.importance import Importance
from metricfit.tabular.insight.judged_rows import WorstRows
from metricfit.tabular.insight.value_intervals import Period, class_intervals, value_of_rows

if TYPE_CHECKING:  # the families need packages that pages do not
    from metricfit.tabular.ensemble import ModelRow


def comparison(
    methods: Sequence[ComparisonRow],
    metric: str | Metric,
    *,
    reference: str | None = None,
    recommended: str | None = None,
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
        recommended: Name of the method to mark; the rows then stay in their order. By default the best mean is marked.
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
    ordered = list(methods)
    if recommended is None:
        ordered.sort(key=lambda row: row.mean if judged.minimize else -row.mean)
    marked = recommended or ordered[0].name
    context = {
        "methods": ordered,
        "recommended": recommended,
        "marked": marked,
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
        "charts": Widths(*(_chart(ordered, judged.name, reference, marked, level, narrow) for narrow in (False, True))),
    }
    return Section(title, "comparison.html", context, lead)


@styled
def _chart(
    methods: Sequence[ComparisonRow], metric: str, reference: str | None, marked: str, level: float, narrow: bool
) -> Chart:
    drawing = Drawing(width=4.6 if narrow else 9.4, height=0.9 + 0.33 * len(methods))
    axes = drawing.axes
    for position, row in enumerate(methods):
        if row.name == reference:
            axes.axvline(row.mean, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        if row.interval is not None:
            axes.plot(row.interval, [position, position], color=FIRST, linewidth=2.4, solid_capstyle="round")
        axes.plot([row.mean], [position], "o", color=FIRST, markersize=8 if row.name == marked else 6)
    axes.set_yticks(range(len(methods)), [label(row.name, 30 if narrow else 34) for row in methods])
    axes.set(ylim=(len(methods) - 0.5, -0.5), xlabel=label(metric))
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.04)
    best = next(row for row in methods if row.name == marked)
    axes.locator_params(axis="x", nbins=5 if narrow else 10)
    intervals = f" and {100 * level:g} % intervals" if any(row.interval is not None for row in methods) else ""
    description = f"Means{intervals} of {metric}: {best.name} with {formatting.value(best.mean)}."
    return drawing.finished("Methods compared", description)


#: What the families are called in textbooks.
DESCRIPTIONS = {
    "linear": "logistic regression",
    "text": "logistic regression on TF-IDF of words and letters",
    "kernel": "support vectors with an RBF kernel",
    "boosting": "boosted trees",
    "boosting_small": "small boosted trees",
    "boosting_metric": "boosted trees trained for the metric",
    "extra_trees": "extremely randomised trees",
    "catboost": "boosted trees by CatBoost",
    "xgboost": "boosted trees by XGBoost",
    "in_context": "metricfit's own in-context network",
    "tabicl": "TabICL, a foundation model",
    "tabpfn": "TabPFN, a foundation model",
    "network": "neural networks",
}


def models(
    rows: Sequence[ModelRow], metric: str | Metric, *, label: str | None = None, title: str = "Models", lead: str = ""
) -> Section:
    """Make a table of the models of an ensemble, and name those that were left out.

    Args:
        rows: One row per model, such as ``models_`` of a MetricClassifier.
        metric: The metric that the models are judged by.
        label: What to call the metric's values, such as "macro f1"; by default the name of the metric.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If there are no rows.

    Example:
        >>> from metricfit.tabular.ensemble import ModelRow
        >>> rows = [ModelRow("boosting", 1.0, 0.7, 0.4, 2.5), ModelRow("kernel", left_out="more than 10,000 rows")]
        >>> models(rows, "f1").context["left_out"]
        [('kernel', 'more than 10,000 rows')]
    """
    if not rows:
        raise InvalidValueError("there is no model to show; pass models_ of a fitted classifier")
    judged = get_metric(metric)
    fitted = [row for row in rows if row.left_out is None]
    context = {
        "rows": sorted(fitted, key=lambda row: -row.weight),
        "left_out": [(row.name, row.left_out) for row in rows if row.left_out is not None],
        "descriptions": DESCRIPTIONS,
        "label": label or judged.name,
        "better": "lower" if judged.minimize else "higher",
    }
    return Section(title, "models.html", context, lead)


MAX_CLASSES = 20
MAX_CONFUSIONS = 20
MAX_PAIRS = 6


def multiclass(
    predicted: Any,
    target: Any,
    *,
    classes: Sequence[str],
    metric: str | Metric = "f1",
    average: ScalarAverage = "macro",
    weight: Any | None = None,
    groups: Any | None = None,
    title: str = "Decisions by class",
    lead: str = "",
) -> Section:
    """Make the confusion matrix, the pairs of classes most often confused, and the metrics of each class.

    With more than 20 classes the matrix would not be readable, so the most frequent confusions are listed instead.

    Args:
        predicted: Predicted class numbers.
        target: True class numbers.
        classes: Names of the classes.
        metric: The metric that the model is judged by.
        average: Average over the classes: "macro", "micro" or "weighted".
        weight: One weight per sample; counts are then sums of weights.
        groups: One group per sample; intervals then draw whole groups.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If there are fewer than two classes or no labels.

    Example:
        >>> section = multiclass([0, 1, 1], [0, 1, 0], classes=["cat", "dog"])
        >>> section.context["matrix"]
        [[1.0, 1.0], [0.0, 1.0]]
    """
    if len(classes) < 2:
        raise InvalidValueError(f"there must be two classes or more, got {len(classes)} names")
    guess, truth = (to_numpy(labels).reshape(-1) for labels in (predicted, target))
    if not len(truth):
        raise InvalidValueError("no labels given")
    w = None if weight is None else to_numpy(weight, np.float64)
    Counts.from_labels(guess, truth, num_classes=len(classes), weight=w)  # checks them
    guess, truth = guess.astype(np.int64), truth.astype(np.int64)
    counts = count_decisions(guess, truth, len(classes), w, matrix=True)
    matrix, judged = to_numpy(counts.tensors[0]), get_metric(metric)
    of_each_class = not judged.whole_matrix and judged.class_index is None
    columns = list(dict.fromkeys([*([judged] if of_each_class else []), precision, recall, specificity, f1]))
    intervals = class_intervals(guess, truth, len(classes), columns, w, None if groups is None else np.asarray(groups))
    wrong = matrix * (1 - np.eye(len(matrix)))
    context = {
        "classes": [str(name) for name in classes],
        "matrix": matrix.tolist() if len(classes) <= MAX_CLASSES else None,
        "costs": judged.parameters.get("costs") if isinstance(judged, MatrixMetric) else None,
        "support": matrix.sum(1).tolist(),
        "confusions": _confusions(wrong, classes) if len(classes) > MAX_CLASSES else [],
        "columns": [column.name for column in columns],
        "values": list(zip(*(column(counts).tolist() for column in columns), strict=True)),
        "intervals": list(zip(*intervals, strict=True)),
        "pairs": _pairs(wrong, classes),
        "metric": judged.name if judged.whole_matrix else f"{average} {judged.name}",
        "value": float(averaged(judged, counts, average)),
        "n": float(matrix.sum()),
    }
    return Section(title, "multiclass.html", context, lead)


def _pairs(wrong: Floats, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pairs of classes that are most often taken for each other, with their shares of all errors."""
    both = np.triu(wrong + wrong.T, 1)
    return [
        {
            "classes": (str(classes[i]), str(classes[j])),
            "rows": float(both[i, j]),
            "share": float(both[i, j] / wrong.sum()),
            "called": (float(wrong[i, j]), float(wrong[j, i])),
        }
        for i, j in _largest(both, MAX_PAIRS)
    ]


def _confusions(wrong: Floats, classes: Sequence[str]) -> list[tuple[str, str, float]]:
    return [(str(classes[i]), str(classes[j]), float(wrong[i, j])) for i, j in _largest(wrong, MAX_CONFUSIONS)]


def _largest(cells: Floats, most: int) -> list[tuple[int, int]]:
    """Return the places of the largest cells, the largest first, without cells of 0."""
    order = np.argsort(-cells, axis=None, kind="stable")[:most].tolist()
    return [(at // len(cells), at % len(cells)) for at in order if cells.flat[at] > 0]


def cost_table(rows: Decisions, lead: str = "") -> Section:
    """Make a table of the rows that were decided rightly and wrongly, and what the wrong decisions cost.

    Args:
        rows: The rows of two classes with their costs; with weights, numbers of rows are sums of weights.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> from metricfit import metrics
        >>> from metricfit.decide.costs import cost_columns, row_costs
        >>> metric = metrics.cost(fp=5, fn="amount")
        >>> costs = row_costs(metric, cost_columns(metric, pd.DataFrame({"amount": [9.0, 2.0, 7.0]})), 3)
        >>> y, decided = np.array([0, 1, 1]), np.array([1, 0, 1])
        >>> section = cost_table(Decisions(y, decided, ("good", "fraud"), metric, costs=costs))
        >>> section.context["total"], section.context["never"], section.context["always"]
        (7.0, 3.0, 1.6666666666666667)
    """
    called, truth, w, costs, (negative, positive) = rows.decided, rows.y, rows.weights, rows.costs, rows.classes
    assert costs is not None
    spent, parts = w * paid(costs, called, truth), []
    for actual, name in ((1, positive), (0, negative)):
        for decision, called_name in ((1, positive), (0, negative)):
            part = (truth == actual) & (called == decision)
            parts.append((name, called_name, float(w[part].sum()), float(spent[part].sum()), actual == decision))
    never, always = (float(np.average(paid(costs, np.full_like(called, share), truth), weights=w)) for share in (0, 1))
    context = {
        "metric": rows.metric.name,
        "value": float(spent.sum() / w.sum()),
        "rows": parts,
        "total": float(spent.sum()),
        "n": float(w.sum()),
        "positive": positive,
        "never": never,
        "always": always,
    }
    return Section("What the decisions cost", "costs.html", context, lead)


def referral_table(rows: Decisions, lead: str = "") -> Section:
    """Make a table of the rows that are decided for each class, and referred to a person.

    Args:
        rows: The rows; with weights, numbers of rows are sums of weights.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> from metricfit import metrics
        >>> y, decided = np.array([1, 1, 0, 0]), np.array([1, 0, -1, 0])
        >>> section = referral_table(Decisions(y, decided, ("no", "yes"), metrics.recall))
        >>> section.context["value"], section.context["rows"]
        (0.5, [('yes', [1.0, 1.0, 0.0]), ('no', [0.0, 1.0, 1.0])])
    """
    called, truth, w = rows.decided, rows.y, rows.weights
    order = (1, 0) if len(rows.classes) == 2 else range(len(rows.classes))
    parts = [
        (rows.classes[actual], [float(w[(truth == actual) & (called == each)].sum()) for each in (*order, REFERRED)])
        for actual in order
    ]
    total, referred = float(w.sum()), float(w[called == REFERRED].sum())
    context = {
        "metric": rows.metric.name,
        "value": float(averaged(rows.metric, rows.counts)),
        "rows": parts,
        "n": total - referred,
        "referred": referred,
        "share": referred / total,
    }
    return Section("Decided and referred rows", "referral.html", context, lead)


SHOWN = 12
#: More columns than these are named in the note, not listed.
LISTED = 200


def column_importance(result: Importance, *, lead: str = "") -> Section:
    """Make a table of columns with their importance, the first twelve visible and the others folded.

    Args:
        result: What ``model.importance`` returned.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"column": ["age"], "importance": [0.2], "low": [0.1], "high": [0.3]})
        >>> column_importance(Importance(table, "f1", 0.7, 500, 5)).context["shown"][0]["name"]
        'age'
    """
    low = min([0.0, *result.table["low"]])
    high = max([0.0, *result.table["high"]])
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return float(100 * (value - low) / span)

    rows = [
        {
            "name": str(row.column),
            "importance": float(row.importance),
            "interval": (float(row.low), float(row.high)),
            "bar": (place(min(0.0, row.importance)), place(max(0.0, row.importance))),
            "whisker": (place(row.low), place(row.high)),
            "certain": row.low > 0,
        }
        for row in result.table.itertuples(index=False)
    ]
    context = {
        "metric": result.metric,
        "value": result.value,
        "rows": result.rows,
        "repeats": result.repeats,
        "notes": result.notes,
        "zero": place(0.0),
        "shown": rows[:SHOWN],
        "folded": rows[SHOWN:LISTED],
        "omitted": max(0, len(rows) - LISTED),
    }
    return Section("Which columns matter", "column_importance.html", context, lead)


SHOWN_ROWS, SHOWN_COLUMNS = 12, 8
LONGEST = 40


def worst_decisions(result: WorstRows, *, first: Sequence[Any] = ()) -> Section:
    """Make a table of the rows that are most wrong, twelve visible and the others folded, with at most eight columns.

    Args:
        result: What ``model.worst`` returned.
        first: Columns to show before the others, such as the most important ones.

    Returns:
        The section.

    Example:
        >>> judged = {"truth": ["no"], "decision": ["yes"], "probability": [0.9]}
        >>> table = pd.DataFrame({**judged, "age": [40.0]})
        >>> worst_decisions(WorstRows(table, np.array([0]), 100, 5, "yes")).context["shown"][0]["cells"]
        ['40']
    """
    table, judged = result.table, result.judged
    values, has_costs = table.iloc[:, judged:], judged == 4
    order = {name: place for place, name in enumerate(first)}
    places = sorted(range(values.shape[1]), key=lambda place: (order.get(values.columns[place], len(order)), place))
    chosen = places[:SHOWN_COLUMNS]
    rows = [
        {
            "label": str(label),
            "truth": str(row[0]),
            "decision": str(row[1]),
            "right": row[0] == row[1],
            "probability": float(row[2]),
            "cost": float(row[3]) if has_costs else None,
            "cells": [cell_text(row[judged + place]) for place in chosen],
        }
        for label, row in zip(table.index, table.itertuples(index=False, name=None), strict=True)
    ]
    context = {
        "columns": [formatting.shortened(str(values.columns[place]), 24) for place in chosen],
        "hidden": len(places) - len(chosen),
        "shown": rows[:SHOWN_ROWS],
        "folded": rows[SHOWN_ROWS:],
        "positive": None if result.positive is None else str(result.positive),
        "costs": has_costs,
        "total": result.total,
        "wrong": result.wrong,
        "notes": result.notes,
    }
    return Section("Rows that are most wrong", "worst_decisions.html", context)


def cell_text(value: Any) -> str:
    """Return an entry of a table as text, short and with few digits; nothing where it is missing.

    >>> cell_text(1234567), cell_text(0.123456), cell_text(float("nan")), cell_text(40.0)
    ('1234567', '0.1235', '', '40')
    """
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return ""
    if isinstance(value, (bool, np.bool_, Integral)):
        return str(value)
    if isinstance(value, Real):
        number = float(value)
        return f"{number:.0f}" if number == round(number) and abs(number) < 1e15 else f"{number:.4g}"
    return formatting.shortened(" ".join(str(value).split()), LONGEST)


#: Groups of fewer rows say nothing on their own.
MIN_ROWS = 10


def group_values(rows: Decisions, title: str = "Values by group") -> Section | None:
    """Make a table of the metric in each group, the largest groups first.

    Args:
        rows: The rows with their groups.
        title: Title of the section.

    Returns:
        The section; None if there are not two groups of at least 10 rows.

    Example:
        >>> from metricfit.metrics import recall
        >>> y, groups = np.tile([1, 0], 20), np.repeat(["a", "b"], 20)
        >>> section = group_values(Decisions(y, y, ("no", "yes"), recall, groups=groups))
        >>> [(row["name"], row["rows"], row["value"]) for row in section.context["shown"]]
        [('a', 20, 1.0), ('b', 20, 1.0)]
    """
    names, number, sizes = np.unique(np.asarray(rows.groups), return_inverse=True, return_counts=True)
    large, metric, classes, costs = np.flatnonzero(sizes >= MIN_ROWS), rows.metric, len(rows.classes), rows.costs
    if len(large) < 2:
        return None
    parts = []
    for place in large[np.argsort(-sizes[large], kind="stable")][:LISTED]:
        part = np.flatnonzero(number.reshape(-1) == place)
        called, truth = rows.decided[part], rows.y[part]
        part_costs = None if costs is None else costs.take(part)
        part_weight = None if rows.weight is None else rows.weight[part]
        value, interval = value_of_rows(called, truth, classes, metric, rows.average, part_weight, part_costs)
        unknown = interval is None and rows.of_two and costs is None
        unknown = unknown and bool(is_undefined(metric, count_decisions(called, truth, 2)).all())
        parts.append(
            {
                "name": str(names[place]),
                "rows": len(part),
                "positives": int((truth == 1).sum()) if rows.of_two else None,
                "value": None if unknown else value,
                "interval": interval,
            }
        )
    context = {
        "what": "Group",
        "metric": rows.label(metric),
        "shown": parts[:SHOWN],
        "folded": parts[SHOWN:],
        "positives": rows.of_two,
        "groups": len(names),
        "unlisted": len(names) - len(parts),
        "min_rows": MIN_ROWS,
        "sentence": _sentence(parts, minimize=metric.minimize),
    }
    return Section(title, "group_values.html", context, "The same decisions, group by group.")


IN_ORDER = "Held-out rows in the order of time, each decided by models of earlier rows, in parts of equal size."


def period_values(periods: Sequence[Period], label: str, sentence: str | None, lead: str = IN_ORDER) -> Section:
    """Make a table of the metric in each period, the earliest first.

    Args:
        periods: The periods.
        label: What the metric is called.
        sentence: What the table shows, or None.
        lead: Which rows these are.

    Returns:
        The section.
    """
    rows = [{"name": str(each), "rows": each.rows, "value": each.value, "interval": each.interval} for each in periods]
    context = {
        "what": "Period",
        "metric": label,
        "shown": rows,
        "folded": [],
        "positives": False,
        "unlisted": 0,
        "sentence": sentence or ("The last period is not clearly worse than all rows together." * (lead == IN_ORDER)),
    }
    return Section("Values over time", "group_values.html", context, lead)


def _sentence(rows: list[dict[str, Any]], *, minimize: bool) -> str:
    """Say between which groups the difference is largest."""
    judged = [row for row in rows if row["interval"] is not None]
    if len(judged) < 2:
        return ""
    ordered = sorted(judged, key=lambda row: row["value"], reverse=not minimize)
    best, worst = ordered[0], ordered[-1]
    apart = worst["interval"][1] < best["interval"][0] or best["interval"][1] < worst["interval"][0]
    said = (
        f"Best in “{best['name']}” ({formatting.value(best['value'])}), worst in “{worst['name']}” "
        f"({formatting.value(worst['value'])})"
    )
    return f"{said}." if apart else f"{said}; their intervals overlap, so that may be chance."
