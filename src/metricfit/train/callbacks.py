"""Callbacks: objects that are called while a model trains."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from metricfit._extras import explain_missing
from metricfit.errors import InvalidTypeError, quote
from metricfit.train.result import Row

if TYPE_CHECKING:
    from rich.console import Console

_TEXTS = ("{task.description}", "{task.fields[numbers]}")


@dataclass(frozen=True)
class Plan:
    """The planned training, which callbacks receive at the start.

    Attributes:
        stages: The name and the maximum number of epochs of each stage.
        members: The number of models that are trained side by side.
        steps_per_epoch: The number of optimiser steps per epoch. For a DataLoader, the number that it announces, which
            may differ from the number that it gives; None if it announces none.
        outputs: Called with the number of a member and inputs: the member's logits, without gradient and dropout, in
            ``epoch_ended`` by the weights that were validated.

    Example:
        >>> Plan(stages=(("bce", 10), ("metric", 5)), members=1, steps_per_epoch=20).stages[0]
        ('bce', 10)
    """

    stages: tuple[tuple[str, int], ...]
    members: int
    steps_per_epoch: int | None
    outputs: Any = field(default=None, repr=False, compare=False)


class Callback:
    """Base class of callbacks: override the methods that you need.

    Callbacks observe training and do not change it, except that ``stop()`` ends it. They are called on rank 0 only.

    Example:
        >>> class PrintLoss(Callback):
        ...     def epoch_ended(self, rows):
        ...         print(rows[0]["train_loss"])
        >>> PrintLoss().epoch_ended([{"epoch": 0, "train_loss": 0.5}])
        0.5
    """

    stops = False  # whether training ends after the epoch

    def stop(self) -> None:
        """End training after the present epoch; later stages are left out, and ``fit`` returns as usual.

        Example:
            >>> class StopWhenGood(Callback):
            ...     def epoch_ended(self, rows):
            ...         if rows[0]["value"] > 0.9:
            ...             self.stop()
            >>> callback = StopWhenGood()
            >>> callback.epoch_ended([{"epoch": 3, "value": 0.95}])
            >>> callback.stops
            True
        """
        self.stops = True

    def started(self, plan: Plan, step: int) -> None:
        """Training starts, or continues from a checkpoint.

        Args:
            plan: The planned training.
            step: The number of optimiser steps that were made before.
        """

    def stepped(self, step: int, losses: Tensor) -> None:
        """An optimiser step was made.

        Args:
            step: The number of optimiser steps so far.
            losses: The losses of the active members, on their device.
        """

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """An epoch has ended.

        Args:
            rows: The new rows of the history, one per active member. The history and the checkpoints keep numbers
                that a callback adds to them.
        """

    def finished(self) -> None:
        """Training has ended, normally or by an error."""


class TensorBoard(Callback):
    """Writes the numbers of the history for TensorBoard; thresholds per label stay in the history alone.

    Args:
        folder: The folder of the log files.

    Raises:
        ModuleNotFoundError: The package ``tensorboard`` is not installed.

    Example:
        >>> import tempfile
        >>> TensorBoard(tempfile.mkdtemp()).finished()  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        with explain_missing("metricfit.train.TensorBoard", ["tensorboard"], "tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder))

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """Write one point per number, at the current step."""
        for row in rows:
            member = f"member {row['member']}/" if "member" in row else ""
            for name, value in row.items():
                if isinstance(value, float):
                    self.writer.add_scalar(member + name, value, row["step"])

    def finished(self) -> None:
        """Write what is left, and close the files."""
        self.writer.close()


def add_progress_bar(callbacks: Sequence[Callback], progress: bool | None) -> list[Callback]:
    """Return the user's callbacks, and a progress bar if one is wanted."""
    if not isinstance(callbacks, Iterable):
        raise InvalidTypeError(f"callbacks is a list, such as [TensorBoard('logs')], got {quote(callbacks)}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise InvalidTypeError(
                f"a callback is an object of a class made from metricfit.train.Callback, got {quote(callback)}"
            )
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        return list(callbacks)
    return [*callbacks, ProgressBar()]


class ProgressBar(Callback):
    """One progress bar over the epochs of all stages, on standard error.

    If standard error is not a terminal, about ten lines are printed instead. Early stopping ends a stage before its
    last epoch; the bar then jumps.

    Args:
        console: The console of rich to write to; by default standard error.

    Example:
        >>> bar = ProgressBar()  # pass it as fit(..., callbacks=[bar])
    """

    def __init__(self, console: Console | None = None) -> None:
        with explain_missing("metricfit.train.ProgressBar", ["rich"], "metricfit[torch]"):
            from rich.console import Console

        self.console = console or Console(stderr=True)
        self.bar: Any = None

    def started(self, plan: Plan, step: int) -> None:
        """Show the bar."""
        epochs = [epochs for _, epochs in plan.stages]
        self.total = sum(epochs)
        self.offsets = {name: sum(epochs[:number]) for number, (name, _) in enumerate(plan.stages)}
        self.last_tenth = -1
        if self.console.is_terminal:
            from rich import progress

            description, numbers = (progress.TextColumn(text, markup=False) for text in _TEXTS)
            columns = (description, progress.BarColumn(), progress.MofNCompleteColumn(), numbers)
            times = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
            self.bar = progress.Progress(*columns, *times, console=self.console, transient=True)
            self.task = self.bar.add_task("training", total=self.total, numbers="")
            self.bar.start()

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """Advance the bar by one epoch."""
        first = rows[0]
        done = self.offsets[first["stage"]] + first["epoch"] + 1
        numbers = summary(rows)
        if self.bar is not None:
            self.bar.update(self.task, completed=done, description=first["stage"], numbers=numbers)
            return
        tenth = 10 * done // self.total
        if tenth > self.last_tenth:
            self.last_tenth = tenth
            line = f"{first['stage']}: epoch {done} of {self.total}, {numbers}"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def finished(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()


def summary(rows: Sequence[Row]) -> str:
    """Return the loss, the monitored value and the best value of the first row in one line."""
    first = rows[0]
    parts = [f"loss {first['train_loss']:.4g}"]
    if "monitor" in first:
        parts.append(f"{first['monitor']} {first['value']:.4g}, best {first['best']:.4g}")
    if len(rows) > 1:
        parts.append(f"the first of {len(rows)} members")
    return ", ".join(parts)
