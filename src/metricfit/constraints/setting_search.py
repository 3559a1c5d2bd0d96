"""The search for mu, rho and the margin of a constrained training, as in Appendix E of Sangalli et al. 2021."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Real
from typing import Any, Generic, TypeVar

from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Tried:
    """One setting of a search.

    Attributes:
        setting: The values of ``mu``, ``rho`` and, if it is searched, ``margin``.
        value: The validation value, for which higher is better.

    Example:
        >>> Tried({"mu": 0.2, "rho": 3.0}, value=0.91).setting["rho"]
        3.0
    """

    setting: dict[str, float]
    value: float


@dataclass(frozen=True)
class Searched(Generic[Outcome]):
    """The result of ``search``.

    Attributes:
        setting: The best setting, ``{"mu": ..., "rho": ..., "margin": ...}``.
        value: Its validation value.
        outcome: What ``train`` returned for it, such as a FitResult with the trained model.
        tried: All settings with their values, in the order in which they were trained.

    Example:
        >>> search(lambda mu, rho: mu * rho, margin=None).setting
        {'mu': 0.3, 'rho': 4.0}
    """

    setting: dict[str, float]
    value: float
    outcome: Outcome
    tried: tuple[Tried, ...]


def search(
    train: Callable[..., Outcome],
    *,
    mu: Sequence[float] = (0.2, 0.3),
    rho: Sequence[float] = (2.0, 3.0, 4.0),
    margin: Sequence[float] | None = (1.0, 1.5, 2.0),
    without: Iterable[tuple[float, float]] = ((0.2, 2.0),),
    value: Callable[[Outcome], float] | None = None,
) -> Searched[Outcome]:
    """Search mu and rho in all combinations at the first margin, then the margin at the best of them.

    With the defaults of the paper (Sangalli et al. 2021, Section 5.2 and Appendix E) this is seven trainings, of
    fifteen in the whole grid. A tie is decided in favour of the setting that was tried first.

    Args:
        train: Called as ``train(mu=..., rho=..., margin=...)``; trains a model under the constraint, from the same
            start each time, and returns its validation value or anything that ``value`` reads it from. The paper
            starts from a model trained with the objective alone, and validates with the AUC.
        mu: The penalty factors at the start to try.
        rho: The factors by which mu grows to try.
        margin: The margins of a RankingConstraint to try; None if there is no margin, as with requirements, and
            ``train`` then gets mu and rho alone.
        without: Pairs of mu and rho to leave out. The paper found its pair not effective.
        value: Reads the validation value, for which higher is better, from what ``train`` returned.

    Returns:
        The best setting, what ``train`` returned for it, and the values of all settings.

    Raises:
        TypeError: If ``train`` returns something other than a number and ``value`` is not given.
        ValueError: If there is nothing to try, or a validation value is NaN.

    Example:
        >>> def train(mu, rho, margin):  # in its place, a training that returns the validation AUC
        ...     return 0.9 - (mu - 0.3) ** 2 - (rho - 3.0) ** 2 - (margin - 1.5) ** 2
        >>> found = search(train)
        >>> found.setting, len(found.tried)
        ({'mu': 0.3, 'rho': 3.0, 'margin': 1.5}, 7)
    """
    left_out = {tuple(pair) for pair in without}
    pairs = [pair for pair in product(mu, rho) if pair not in left_out]
    margins = [None] if margin is None else list(margin)
    if not pairs or not margins:
        raise InvalidValueError(
            f"nothing to try: mu={quote(mu)}, rho={quote(rho)} without {quote(sorted(left_out))}, "
            f"margin={quote(margin)}; leave margin=None if there is no margin"
        )
    tried: list[Tried] = []
    best: Searched[Outcome] | None = None

    def attempt(pair: tuple[float, float], at: float | None) -> None:
        nonlocal best
        setting = {"mu": pair[0], "rho": pair[1]} | ({} if at is None else {"margin": at})
        outcome = train(**setting)
        measured = _read(outcome, value, setting)
        tried.append(Tried(setting, measured))
        if best is None or measured > best.value:
            best = Searched(setting, measured, outcome, ())

    for pair in pairs:
        attempt(pair, margins[0])
    assert best is not None
    chosen = best.setting["mu"], best.setting["rho"]
    for other in margins[1:]:
        attempt(chosen, other)
    return Searched(best.setting, best.value, best.outcome, tuple(tried))


def _read(outcome: Any, value: Callable[[Any], float] | None, setting: dict[str, float]) -> float:
    """Return the validation value of a training."""
    read = outcome if value is None else value(outcome)
    if isinstance(read, Tensor) and read.numel() == 1:
        read = read.item()
    if isinstance(read, bool) or not isinstance(read, Real):
        wrong = f"train returned {quote(outcome)}" if value is None else f"value returned {quote(read)}"
        raise InvalidTypeError(
            f"{wrong}; a search compares numbers: pass value=, such as value=lambda result: result.best for what fit "
            "returns"
        )
    number = float(read)
    if math.isnan(number):
        raise InvalidValueError(
            f"the validation value at {setting} is NaN, which cannot be compared; fit needs a validation set for one"
        )
    return number
