"""RowCost: the mean cost of decisions whose costs stand in columns of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn, ParamSpec

from metricfit.core.counts import Counts
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Formula, Metric, MetricFactory, reduce_by_name

P = ParamSpec("P")


class RowCost(Metric):
    """The mean cost per row, where a wrong decision about a row costs what a column of the table says.

    ``metrics.cost(fp=5, fn="amount")`` makes one. Decisions that are counted no longer have amounts, so it is not a
    function of Counts: MetricClassifier, TunedDecisionClassifier and ``compare`` take the columns from the table.

    Args:
        name: The name, without parameters.
        formula: The formula of costs that are equal for all rows.
        parameters: ``fp`` and ``fn``, each a number or the name of a column; at least one of them a name.

    Example:
        >>> from metricfit import metrics
        >>> metric = metrics.cost(fp=5, fn="amount")
        >>> metric, metric.columns, metric.minimize
        (cost(fp=5, fn='amount'), ('amount',), True)
    """

    def __init__(self, name: str, formula: Formula, *, parameters: dict[str, Any]) -> None:
        super().__init__(name, formula, parameters=parameters, minimize=True, bounds=(0.0, math.inf))
        self.columns = tuple(dict.fromkeys(value for value in parameters.values() if isinstance(value, str)))

    def _measure(self, counts: Counts) -> NoReturn:
        raise InvalidTypeError(_without_amounts(self))

    def __getitem__(self, index: int | str) -> Metric:
        raise InvalidTypeError(f"{self.name} is one number for two classes, not one per class")

    def __reduce__(self) -> str | tuple[object, ...]:
        return reduce_by_name(self) or object.__reduce__(self)


def check_of_counts(metric: Metric) -> Metric:
    """Return a metric of counts as it is, and refuse one with a cost for each row.

    Args:
        metric: The metric.

    Raises:
        InvalidTypeError: It takes costs from columns.

    Example:
        >>> from metricfit import metrics
        >>> check_of_counts(metrics.cost(fp=1, fn=10))
        cost(fp=1, fn=10)
    """
    if metric.columns:
        raise InvalidTypeError(_without_amounts(metric))
    return metric


def _without_amounts(metric: Metric) -> str:
    return (
        f"{metric.name} has a cost for each row, which counts do not have. MetricClassifier, TunedDecisionClassifier "
        "and compare take the column from the table; elsewhere use numbers, such as cost(fp=1, fn=10), and pass the "
        "amounts as weights"
    )


class CostFactory(MetricFactory[P]):
    """The factory of ``metrics.cost``: costs that are numbers make a Metric of counts, names of columns a RowCost.

    Args:
        name: The name of the metrics.
        formula: A function of Counts and the costs.
        bounds: A function of the costs that returns the smallest and the largest value.
        settings: The other arguments of Metric.

    Example:
        >>> from metricfit import metrics
        >>> metrics.cost
        cost(fp, fn)
    """

    def _check_parameters(self, values: Mapping[str, object]) -> dict[str, Any]:
        has_column = any(isinstance(value, str) for value in values.values())
        checked: dict[str, Any] = {}
        for key, value in values.items():
            if has_column and isinstance(value, (list, tuple)):
                raise InvalidTypeError(
                    f"{self.name}: {key} must be a number or the name of a column, got {quote(value)}"
                )
            if value == "":
                raise InvalidValueError(f"{self.name}: {key} is an empty text; name a column of the table")
            checked |= {key: value} if isinstance(value, str) else super()._check_parameters({key: value})
        return checked

    def _make(self, parameters: dict[str, Any]) -> Metric:
        if any(isinstance(value, str) for value in parameters.values()):
            return RowCost(self.name, self.formula, parameters=parameters)
        return super()._make(parameters)
