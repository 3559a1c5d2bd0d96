"""Whether rows are independent draws that count once each, as the exact bounds take for granted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from metricfit.decide.guarantees.bounds import joined
from metricfit.errors import InvalidValueError
from metricfit.metrics.requirements import Requirement

#: Rates within one class, which stay what they are where only the class shares change: of two classes, and of several,
#: where the rows that are not of a class are a mixture of the others.
WITHIN_ONE_OF_TWO, WITHIN_ONE_OF_SEVERAL = ("recall", "fnr", "specificity", "fpr"), ("recall", "fnr")


def check_exact(
    requirements: Sequence[Requirement], y: Tensor, weight: Tensor | None, groups: NDArray[Any] | None
) -> None:
    """Raise an error if the rows are not independent draws that count once each.

    Weights that are the same within each class leave the rates within a class as they are, so that these may be
    required still (``rethreshold(prevalence=...)``).

    Args:
        requirements: The requirements.
        y: Class numbers ``(n,)``; for several labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        groups: The group of each row, or None.

    Raises:
        InvalidValueError: The rows have groups or weights that void the exact bounds.

    Example:
        >>> import torch
        >>> from metricfit.metrics import parse_requirement
        >>> y, weight = torch.tensor([0, 0, 1]), torch.tensor([1.0, 1.0, 3.0])
        >>> check_exact([parse_requirement("recall >= 0.9")], y, weight, None)
    """
    if groups is not None:
        raise InvalidValueError(
            "rows in groups are not independent, which voids the exact bounds of confidence=: pass one row per group "
            "and no groups, or leave confidence out"
        )
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
