"""The costs of wrong decisions about each row, read from columns of a table.

A row with the calibrated probability p, whose false positive costs a and whose false negative costs b, is best called
positive if p b >= (1 - p) a, that is if its logit plus log(b / a) is at least 0. The *cost margin* is this sum.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Metric
from metricfit.metrics.metric_parameters import LARGEST_PARAMETER


@dataclass(frozen=True)
class RowCosts:
    """What wrong decisions about rows cost.

    Attributes:
        fp: The cost of each row, if it is negative and called positive, ``(n,)``.
        fn: The cost of each row, if it is positive and called negative, ``(n,)``.

    Example:
        >>> costs = RowCosts(fp=torch.tensor([5.0, 5.0]), fn=torch.tensor([100.0, 0.0]))
        >>> costs.margins(torch.tensor([-2.0, 9.0]))  # the second row costs nothing if it is missed
        tensor([0.9957,   -inf], dtype=torch.float64)
        >>> costs.of_decisions(torch.tensor([1, 0]), torch.tensor([0, 1]))
        tensor([5., 0.], dtype=torch.float64)
    """

    fp: Tensor
    fn: Tensor

    def margins(self, logits: Tensor) -> Tensor:
        """Return calibrated logits ``(n,)`` or ``(n, 1)`` plus log(fn / fp), in the same shape.

        A row whose miss costs nothing has minus infinity, so that it is never positive; one with a false alarm that
        costs nothing, otherwise, has infinity.
        """
        shift = torch.where(self.fn > 0, self.fn.double().log() - self.fp.double().log(), -torch.inf)
        return logits.double() + shift.reshape(logits.shape)

    def of_decisions(self, decided: Tensor, y: Tensor) -> Tensor:
        """Return the cost of the decision about each row: 0 where it is right.

        Args:
            decided: The share of each row that is called positive, ``(n,)``; usually 0 or 1.
            y: Labels 0 and 1.
        """
        return torch.where(y == 1, (1 - decided.double()) * self.fn, decided.double() * self.fp)

    def take(self, index: Any) -> RowCosts:
        """Return the costs of these rows."""
        return RowCosts(self.fp[index], self.fn[index])


def cost_columns(metric: Metric, X: Any) -> dict[str, Tensor]:
    """Read the columns that a metric takes its costs from.

    Args:
        metric: The metric; without columns nothing is read.
        X: A pandas or polars DataFrame, or another table with columns by name.

    Returns:
        The columns in float64, by name.

    Raises:
        InvalidTypeError: The table has no named columns.
        InvalidValueError: A column is missing, or holds something else than finite numbers of at least 0.

    Example:
        >>> import pandas as pd
        >>> from metricfit import metrics
        >>> cost_columns(metrics.cost(fp=5, fn="amount"), pd.DataFrame({"amount": [3, 7]}))
        {'amount': tensor([3., 7.], dtype=torch.float64)}
    """
    return {name: _cost_column(metric, X, name) for name in metric.columns}


def _cost_column(metric: Metric, X: Any, name: str) -> Tensor:
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None:
        raise InvalidTypeError(
            f"{metric.name} takes costs from the column {quote(name)}: pass a DataFrame that has it, got "
            f"{type(X).__name__}"
        )
    if name not in list(names):
        close = difflib.get_close_matches(name, list(map(str, names)), n=1)
        hint = f"; did you mean {quote(close[0])}?" if close else "; add it to the table"
        raise InvalidValueError(
            f"{metric.name} takes costs from the column {quote(name)}, which the table does not have{hint}"
        )
    given = np.asarray(X[name])
    try:
        if given.dtype.kind in "SUmM" or any(isinstance(entry, str) for entry in given if given.dtype.kind == "O"):
            raise TypeError
        values = np.array(X[name], dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"the column {quote(name)} holds costs, and has entries that are no numbers, but text or dates"
        ) from None
    for wrong, what in (
        (np.isnan(values), "missing"),
        (values < 0, "negative"),
        (values > LARGEST_PARAMETER, f"larger than {LARGEST_PARAMETER:g}"),
    ):
        if wrong.any():
            raise InvalidValueError(
                f"the column {quote(name)} holds costs; {int(wrong.sum())} of {len(values)} are {what}, and costs are "
                "finite numbers of at least 0"
            )
    return torch.from_numpy(values)


def row_costs(metric: Metric, columns: Mapping[str, Tensor], rows: int) -> RowCosts:
    """Return the costs of each row.

    Args:
        metric: A metric with costs from columns.
        columns: The columns by name.
        rows: Number of rows.

    Returns:
        The costs of false positives and false negatives.

    Raises:
        InvalidValueError: A column was not kept.
    """
    parts = []
    for key in ("fp", "fn"):
        value: Any = metric.parameters[key]
        if isinstance(value, str) and value not in columns:
            raise InvalidValueError(
                f"the costs in the column {quote(value)} were not kept with the held-out rows: fit a model with "
                f"metric={metric.name!r}"
            )
        constant = not isinstance(value, str)
        parts.append(torch.full((rows,), value, dtype=torch.float64) if constant else columns[value])
    return RowCosts(*parts)


def check_costs(metric: Metric, columns: Mapping[str, Tensor], classes: int, requirements: object = ()) -> None:
    """Refuse problems that costs per row are not for, or that have one answer for all rows.

    Args:
        metric: The metric; without columns nothing is refused.
        columns: The columns by name.
        classes: Number of classes; 0 for several labels.
        requirements: Requirements on the decisions.

    Raises:
        InvalidValueError: There are more than two classes or requirements, or all costs of one kind are 0.
    """
    if not metric.columns:
        return
    if classes != 2:
        raise InvalidValueError(f"{metric.name} is for two classes; of several use metrics.cost_matrix")
    if requirements:
        raise InvalidValueError(
            f"subject_to cannot be combined with {metric.name}: every row is decided by its own costs. Leave it out, "
            "or use costs that are numbers"
        )
    costs = row_costs(metric, columns, len(next(iter(columns.values()), ())))
    for values, what in ((costs.fp, "false positives"), (costs.fn, "false negatives")):
        if not bool((values > 0).any()):
            raise InvalidValueError(f"{metric.name}: {what} cost nothing in any row, so that no model is needed")


def mean_cost(costs: Tensor, weight: Tensor | None) -> float:
    """Return the mean cost per row."""
    return float(costs.mean() if weight is None else (costs * weight).sum() / weight.sum())
