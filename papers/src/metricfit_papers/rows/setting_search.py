"""The search for mu, rho and the margin of a constrained training, as in Appendix E of Sangalli et al. 2021."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

from metricfit.errors import InvalidValueError

Outcome = TypeVar("Outcome")


def search(
    train: Callable[..., Outcome],
    value: Callable[[Outcome], float],
    *,
    mu: Sequence[float],
    rho: Sequence[float],
    margin: Sequence[float],
    without: Sequence[Sequence[float]] = (),
) -> Outcome:
    """Search mu and rho in all combinations at the first margin, then the margin at the best of them.

    With the lists of the paper this is seven trainings, of fifteen in the whole grid. A tie is decided in favour of the
    setting that was tried first. Only the best outcome is kept in memory.

    Args:
        train: Called as ``train(mu=..., rho=..., margin=...)``, from the same start each time.
        value: Reads the validation value, for which higher is better, from what ``train`` returned.
        mu: The penalty factors at the start to try.
        rho: The factors by which mu grows to try.
        margin: The margins to try.
        without: Pairs of mu and rho to leave out.

    Returns:
        What ``train`` returned for the best setting.

    Raises:
        InvalidValueError: Nothing is left to try, or a pair of ``without`` is not in the lists.

    Example:
        >>> search(dict, lambda setting: -abs(setting["rho"] - 3), mu=[0.2], rho=[2, 3], margin=[1.0, 1.5])
        {'mu': 0.2, 'rho': 3, 'margin': 1.0}
    """
    left_out = [tuple(pair) for pair in without]
    grid = list(product(mu, rho))
    unknown = [pair for pair in left_out if pair not in grid]
    pairs = [pair for pair in grid if pair not in left_out]
    if unknown or not pairs or not margin:
        raise InvalidValueError(
            f"nothing to try, or pairs left out that are not tried: mu={list(mu)}, rho={list(rho)}, "
            f"margin={list(margin)}, without={left_out}"
        )
    best: list[tuple[float, dict[str, float], Outcome]] = []

    def attempt(setting: dict[str, float]) -> None:
        outcome = train(**setting)
        measured = value(outcome)
        if not best or measured > best[0][0]:
            best[:] = [(measured, setting, outcome)]

    for factor, growth in pairs:
        attempt({"mu": factor, "rho": growth, "margin": margin[0]})
    chosen = best[0][1]
    for other in margin[1:]:
        attempt(chosen | {"margin": other})
    return best[0][2]
