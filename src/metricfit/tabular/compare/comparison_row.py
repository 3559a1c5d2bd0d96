"""One method's row of a comparison: the terminal table, the JSON output and the report page all show this object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from metricfit.errors import InvalidValueError
from metricfit.tabular.compare.pooled_requirements import PooledRequirement

Pair = tuple[float, float]


@dataclass(frozen=True)
class ComparisonRow:
    """A method's mean value, how sure it is, and how it compares with the reference method.

    Args:
        name: Name of the method.
        mean: Mean of the metric over the folds.
        interval: 95 % interval of the mean; None if it is not known, for example because all folds have the same value.
        difference: This mean minus the mean of the reference; None for the reference itself, and for a method that
            equals it on every fold.
        difference_interval: Interval of the difference; in the rows of ``metricfit.compare`` it is simultaneous with
            the intervals of the other methods. None if the difference is the same on every fold.
        p_value: p-value of the paired test that the difference is 0; in the rows of ``metricfit.compare`` it is
            corrected by Holm's method. None where ``difference_interval`` is None.
        seconds: Training time of all folds.
        held: Number of folds on which the requirements held; None if there are no requirements.
        values: The metric on each fold. Where no threshold met the requirements on a fold's training rows, this is the
            value at the nearest threshold.
        not_reachable: For each fold on whose training rows no threshold met the requirements, what was reachable.
        requirements: The requirements on the test rows of all folds together.

    Raises:
        InvalidValueError: If a number is not finite.

    Example:
        >>> row = ComparisonRow("mix", 0.7, (0.67, 0.73), seconds=12.5)
        >>> row.to_dict()["mean"]
        0.7
    """

    name: str
    mean: float
    interval: Pair | None = None
    difference: float | None = None
    difference_interval: Pair | None = None
    p_value: float | None = None
    seconds: float | None = None
    held: int | None = None
    values: tuple[float, ...] = ()
    not_reachable: tuple[str, ...] = ()
    requirements: tuple[PooledRequirement, ...] = ()

    @property
    def failed(self) -> tuple[PooledRequirement, ...]:
        """The requirements that clearly fail on the test rows of all folds together."""
        return tuple(requirement for requirement in self.requirements if requirement.clearly_fails)

    def __post_init__(self) -> None:
        numbers = [self.mean, self.difference, self.p_value, self.seconds, *self.values]
        numbers += [*(self.interval or ()), *(self.difference_interval or ())]
        if any(number is not None and not math.isfinite(number) for number in numbers):
            raise InvalidValueError(f"{self.name!r} has a number that is not finite; pass None for what is not known")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values, in the form that ``metricfit compare --json`` prints.

        Returns:
            The name, the mean with its interval, the values, the seconds, the comparison with the reference, and how
            the requirements held.

        Example:
            >>> ComparisonRow("mix", 0.7, difference=0.1).to_dict()["versus_reference"]
            {'difference': 0.1, 'interval': None, 'p_value': None}
        """
        result: dict[str, Any] = {
            "name": self.name,
            "mean": self.mean,
            "interval": self.interval,
            "values": self.values,
            "seconds": self.seconds,
            "versus_reference": None,
            "held": self.held,
            "not_reachable": self.not_reachable,
            "requirements": [requirement.to_dict() for requirement in self.requirements],
        }
        if self.difference is not None:
            result["versus_reference"] = {
                "difference": self.difference,
                "interval": self.difference_interval,
                "p_value": self.p_value,
            }
        return result
