"""Whether a confidence is possible for requirements and rows, before any scores are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from metricfit.decide.guarantees.bounds import check_confidence
from metricfit.decide.guarantees.certified import Guarantee, check_guarantee
from metricfit.decide.guarantees.certified_offsets import check_class_guarantee
from metricfit.decide.guarantees.independent_rows import check_exact, draw_one_per_group
from metricfit.decide.labels.label_requirements import LabelRequirements
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.requirements import Requirement


def checked_guarantee(
    requirements: Sequence[Requirement],
    y: Tensor,
    confidence: Any,
    *,
    weight: Tensor | None = None,
    groups: NDArray[Any] | None = None,
    seed: int = 0,
    out_of_fold: bool = False,
) -> Guarantee:
    """Check, before any scores are known, that a confidence is possible for these requirements and rows.

    Args:
        requirements: The requirements, on classes by their numbers (``class_requirements``).
        y: Class numbers ``(n,)``; for several labels 0 and 1 ``(n, c)``.
        confidence: The probability with which all must hold.
        weight: One weight per row, or None.
        groups: The group of each row, or None.
        seed: The seed of the guarantee.
        out_of_fold: Whether the scores will be out of fold.

    Returns:
        The guarantee to ask for.

    Raises:
        InfeasibleError: There are too few rows; the message says how many are needed.
        InvalidValueError: There is no requirement, one on a metric without an exact bound, or rows without one.
        InvalidTypeError: The confidence is no number.

    Example:
        >>> import torch
        >>> from metricfit.metrics import parse_requirement
        >>> checked_guarantee([parse_requirement("fpr <= 0.1")], torch.zeros(50), 0.95).confidence
        0.95
    """
    guarantee = Guarantee(check_confidence(confidence), seed, out_of_fold, groups)
    check_exact(requirements, y, weight)
    if not requirements:
        raise InvalidValueError("confidence= is about requirements: give subject_to=, or leave confidence out")
    try:
        _check_enough_rows(requirements, y, guarantee)
    except InfeasibleError as error:
        raise InfeasibleError(f"{error}{'' if groups is None else '. Of each group, one row counts'}") from None
    return guarantee


def _check_enough_rows(requirements: Sequence[Requirement], y: Tensor, guarantee: Guarantee) -> None:
    if y.dim() == 2:
        LabelRequirements(requirements, y.shape[1], guarantee).check_rows(y)
        return
    counted = y[draw_one_per_group(guarantee.groups, y, requirements, guarantee.seed)]
    if int(y.max()) > 1:
        check_class_guarantee(requirements, counted, guarantee.confidence)
    else:
        check_guarantee(requirements, counted, guarantee.confidence)
