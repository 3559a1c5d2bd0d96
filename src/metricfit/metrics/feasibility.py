"""Requirements that no threshold meets: the error, the warning, and what is reachable instead."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from metricfit.core.arrays import Array
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING, maximum
from metricfit.errors import MetricfitError
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import one_class

if TYPE_CHECKING:
    from metricfit.metrics.curves import BestThreshold


class RequirementValue(NamedTuple):
    """A requirement at a threshold: its value, whether it is met, and the best value that any threshold gives.

    Attributes:
        value: The value of the requirement's metric there.
        met: Whether it meets the bound.
        reachable: The best value at any threshold, without the other requirements: the highest for a
            bound with ``>=``, the lowest for one with ``<=``, the nearest for one with ``==``.

    Example:
        >>> RequirementValue(value=0.8, met=False, reachable=0.8).met
        False
    """

    value: float
    met: bool
    reachable: float


class ChosenThreshold(NamedTuple):
    """A threshold, the metric there, whether it meets all requirements, and the result of each by its text."""

    threshold: float
    value: float
    feasible: bool
    requirements: dict[str, RequirementValue]


class InfeasibleError(MetricfitError, ValueError):
    """No threshold meets the requirements; the message says what is reachable.

    Args:
        message: What cannot be met, and what is reachable.
        nearest: The attribute of the same name.
        requirements: The attribute of the same name.

    Attributes:
        nearest: The threshold whose largest violation of a requirement is smallest, and the metric there; of equally
            near ones, the best for the metric. None where the error was not raised by a search for a threshold.
        requirements: The result of each requirement at that threshold, by the requirement as text.

    Example:
        >>> from metricfit import best_threshold
        >>> try:
        ...     best_threshold([0.2, 0.9], [1, 0], "f1", subject_to="precision >= 0.9")
        ... except InfeasibleError as error:
        ...     error.requirements["precision >= 0.9"].reachable
        0.5
    """

    def __init__(
        self,
        message: str,
        nearest: BestThreshold | None = None,
        requirements: Mapping[str, RequirementValue] | None = None,
    ) -> None:
        super().__init__(message)
        self.nearest = nearest
        self.requirements = dict(requirements or {})


class InfeasibleWarning(UserWarning):
    """A requirement cannot be met; decisions are made at the threshold that comes nearest to it.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", InfeasibleWarning)  # stop instead
    """


class Allowed(NamedTuple):
    """Which thresholds may be chosen, and whether they meet the requirements.

    Attributes:
        thresholds: One boolean per threshold. If no threshold meets all requirements: those that come nearest.
        feasible: Whether some threshold meets all requirements.
    """

    thresholds: Array
    feasible: bool


def allowed_thresholds(counts: Counts, requirements: Sequence[Requirement]) -> Allowed:
    """Find the thresholds that meet all requirements, or if none does, those whose largest violation is smallest.

    Args:
        counts: The counts at each threshold, ``(m, 1)``.
        requirements: The requirements.

    Returns:
        The thresholds that may be chosen.
    """
    if not requirements:
        return Allowed(counts.tp[..., 0] == counts.tp[..., 0], True)
    violations = [one_class(requirement, counts) for requirement in requirements]
    pairs = zip(requirements, violations, strict=True)
    met = reduce(operator.and_, [requirement.forgives(violation) for requirement, violation in pairs])
    if bool(met.any()):
        return Allowed(met, True)
    largest = reduce(maximum, violations)
    return Allowed(largest <= largest.min() + ROUNDING, False)


def reachable_alone(requirements: Sequence[Requirement], results: Mapping[str, RequirementValue]) -> tuple[str, str]:
    """Say what the metric of each requirement can be by itself, and what they all are at the nearest decision."""
    kinds = {">=": "as high as", "<=": "as low as", "==": "at nearest"}
    alone = " and ".join(
        f"{item.metric.name} can be {kinds[item.sense]} {results[str(item)].reachable:.6g}" for item in requirements
    )
    return alone, ", ".join(f"{item.metric.name} = {results[str(item)].value:.6g}" for item in requirements)


def what_is_reachable(
    requirements: Sequence[Requirement], results: Mapping[str, RequirementValue], threshold: float
) -> str:
    """Say that requirements cannot be met, and what can be had instead.

    Args:
        requirements: The requirements.
        results: Their results at the nearest threshold.
        threshold: That threshold, on the scale that readers see.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> requirement = parse_requirement("precision >= 0.9")
        >>> what_is_reachable([requirement], {"precision >= 0.9": RequirementValue(0.8, False, 0.8)}, 0.7)
        'no threshold gives precision >= 0.9; the highest precision that is reachable is 0.8, at threshold 0.7'
    """
    if len(requirements) == 1:
        requirement = requirements[0]
        extreme = {">=": "highest", "<=": "lowest", "==": "nearest"}[requirement.sense]
        return (
            f"no threshold gives {requirement}; the {extreme} {requirement.metric.name} that is reachable is "
            f"{results[str(requirement)].reachable:.6g}, at threshold {threshold:.6g}"
        )
    alone, there = reachable_alone(requirements, results)
    return (
        f"no threshold gives {' and '.join(map(str, requirements))} together; each alone, {alone}; the nearest "
        f"threshold is {threshold:.6g}, with {there}"
    )
