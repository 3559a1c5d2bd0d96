"""How a metric becomes a requirement or a difference between groups: ``>=``, ``<=``, ``equals`` and ``gap``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metricfit.errors import InvalidTypeError
from metricfit.metrics.requirements import Requirement

if TYPE_CHECKING:
    from metricfit.metrics.group_gap import GroupGap
    from metricfit.metrics.metric import Metric


class RequirementOperators:
    """The part of Metric that makes requirements and gaps. ``==`` compares two metrics, so equality is a method."""

    @property
    def name(self) -> str:
        """The name of the metric."""
        raise NotImplementedError

    def __ge__(self: Metric, bound: float) -> Requirement:  # type: ignore[misc]
        return Requirement(self, ">=", bound)

    def __le__(self: Metric, bound: float) -> Requirement:  # type: ignore[misc]
        return Requirement(self, "<=", bound)

    def __gt__(self, bound: float) -> Requirement:
        raise InvalidTypeError(f"write {self.name} >= {bound}: a requirement includes its bound")

    def __lt__(self, bound: float) -> Requirement:
        raise InvalidTypeError(f"write {self.name} <= {bound}: a requirement includes its bound")

    def equals(self: Metric, bound: float, *, within: float | None = None) -> Requirement:  # type: ignore[misc]
        """Require that the metric equals a bound.

        Args:
            bound: The value that the metric should have.
            within: How far from it the metric may be where the requirement is checked; by default 0.01. Training moves
                towards the bound itself.

        Returns:
            The Requirement.

        Raises:
            InvalidTypeError: The bound or the tolerance is not a number.
            InvalidValueError: The metric cannot reach the bound, or the tolerance is negative.

        Example:
            >>> from metricfit import metrics
            >>> print(metrics.recall.equals(0.9))
            recall == 0.9
        """
        return Requirement(self, "==", bound, within)

    def gap(self: Metric, groups: int | Sequence[object]) -> GroupGap:  # type: ignore[misc]
        """Make the metric that is the largest difference of this metric between two groups; lower is better.

        It is measured on counts per group, ``Counts.hard(..., group=..., groups=k)``. Where a function or loss takes
        ``group=`` (or ``groups=``), pass one group number per row there.

        Args:
            groups: The number of groups, or their names in the order of the group numbers.

        Returns:
            The metric.

        Raises:
            InvalidTypeError: ``groups`` is neither a number nor a list of names.
            InvalidValueError: There are fewer than two groups, or two of the same name.

        Example:
            >>> from metricfit import Counts, metrics
            >>> counts = Counts(tp=[[8.0], [6.0]], fp=[[0.0], [0.0]], fn=[[2.0], [4.0]], tn=[[9.0], [9.0]])
            >>> metrics.recall.gap(2)(counts)
            array([0.2])
            >>> print(metrics.recall.gap(["women", "men"]) <= 0.05)
            recall.gap(['women', 'men']) <= 0.05
        """
        from metricfit.metrics.group_gap import GroupGap

        return GroupGap(self, groups)
