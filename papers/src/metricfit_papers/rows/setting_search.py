"""The search for mu, rho and the margin of a constrained training, as in Appendix E of Sangalli et al. 2021."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Real
from typing import Any, Generic, TypeVar

from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote

Outcome = TypeVar("Outcome")

#: The pair of mu and rho that the paper left out as not effective.
LEFT_OUT = ((0.2, 2.0),)
#: The smallest value of each setting, and whether it is excluded.
LOWEST = {"mu": (0.0, True), "rho": (1.0, False), "margin": (0.0, False)}


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
    without: Iterable[tuple[float, float]] = LEFT_OUT,
    value: Callable[[Outcome], float] | None = None,
) -> Searched[Outcome]:
    """Search mu and rho in all combinations at the first margin, then the margin at the best of them.

    With the defaults of the paper (Sangalli et al. 2021, Section 5.2 and Appendix E) this is seven trainings, of
    fifteen in the whole grid. A tie is decided in favour of the setting that was tried first.

    Args:
        train: Called as ``train(mu=..., rho=..., margin=...)``; trains a model under the constraint, from the same
            start each time, and returns its validation value or anything that ``value`` reads it from. The paper
            starts from a model trained with the objective alone, and validates with the AUC.
        mu: The penalty factors at the start to try, above 0.
        rho: The factors by which mu grows to try, at least 1.
        margin: The margins of a RankingConstraint to try; None if there is no margin, as with requirements, and
            ``train`` then gets mu and rho alone.
        without: Pairs of mu and rho to leave out, all of which are in the lists; ``()`` for none. The paper found its
            pair not effective, which is the default where it is in the lists.
        value: Reads the validation value, for which higher is better, from what ``train`` returned.

    Returns:
        The best setting, what ``train`` returned for it, and the values of all settings.

    Raises:
        TypeError: If ``train`` or ``value`` is not a function, if ``mu``, ``rho`` or ``margin`` is not a list of
            numbers or ``without`` not a list of pairs, or if ``train`` returns something other than a number and
            ``value`` is not given.
        ValueError: If there is nothing to try, if a number is out of range or listed twice, if a pair of ``without`` is
            not in the lists, or if a validation value is NaN.

    Example:
        >>> def train(mu, rho, margin):  # in its place, a training that returns the validation AUC
        ...     return 0.9 - (mu - 0.3) ** 2 - (rho - 3.0) ** 2 - (margin - 1.5) ** 2
        >>> found = search(train)
        >>> found.setting, len(found.tried)
        ({'mu': 0.3, 'rho': 3.0, 'margin': 1.5}, 7)
    """
    for name, function in (("train", train), ("value", value)):
        if not callable(function) and not (name == "value" and function is None):
            raise InvalidTypeError(f"{name} must be a function, got {quote(function)}")
    mus, rhos = _read_list("mu", mu), _read_list("rho", rho)
    margins: list[float] | list[None] = [None] if margin is None else _read_list("margin", margin)
    left_out = _read_pairs(without)
    all_pairs = list(product(mus, rhos))
    unknown = [pair for pair in left_out if pair not in all_pairs]
    if unknown and without is not LEFT_OUT:
        raise InvalidValueError(
            f"without lists pairs (mu, rho) that are not tried: {quote(unknown)}; mu={quote(mus)}, rho={quote(rhos)}"
        )
    pairs = [pair for pair in all_pairs if pair not in left_out]
    if not pairs or not margins:
        raise InvalidValueError(
            f"nothing to try: mu={quote(mus)}, rho={quote(rhos)}, without={quote(left_out)}, margin={quote(margin)}; "
            "pass without=() to leave out no pair, and margin=None if there is no margin"
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


def _read_list(name: str, values: Any) -> list[float]:
    """Return the numbers to try; raise an error if they are not a list of different numbers in range."""
    is_list = isinstance(values, Iterable) and not isinstance(values, (str, Mapping))
    numbers: list[Any] = list(values) if is_list else [None]
    if not all(isinstance(number, Real) and not isinstance(number, bool) for number in numbers):
        raise InvalidTypeError(f"{name} is a list of numbers to try, such as [1.0, 2.0]; got {quote(values)}")
    lowest, excluded = LOWEST[name]
    for number in numbers:
        if not lowest <= number < math.inf or (excluded and number == lowest):
            bound = f"above {lowest:g}" if excluded else f"at least {lowest:g}"
            raise InvalidValueError(f"{name} must be {bound} and finite, got {number}")
    if len(set(numbers)) < len(numbers):
        raise InvalidValueError(f"{name} lists a number twice, which would be trained twice: {quote(numbers)}")
    return numbers


def _read_pairs(without: Any) -> list[tuple[float, ...]]:
    """Return the pairs of mu and rho to leave out; raise an error if they are not pairs."""
    try:
        pairs = [tuple(pair) for pair in without]
    except TypeError:
        pairs = [()]
    if not all(len(pair) == 2 for pair in pairs):
        raise InvalidTypeError(
            f"without is a list of pairs (mu, rho), such as [(0.2, 2.0)], or () for none; got {quote(without)}"
        )
    return pairs


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
