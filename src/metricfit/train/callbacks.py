"""Callbacks: what others may do while a model trains."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from metricfit._extras import explain_missing
from metricfit.errors import InvalidTypeError, quote
from metricfit.train.history import Row

Outputs = Callable[[Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class Plan:
    """What lies ahead.

    Attributes:
        stages: the name and the number of epochs of each stage.
        members: the number of models that are trained side by side.
        steps_per_epoch: the number of optimiser steps per epoch; of a DataLoader, the number that it announces, which
            may differ from the number that it gives; None if it announces none.
    """

    stages: tuple[tuple[str, int], ...]
    members: int
    steps_per_epoch: int | None


class Callback:
    """Override what you need. Callbacks see, and do not change, what happens; they are called on rank 0 alone."""

    def started(self, plan: Plan, step: int) -> None:
        """Training begins, or goes on from a checkpoint at this step."""

    def stepped(self, step: int, losses: Tensor) -> None:
        """An optimiser step was made; the active members' losses, on their device."""

    def improved(self, members: Sequence[int], outputs: Outputs) -> None:
        """These members are better than ever on the validation set, and their weights were kept.

        ``outputs`` takes inputs, a tensor for each of them, and gives their logits, without gradient and dropout.
        """

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """An epoch is over; the history's new rows, one for each active member."""

    def finished(self) -> None:
        """Training is over, or an error has ended it."""


class TensorBoard(Callback):
    """Writes every number of the history for TensorBoard; needs the package ``tensorboard``."""

    def __init__(self, folder: str | Path) -> None:
        with explain_missing("metricfit.train.TensorBoard", ["tensorboard"], "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder))

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """One point a number, at the step reached."""
        for row in rows:
            member = f"member {row['member']}/" if "member" in row else ""
            for name, value in row.items():
                if isinstance(value, float):
                    self.writer.add_scalar(member + name, value, row["step"])

    def finished(self) -> None:
        """Write out what is left."""
        self.writer.close()


def callbacks_shown(callbacks: Sequence[Callback], progress: bool | None) -> list[Callback]:
    """The user's callbacks, and a progress bar where one is wanted."""
    for each in callbacks:
        if not isinstance(each, Callback):
            raise InvalidTypeError(
                f"a callback is an object of a class made from metricfit.train.Callback, got {quote(each)}"
            )
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        return list(callbacks)
    from metricfit.train.progress import ProgressBar

    return [*callbacks, ProgressBar()]
