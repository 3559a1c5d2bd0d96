"""From what a user passes to what the kernels take: shapes settled, types checked, labels in range.

Checks are made here, once, and say what to do. Shapes and types are always checked. Values (labels out of range, NaN)
are looked at only in eager mode on the CPU or on request: looking at a value stalls a CUDA stream, and cannot be done
under ``torch.compile`` or ``vmap``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metricfit.core.numerics import counting_dtype

TASKS = ("binary",)


class Batch(NamedTuple):
    """Logits, target and weight of one shape ``(n,)`` and one floating type; no weight means all ones."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None


def canonical(
    logits: Tensor,
    target: Tensor,
    *,
    task: str | None = None,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    per_image: bool = False,
    validate: bool | None = None,
) -> Batch:
    """Settle shapes and types of binary logits ``(n,)`` or ``(n, 1)`` with a target of 0/1 or probabilities."""
    _check_task(task)
    _check_tensors(logits, target, weight)
    n = _binary_length(logits, "logits", target)
    if _binary_length(target, "target", logits) != n:
        raise ValueError(f"logits {_shape(logits)} and target {_shape(target)} differ in length")
    if per_image:
        raise ValueError(f"per_image=True needs images, logits (n, c, h, w); these are {_shape(logits)}")
    x = logits.reshape(n).to(counting_dtype(logits.dtype))
    y = target.reshape(n)
    w = None if weight is None else _flat_weight(weight, logits, n)
    if ignore_index is not None:
        kept = y != ignore_index
        x, y = torch.where(kept, x, 0.0), torch.where(kept, y, 0)
        w = kept.to(x.dtype) if w is None else torch.where(kept, w, 0.0)
    if looks_at_values(x, validate):
        _check_labels(y)
        if w is not None:
            _check_weight(w)
    return Batch(x, y.to(x.dtype), None if w is None else w.to(x.dtype))


def looks_at_values(logits: Tensor, validate: bool | None) -> bool:
    """Whether label range and NaN are to be checked here."""
    if torch.compiler.is_compiling():
        return False
    return logits.device.type == "cpu" if validate is None else validate


def check_finite_counts(counts: Tensor, batch: Batch) -> None:
    """Explain counts that are not finite: NaN logits, for labels and weights have been checked."""
    if not is_false(counts.isfinite().all()):
        return
    bad = batch.logits.isnan()
    if is_false(bad.any()):
        raise ValueError(
            "the soft counts are not finite although logits, labels and weights are: do the weights or the "
            "step overflow?"
        )
    raise_nan_logits(batch.logits)


def check_nan_logits(logits: Tensor) -> None:
    """Refuse NaN logits, which would otherwise be counted as negative decisions."""
    if is_false(~logits.isnan().any()):
        raise_nan_logits(logits)


def raise_nan_logits(logits: Tensor) -> None:
    """Say how many logits are NaN, where the first is, and the usual causes."""
    bad = logits.detach().isnan().reshape(-1)
    first = int(bad.int().argmax())
    raise ValueError(
        f"{int(bad.sum())} of {bad.numel()} logits are NaN, the first at position {first}; the model has diverged "
        "or its input holds NaN: lower the learning rate, clip gradients, or look for NaN in the features"
    )


def is_false(flag: Tensor) -> bool:
    """Whether a 0-d flag is known to be false; under vmap a value cannot be looked at, and nothing is known."""
    try:
        return not bool(flag)
    except RuntimeError:
        return False


def _check_task(task: str | None) -> None:
    if task is not None and task not in TASKS:
        raise ValueError(f"task must be None or one of {', '.join(map(repr, TASKS))}, got {task!r}")


def _check_tensors(logits: Tensor, target: Tensor, weight: Tensor | None) -> None:
    named = {"logits": logits, "target": target} | ({} if weight is None else {"weight": weight})
    for name, given in named.items():
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(given).__name__}; use torch.as_tensor({name})")
        if given.device != logits.device:
            raise ValueError(
                f"logits are on {logits.device} and {name} on {given.device}; use {name}.to(logits.device)"
            )
    if not logits.is_floating_point():
        raise TypeError(
            f"logits must be floating point, got {logits.dtype}; pass the model's raw outputs, not labels or decisions"
        )
    if target.is_complex() or (weight is not None and weight.is_complex()):
        raise TypeError("target and weight must be real")


def _binary_length(given: Tensor, name: str, other: Tensor) -> int:
    if given.dim() == 1 or (given.dim() == 2 and given.shape[1] == 1):
        return given.shape[0]
    other_name = "target" if name == "logits" else "logits"
    hint = "; add a batch axis with unsqueeze(0)" if given.dim() == 0 else ""
    raise ValueError(
        f"binary {name} must have shape (n,) or (n, 1), got {_shape(given)} with {other_name} {_shape(other)}{hint}"
    )


def _flat_weight(weight: Tensor, logits: Tensor, n: int) -> Tensor:
    if weight.numel() != n or weight.dim() not in (1, 2):
        raise ValueError(f"weight needs one number a sample, shape ({n},), got {_shape(weight)}")
    return weight.reshape(n)


def _check_labels(target: Tensor) -> None:
    if target.dtype == torch.bool or target.numel() == 0:
        return
    low, high = torch.aminmax(target.detach())
    if not is_false((low >= 0) & (high <= 1)):
        return
    if target.is_floating_point() and bool(target.isnan().any()):
        raise ValueError(f"target holds NaN in {int(target.isnan().sum())} of {target.numel()} places; drop those rows")
    hint = "; map labels -1/1 with (target + 1) / 2" if (float(low), float(high)) == (-1.0, 1.0) else ""
    if (float(low), float(high)) == (1.0, 2.0):
        hint = "; map labels 1/2 with target - 1"
    raise ValueError(
        f"binary labels must be 0 or 1 (or probabilities between), got values from {float(low):g} to {float(high):g}"
        f"{hint}; ignore_index= leaves out one value"
    )


def _check_weight(weight: Tensor) -> None:
    if weight.numel() == 0:
        return
    low, high = torch.aminmax(weight.detach())
    if is_false((low >= 0) & (high < float("inf"))):
        raise ValueError(f"weights must be finite and at least 0, got values from {float(low):g} to {float(high):g}")


def _shape(given: Tensor) -> str:
    return str(tuple(given.shape))
