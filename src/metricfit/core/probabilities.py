"""Probabilities as input: checked, and turned into the logits that have them."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.tasks import read_task
from metricfit.core.tensor_numerics import counting_dtype, exact_dtype
from metricfit.core.types import Task
from metricfit.core.validation import COARSE_SUM, EXACT_SUM, check_tensors, extremes, is_false, looks_at_values
from metricfit.errors import InvalidValueError


def logits_of(
    probabilities: Tensor,
    target: Tensor,
    task: Task | None = None,
    ignore_index: int | None = None,
    validate: bool | None = None,
    *,
    exact: bool = False,
) -> Tensor:
    """Return logits with these probabilities: their logarithm for exclusive classes, else their log-odds.

    Probabilities of 0 and 1 get finite logits, with gradient 0.

    Args:
        probabilities: Probabilities of the shape that logits have.
        target: The labels, from which the task follows where it is not given.
        task: "binary", "multiclass" or "multilabel"; needed only if the shapes allow two of them.
        ignore_index: Samples with this label are not checked.
        validate: Whether to check the values; by default in eager mode on the CPU.
        exact: Whether hard decisions follow. The logits are then in float64, and a probability that equals a threshold
            reaches it.

    Returns:
        Logits of the same shape, at least in float32.

    Raises:
        InvalidValueError: Values are outside of 0 to 1, or probabilities of exclusive classes do not sum to 1.

    Example:
        >>> logits_of(torch.tensor([0.5, 0.75]), torch.tensor([0, 1]))
        tensor([0.0000, 1.0986])
    """
    check_tensors(probabilities, target, None)
    exclusive = read_task(probabilities, target, task) == "multiclass"
    if looks_at_values(probabilities, validate):
        _check(probabilities, target, exclusive, ignore_index)
    dtype = exact_dtype(probabilities.device) if exact else counting_dtype(probabilities.dtype)
    p = probabilities.to(dtype).clamp(min=torch.finfo(dtype).tiny)
    if exclusive:
        return p.log()
    logits = p.log() - torch.log1p(-p.clamp(max=1 - torch.finfo(dtype).eps / 2))
    if not exact:
        return logits
    rounded_down = torch.sigmoid(logits) < p
    return torch.where(rounded_down, logits + 4 * torch.finfo(dtype).eps * (1 + logits.abs()), logits)


def _check(probabilities: Tensor, target: Tensor, exclusive: bool, ignore_index: int | None) -> None:
    p = probabilities.detach()
    if ignore_index is not None:
        if exclusive and not target.is_floating_point():
            p = p.masked_fill((target == ignore_index).unsqueeze(1), 1 / p.shape[1])
        elif not exclusive:
            p = p.masked_fill((target == ignore_index).reshape(p.shape), 0.5)
    limits = extremes(p) if p.numel() else None
    if limits is not None and not (limits[0] >= 0 and limits[1] <= 1):
        wrong = ~((p >= 0) & (p <= 1))
        first = int(wrong.reshape(-1).int().argmax())
        raise InvalidValueError(
            f"from_probabilities=True needs values from 0 to 1, but {int(wrong.sum())} of {p.numel()} are not; the "
            f"first is {float(p.reshape(-1)[first]):.4g} at position {first}. If these are logits, leave "
            "from_probabilities out"
        )
    if not exclusive:
        return
    sums = p.to(counting_dtype(p.dtype)).sum(1)
    wrong = (sums - 1).abs() > (COARSE_SUM if p.dtype in (torch.float16, torch.bfloat16) else EXACT_SUM)
    if not is_false(~wrong.any()):
        return
    raise InvalidValueError(
        f"probabilities of exclusive classes sum to 1, but for {int(wrong.sum())} of {wrong.numel()} samples they do "
        f"not; the first sum is {float(sums[wrong][0]):.4g}. Apply a softmax over axis 1, or for classes that may "
        "overlap say task='multilabel'"
    )
