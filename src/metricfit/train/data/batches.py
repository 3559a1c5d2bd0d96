"""A batch, read from what a DataLoader gives, and the share of one that a process takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError

Numbers = TypeVar("Numbers", Tensor, list[int])

#: Maximum number of samples in one forward pass of an evaluation.
SAMPLES_AT_ONCE = 8192


@dataclass(frozen=True)
class Batch:
    """Inputs, target, weights and groups where there are any, and the samples' numbers where they are known."""

    x: Any
    y: Tensor
    weight: Tensor | None = None
    index: Tensor | None = None
    group: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def without_samples(self) -> Batch:
        """Inputs for a process that has none of its own to run the model on, since the others wait for it."""
        rest = (None if part is None else part[:0] for part in (self.weight, self.index, self.group))
        return Batch(self.x, self.y[:0], *rest)


def batch_of(given: Any, device: torch.device, dtype: torch.dtype | None = None) -> Batch:
    """What a DataLoader gives, on the device: ``(x, y)``, ``(x, y, weight)`` or a dictionary.

    The keys of a dictionary are "x" and "y", and optionally "weight" and "group".

    Inputs that are one tensor of fractions take the type, if one is given; nested ones are left as they are.
    """
    if isinstance(given, dict):
        if not {"x", "y"} <= given.keys():
            raise InvalidValueError(f"a batch that is a dictionary needs 'x' and 'y', got {sorted(map(str, given))}")
        parts = [given["x"], given["y"], given.get("weight"), given.get("group")]
    elif isinstance(given, (tuple, list)) and len(given) in (2, 3):
        parts = [*given, None, None][:4]
    else:
        raise InvalidTypeError(f"a batch must be (x, y) or (x, y, weight), got {type(given).__name__}")
    x, y, weight, group = (_moved(part, device) for part in parts)
    if dtype is not None and isinstance(x, Tensor) and x.is_floating_point():
        x = x.to(dtype)
    return Batch(x, y, weight, group=group)


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor):
        return part.to(device, non_blocking=True)
    if isinstance(part, (tuple, list)):
        return type(part)(_moved(each, device) for each in part)
    if isinstance(part, dict):
        return {key: _moved(each, device) for key, each in part.items()}
    return part


def share_of(batch: Numbers, rank: int, ranks: int) -> Numbers:
    """The samples of a batch that a rank takes: every so many-th, for a stratified batch is sorted by class."""
    return batch[rank::ranks]
