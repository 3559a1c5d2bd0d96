"""The time that is left, estimated from the durations of what is finished."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from statistics import fmean


def estimate_cells_left(
    finished: Mapping[tuple[str, ...], float], remaining: Iterable[tuple[str, ...]], concurrent: int = 1
) -> float | None:
    """Estimate the seconds that the remaining cells will take.

    A cell takes as long as the finished cells of its kind did on average: those whose names differ in the last part
    alone, such as the folds of one method. The kinds that are not known yet are taken for the mean of those that are.

    Args:
        finished: The seconds of the finished cells, by name.
        remaining: The names of the cells that are not finished.
        concurrent: Number of cells that run at the same time.

    Returns:
        The seconds; None if no cell is finished.

    Example:
        >>> finished = {("t", "trees", "fold 0"): 2.0, ("t", "network", "fold 0"): 60.0}
        >>> estimate_cells_left(finished, [("t", "trees", "fold 1"), ("t", "network", "fold 1")])
        62.0
    """
    if not finished:
        return None
    kinds: dict[tuple[str, ...], list[float]] = {}
    for name, seconds in finished.items():
        kinds.setdefault(name[:-1], []).append(seconds)
    means = {kind: fmean(durations) for kind, durations in kinds.items()}
    others = fmean(means.values())
    busy_until = [0.0] * concurrent
    for name in remaining:  # each begins where a job ends first
        heapq.heapreplace(busy_until, busy_until[0] + means.get(name[:-1], others))
    return max(busy_until)


def format_seconds(seconds: float) -> str:
    """Write a duration for people.

    >>> format_seconds(7.2), format_seconds(80), format_seconds(7260)
    ('7 s', '1:20 min', '2:01 h')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
