"""The batch class, and batches from the items of a DataLoader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote

Numbers = TypeVar("Numbers", Tensor, list[int])

#: Maximum number of samples, and of numbers in their inputs, in one forward pass of an evaluation.
SAMPLES_AT_ONCE, NUMBERS_AT_ONCE = 8192, 2**22


@dataclass(frozen=True)
class Batch:
    """Inputs and labels of a batch, with weights, sample numbers and groups where they are known."""

    x: Any
    y: Tensor
    weight: Tensor | None = None
    index: Tensor | None = None
    group: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def without_samples(self) -> Batch:
        """Return the inputs without samples, for a process that must run the model because the others wait for it."""
        optional = (None if part is None else part[:0] for part in (self.weight, self.index, self.group))
        return Batch(self.x, self.y[:0], *optional)


def make_batch(item: Any, device: torch.device, dtype: torch.dtype | None = None) -> Batch:
    """Make a batch from an item of a DataLoader.

    Args:
        item: ``(x, y)``, ``(x, y, weight)``, or a dictionary with "x" and "y" and optionally "weight" and "group".
        device: The device of the batch.
        dtype: The type of the inputs, if they are one floating-point tensor.

    Returns:
        The batch on the device.
    """
    if isinstance(item, dict):
        if not {"x", "y"} <= item.keys():
            raise InvalidValueError(f"a batch that is a dictionary needs 'x' and 'y', got {sorted(map(str, item))}")
        parts = [item["x"], item["y"], item.get("weight"), item.get("group")]
    elif isinstance(item, (tuple, list)) and len(item) in (2, 3):
        parts = [*item, None, None][:4]
    else:
        raise InvalidTypeError(f"a batch must be (x, y) or (x, y, weight), got {type(item).__name__}")
    x, y, weight, group = (_move(part, device) for part in parts)
    if dtype is not None and isinstance(x, Tensor) and x.is_floating_point():
        x = x.to(dtype)
    return Batch(x, y, weight, group=group)


def _move(part: Any, device: torch.device) -> Any:
    if isinstance(part, Tensor):
        return part.to(device, non_blocking=True)
    if isinstance(part, (tuple, list)):
        return type(part)(_move(entry, device) for entry in part)
    if isinstance(part, dict):
        return {key: _move(entry, device) for key, entry in part.items()}
    return part


def count_samples_at_once(sample: Any, at_least: int = 1) -> int:
    """Return how many samples are evaluated in one forward pass: fewer if they are large, such as images.

    Args:
        sample: The inputs of one sample: a tensor, or tuples, lists and dictionaries of them.
        at_least: A number that is known to fit into memory.

    Example:
        >>> count_samples_at_once(torch.zeros(10)), count_samples_at_once(torch.zeros(3, 512, 512))
        (8192, 5)
    """
    return max(at_least, min(SAMPLES_AT_ONCE, NUMBERS_AT_ONCE // max(1, _count_numbers(sample))))


def _count_numbers(part: Any) -> int:
    if isinstance(part, Tensor):
        return part.numel()
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, (tuple, list)) else ()
    return sum(map(_count_numbers, parts))


def take_share(batch: Numbers, rank: int, ranks: int) -> Numbers:
    """Return the samples of a batch for one rank: every n-th, because a stratified batch is sorted by class."""
    return batch[rank::ranks]


def refuse_outputs(outputs: Any) -> InvalidTypeError:
    """Return the error for a model's outputs that are not one tensor, with a wrapper that picks the logits.

    Example:
        >>> str(refuse_outputs({"out": torch.zeros(2)})).partition("; ")[0]
        "the model must return a tensor of logits, got a dict with 'out'"
    """
    kind, key = type(outputs).__name__, None
    if isinstance(outputs, Mapping) and outputs:
        tensors = [name for name, part in outputs.items() if isinstance(part, Tensor)]
        key = "logits" if "logits" in tensors else next(iter(tensors or outputs))
        kind = f"a {kind} with {', '.join(map(quote, outputs))}"
    elif isinstance(outputs, (tuple, list)) and outputs:
        kind, key = f"a {kind} of {len(outputs)}", 0
    pick = "" if key is None else f": return self.model(x)[{key!r}]"
    return InvalidTypeError(
        f"the model must return a tensor of logits, got {kind}; wrap it in a module whose forward returns the "
        f"logits{pick}"
    )
