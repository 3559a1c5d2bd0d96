"""What members have side by side, along a first axis: tensors by name, and batches filled up to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from metricfit.train.data.batches import Batch

Stack = dict[str, Tensor]


def rows_of(stack: Stack, rows: int | Sequence[int] | Tensor) -> Stack:
    """These members' part; of one member, without the axis of members, and in place where the stack is."""
    return {name: given[rows] for name, given in stack.items()}


def cloned(stack: Stack) -> Stack:
    """A copy without gradient."""
    return {name: given.detach().clone() for name, given in stack.items()}


def moved(stack: Stack, device: torch.device) -> Stack:
    """The same on a device."""
    return {name: given.to(device) for name, given in stack.items()}


@dataclass(frozen=True)
class Stacked(Batch):
    """The members' batches, an axis of members in front, filled up to the longest; ``lengths`` are their own."""

    lengths: tuple[int, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether all are of one length."""
        return min(self.lengths) == max(self.lengths)

    @property
    def real(self) -> Tensor:
        """Which samples are the members' own."""
        device = self.y.device
        return torch.arange(self.y.shape[1], device=device) < torch.tensor(self.lengths, device=device).unsqueeze(1)


def filled(positions: Sequence[Tensor]) -> tuple[Tensor, tuple[int, ...]]:
    """Rows of positions among a member's own samples, filled up with its first to the length of the longest, and how
    long they were.

    >>> filled([torch.tensor([2, 1]), torch.tensor([1])])
    (tensor([[2, 1],
            [1, 0]]), (2, 1))
    """
    return pad_sequence(list(positions), batch_first=True), tuple(len(each) for each in positions)
