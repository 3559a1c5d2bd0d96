"""Requirements: a metric against a bound, as in "recall at least 0.9"."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

from metricfit.core.arrays import Array
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics import parsing
from metricfit.metrics.metric_parameters import as_float, format_number

if TYPE_CHECKING:
    from metricfit.metrics.metric import Metric


#: How far a metric may be from the bound of an equality, unless the user says otherwise.
DEFAULT_TOLERANCE = 0.01


@dataclass(frozen=True)
class Requirement:
    """The requirement that a metric is at least, at most, or equal to a bound.

    Write ``metrics.recall >= 0.9`` or ``metrics.recall.equals(0.9)`` to make one.

    Args:
        metric: The metric.
        sense: ">=", "<=" or "==".
        bound: The bound, within the bounds of the metric.
        tolerance: For "==" alone: how far from the bound the metric may be, because counts of finitely many rows
            rarely give the bound itself. The default is 0.01.

    Raises:
        InvalidTypeError: The bound or the tolerance is not a number.
        InvalidValueError: The metric cannot reach the bound, there is no such sense, or the tolerance is negative or
            belongs to another sense.

    Example:
        >>> from metricfit import Counts, metrics
        >>> (metrics.recall >= 0.9).violation(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.3])
    """

    metric: Metric
    sense: str
    bound: float
    tolerance: float | None = None

    def __post_init__(self) -> None:
        self._check_tolerance()
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

    def _check_tolerance(self) -> None:
        if self.sense not in (">=", "<=", "=="):
            raise InvalidValueError(f"a requirement compares with >=, <= or ==, got {quote(self.sense)}")
        if not self.is_equality:
            if self.tolerance is not None:
                raise InvalidValueError(f"only an equality has a tolerance; for {self.sense} move the bound instead")
            return
        tolerance = DEFAULT_TOLERANCE if self.tolerance is None else self.tolerance
        if isinstance(tolerance, bool) or not isinstance(tolerance, Real):
            raise InvalidTypeError(f"the tolerance of {self.metric.name} must be a number, got {quote(tolerance)}")
        if not 0 <= tolerance < math.inf:
            raise InvalidValueError(
                f"the tolerance of {self.metric.name} must be finite and at least 0, got {tolerance}"
            )
        object.__setattr__(self, "tolerance", float(tolerance))

    @property
    def is_equality(self) -> bool:
        """Whether the metric should equal the bound."""
        return self.sense == "=="

    def violation(self, counts: Counts) -> Array:
        """Return how far the metric of these counts is beyond the bound.

        Args:
            counts: Counts of shape ``(..., c)``.

        Returns:
            One number per class; at most 0 where the requirement holds.
        """
        return self.excess(self.metric(counts))

    def excess(self, value: Array) -> Array:
        """Return how far a value of the metric is beyond the bound, for an equality beyond its tolerance.

        Args:
            value: Values of the metric, of any shape.

        Returns:
            Numbers of the same shape; at most 0 where the requirement holds.
        """
        deviation = self.deviation(value)
        return deviation if self.tolerance is None else abs(deviation) - self.tolerance

    def deviation(self, value: Array) -> Array:
        """Return the constraint function g of the requirement, which training moves towards g <= 0 or g = 0.

        Args:
            value: Values of the metric, of any shape.

        Returns:
            Bound minus value for ">=", value minus bound for "<=" and "==". The tolerance of an equality plays no part.
        """
        return self.bound - value if self.sense == ">=" else value - self.bound

    def holds(self, counts: Counts) -> Array:
        """Return whether the requirement holds.

        Args:
            counts: Counts of shape ``(..., c)``.

        Returns:
            True or False for each class.
        """
        return self.forgives(self.violation(counts))

    def forgives(self, violation: Array) -> Array:
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
        tolerance = "" if self.tolerance in (None, DEFAULT_TOLERANCE) else f" +- {format_number(self.tolerance)}"
        return f"{self.metric.name} {self.sense} {format_number(self.bound)}{tolerance}"


def parse_requirement(requirement: str | Requirement) -> Requirement:
    """Read a requirement from text, without evaluating it.

    Args:
        requirement: Text such as ``"recall >= 0.9"``, ``"recall[2] >= 0.9"``, ``"recall['gold'] >= 0.9"``,
            ``"0.1 >= fpr"``, ``"recall == 0.9"``, ``"recall == 0.9 +- 0.02"``, ``"recall.gap(2) <= 0.05"`` or
            ``"fp/n <= 0.01"``, or a Requirement, which is returned as it is.

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
    sense = {ast.GtE: ">=", ast.LtE: "<=", ast.Eq: "=="}.get(type(node.ops[0]))
    if sense is None:
        raise InvalidValueError(f"{quote(requirement)}: compare with >=, <= or ==; a requirement includes its bound")
    if _number(left) is not None:
        left, right, sense = right, left, {"<=": ">=", ">=": "<=", "==": "=="}[sense]
    tolerance: float | None = None
    if sense == "==" and isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add):
        tolerance, right = _tolerance(right.right), right.left
        if tolerance is None:
            raise InvalidValueError(f"{quote(requirement)}: write a tolerance as in 'recall == 0.9 +- 0.02'")
    bound = _number(right)
    if bound is None:
        raise InvalidValueError(f"{quote(requirement)}: one side must be a number")
    parsed = parsing.parse_metric(left, requirement)
    if parsed is None:
        raise InvalidValueError(
            f"cannot read the metric of the requirement {quote(requirement)}; write a name, a name with literal "
            "parameters, as in 'fbeta(beta=2) >= 0.5', or a formula, as in 'tp/(tp + fn) >= 0.5'"
        )
    return Requirement(find_metric(parsed), sense, bound, tolerance)


def _tolerance(node: ast.expr) -> float | None:
    """Read the number after ``+-``, which Python parses as plus a negative number."""
    return _number(node.operand) if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else None


def _number(node: ast.expr) -> float | None:
    try:
        value = parsing.literal_value(node)
    except ValueError:
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
