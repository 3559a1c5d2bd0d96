"""Tensors of several members along a first axis: named tensors, and batches padded to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from metricfit.train.data.batches import Batch

Stack = dict[str, Tensor]


def select_rows(stack: Stack, rows: int | Sequence[int] | Tensor) -> Stack:
    """Select members; a single number gives views of that member's tensors, without the axis of members."""
    return {name: tensor[rows] for name, tensor in stack.items()}


def unstack(stack: Stack) -> list[Stack]:
    """Return views of each member's tensors, whose gradients are stacked again in one operation.

    Example:
        >>> unstack({"weight": torch.tensor([[1.0], [2.0]])})
        [{'weight': tensor([1.])}, {'weight': tensor([2.])}]
    """
    rows = zip(*(tensor.unbind() for tensor in stack.values()), strict=True)
    return [dict(zip(stack, row, strict=True)) for row in rows]


def clone_stack(stack: Stack) -> Stack:
    """Copy a stack, without gradients."""
    return {name: tensor.detach().clone() for name, tensor in stack.items()}


def move_stack(stack: Stack, device: torch.device) -> Stack:
    """Move a stack to a device."""
    return {name: tensor.to(device) for name, tensor in stack.items()}


@dataclass(frozen=True)
class StackedBatch(Batch):
    """The batches of several members, padded to the longest; ``lengths`` are their lengths without the padding."""

    lengths: tuple[int, ...] = ()

    @property
    def equal_lengths(self) -> bool:
        """Whether all members' batches have the same length."""
        return min(self.lengths) == max(self.lengths)

    @property
    def is_sample(self) -> Tensor:
        """A mask that is False where the batch is padded."""
        device = self.y.device
        return torch.arange(self.y.shape[1], device=device) < torch.tensor(self.lengths, device=device).unsqueeze(1)


def pad_positions(positions: Sequence[Tensor]) -> tuple[Tensor, tuple[int, ...]]:
    """Pad rows of sample positions with position 0 to the length of the longest.

    Args:
        positions: For each member, positions among its samples.

    Returns:
        The padded rows, and their lengths before.

    Example:
        >>> pad_positions([torch.tensor([2, 1]), torch.tensor([1])])
        (tensor([[2, 1],
                [1, 0]]), (2, 1))
    """
    return pad_sequence(list(positions), batch_first=True), tuple(map(len, positions))
