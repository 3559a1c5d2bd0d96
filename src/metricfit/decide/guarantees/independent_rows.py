"""Rows that are independent draws and count once each, as the exact bounds take for granted.

Rows in groups, such as the visits of a patient, are not independent. One row of each group, drawn at random, is: groups
are drawn from a population of groups. So what is certified on these rows holds for a row that is drawn at random from a
new group. Rates within one class, such as recall, take one row of each class from each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.decide.guarantees.bounds import joined
from metricfit.errors import InvalidValueError
from metricfit.metrics.requirements import Requirement

#: Rates within one class, which stay what they are where only the class shares change: of two classes, and of several,
#: where the rows that are not of a class are a mixture of the others.
WITHIN_ONE_OF_TWO, WITHIN_ONE_OF_SEVERAL = ("recall", "fnr", "specificity", "fpr"), ("recall", "fnr")


#: Makes the draw of rows differ from others with the same seed.
DRAW = 5_772


def draw_one_per_group(
    groups: NDArray[Any] | None, y: Tensor, requirements: Sequence[Requirement], seed: int
) -> Tensor:
    """Draw the rows on which requirements are tested: one of each group, or all rows without groups.

    Args:
        groups: The group of each row, or None.
        y: Class numbers ``(n,)``.
        requirements: The requirements. If all are rates within one class, one row of each class is drawn from a group.
        seed: Seed of the draw.

    Returns:
        One boolean per row.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> groups, y = np.array([1, 1, 1, 2]), torch.tensor([0, 0, 1, 1])
        >>> [
        ...     int(draw_one_per_group(groups, y, [parse_requirement(text)], 0).sum())
        ...     for text in ("recall >= 0.5", "precision >= 0.5")
        ... ]
        [3, 2]
    """
    if groups is None:
        return torch.ones(len(y), dtype=torch.bool)
    within = WITHIN_ONE_OF_TWO if int(y.max()) < 2 else WITHIN_ONE_OF_SEVERAL
    unit = np.unique(groups, return_inverse=True)[1].reshape(-1)
    if all(requirement.metric.base_name in within for requirement in requirements):
        unit = unit * (int(y.max()) + 1) + y.numpy()
    order = np.random.default_rng((seed, DRAW)).permutation(len(y))
    drawn = torch.zeros(len(y), dtype=torch.bool)
    drawn[torch.from_numpy(order[np.unique(unit[order], return_index=True)[1]])] = True
    return drawn


def draw_learning_rows(groups: NDArray[Any] | None, rows: int, share: float, seed: Sequence[int]) -> Tensor:
    """Draw rows to choose a path on, independent of the others: of rows in groups, whole groups.

    Args:
        groups: The group of each row, or None.
        rows: Number of rows.
        share: The share of the rows, or of the groups.
        seed: Seed of the draw.

    Returns:
        One boolean per row.
    """
    unit = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units = int(unit.max()) + 1
    drawn = np.random.default_rng(seed).permutation(units)[: round(share * units)]
    is_drawn = np.zeros(units, dtype=bool)
    is_drawn[drawn] = True
    return torch.from_numpy(is_drawn[unit])


def check_exact(requirements: Sequence[Requirement], y: Tensor, weight: Tensor | None) -> None:
    """Raise an error if weights void the exact bounds.

    Weights that are the same within each class leave the rates within a class as they are, so that these may be
    required still (``rethreshold(prevalence=...)``).

    Args:
        requirements: The requirements.
        y: Class numbers ``(n,)``; for several labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.

    Raises:
        InvalidValueError: The rows have weights that void the exact bounds.

    Example:
        >>> import torch
        >>> from metricfit.metrics import parse_requirement
        >>> y, weight = torch.tensor([0, 0, 1]), torch.tensor([1.0, 1.0, 3.0])
        >>> check_exact([parse_requirement("recall >= 0.9")], y, weight)
    """
    if weight is None or _is_constant(weight):
        return
    if y.dim() == 1 and all(_is_constant(weight[y == label]) for label in set(y.tolist())):
        within = WITHIN_ONE_OF_TWO if int(y.max()) < 2 else WITHIN_ONE_OF_SEVERAL
        others = [requirement for requirement in requirements if requirement.metric.base_name not in within]
        if not others:
            return
        raise InvalidValueError(
            f"{joined(others)} depends on the class shares, and has no exact bound where these are not those of the "
            f"rows (prevalence=, or weights of classes): require {', '.join(within[:-1])} or {within[-1]}, or leave "
            "the prevalence or the confidence out"
        )
    raise InvalidValueError(
        "weights void the exact bounds of confidence=, because weighted counts are not binomial: pass rows that count "
        "once each, or leave confidence out"
    )


def _is_constant(weight: Tensor) -> bool:
    return len(weight) == 0 or float(weight.max()) <= float(weight.min()) * (1 + 1e-9)
