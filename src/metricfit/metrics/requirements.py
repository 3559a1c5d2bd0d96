"""Requirements: a metric against a bound, as in "recall at least 0.9"."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics import parsing
from metricfit.metrics.metric_parameters import as_float, format_number

if TYPE_CHECKING:
    from metricfit.metrics.metric import Metric


@dataclass(frozen=True)
class Requirement:
    """The requirement that a metric is at least, or at most, a bound. Write ``metrics.recall >= 0.9`` to make one.

    Args:
        metric: The metric.
        sense: ">=" or "<=".
        bound: The bound, within the bounds of the metric.

    Raises:
        InvalidTypeError: The bound is not a number.
        InvalidValueError: The metric cannot reach the bound.

    Example:
        >>> from metricfit import Counts, metrics
        >>> (metrics.recall >= 0.9).violation(Counts(tp=3, fp=1, fn=2, tn=4))
        tensor([0.3000], dtype=torch.float64)
    """

    metric: Metric
    sense: str
    bound: float

    def __post_init__(self) -> None:
        if isinstance(self.bound, bool) or not isinstance(self.bound, Real):
            raise InvalidTypeError(f"the bound of {self.metric.name} must be a number, got {quote(self.bound)}")
        bound = as_float(self.bound, f"the bound of {self.metric.name}")
        if math.isnan(bound):
            raise InvalidTypeError(f"the bound of {self.metric.name} must be a number, got {bound}")
        object.__setattr__(self, "bound", bound)
        low, high = self.metric.bounds
        if not low <= self.bound <= high:
            percent = 2 <= self.bound <= 100 and low <= self.bound / 100 <= high
            hint = f"; did you mean {self.bound / 100:g}?" if percent else ""
            raise InvalidValueError(f"{self}: {self.metric.name} lies between {low:g} and {high:g}{hint}")

    def violation(self, counts: Counts) -> Tensor:
        """Return how far the metric of these counts is beyond the bound.

        Args:
            counts: Counts of shape ``(..., c)``.

        Returns:
            One number per class; at most 0 where the requirement holds.
        """
        return self.excess(self.metric(counts))

    def excess(self, value: Tensor) -> Tensor:
        """Return how far a value of the metric is beyond the bound.

        Args:
            value: Values of the metric, of any shape.

        Returns:
            Numbers of the same shape; at most 0 where the requirement holds.
        """
        return self.bound - value if self.sense == ">=" else value - self.bound

    def holds(self, counts: Counts) -> Tensor:
        """Return whether the requirement holds.

        Args:
            counts: Counts of shape ``(..., c)``.

        Returns:
            True or False for each class.
        """
        return self.forgives(self.violation(counts))

    def forgives(self, violation: Tensor) -> Tensor:
        """Return whether a violation is at most 0, except for rounding.

        Args:
            violation: What ``violation`` or ``excess`` returned.

        Returns:
            True or False for each number.
        """
        return violation <= ROUNDING * max(1.0, abs(self.bound))

    def __bool__(self) -> bool:
        raise InvalidTypeError(
            f"({self}) is neither true nor false. A chained comparison such as 0.8 <= recall <= 0.9 would silently "
            "drop a bound: write two requirements. To test counts, use requirement.holds(counts)"
        )

    def __str__(self) -> str:
        return f"{self.metric.name} {self.sense} {format_number(self.bound)}"


def parse_requirement(requirement: str | Requirement) -> Requirement:
    """Read a requirement from text, without evaluating it.

    Args:
        requirement: Text such as ``"recall >= 0.9"``, ``"recall[2] >= 0.9"`` or ``"0.1 >= fpr"``, or a Requirement,
            which is returned as it is.

    Returns:
        The Requirement.

    Raises:
        InvalidValueError: The text is not a requirement, the metric is unknown, or it cannot reach the bound.
        InvalidTypeError: ``requirement`` is neither text nor a Requirement.

    Example:
        >>> parse_requirement("fbeta(beta=2) >= 0.5").bound
        0.5
    """
    from metricfit.metrics.metric import find_metric

    if isinstance(requirement, Requirement):
        return requirement
    if not isinstance(requirement, str):
        raise InvalidTypeError(
            f"a requirement is written like metrics.recall >= 0.9 or 'recall >= 0.9', got {quote(requirement)}"
        )
    node = parsing.parse_expression(requirement)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise InvalidValueError(
            f"cannot read the requirement {quote(requirement)}; write one bound, such as 'recall >= 0.9'"
        )
    left, right = node.left, node.comparators[0]
    sense = {ast.GtE: ">=", ast.LtE: "<="}.get(type(node.ops[0]))
    if sense is None:
        raise InvalidValueError(f"{quote(requirement)}: compare with >= or <=; a requirement includes its bound")
    if _number(left) is not None:
        left, right, sense = right, left, ">=" if sense == "<=" else "<="
    bound = _number(right)
    if bound is None:
        raise InvalidValueError(f"{quote(requirement)}: one side must be a number")
    parsed = parsing.parse_metric(left)
    if parsed is None:
        raise InvalidValueError(
            f"cannot read the metric of the requirement {quote(requirement)}; write a name, or a name with literal "
            "parameters, as in 'fbeta(beta=2) >= 0.5'"
        )
    return Requirement(find_metric(parsed), sense, bound)


def _number(node: ast.expr) -> float | None:
    try:
        value = parsing.literal_value(node)
    except ValueError:
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
