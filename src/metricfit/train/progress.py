"""A progress bar with the loss, the monitored value, the best value so far and the remaining time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from metricfit.train.callbacks import Callback, Plan
from metricfit.train.history import Row


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
        self.console = console or Console(stderr=True)
        self.bar: Progress | None = None

    def started(self, plan: Plan, step: int) -> None:
        """Show the bar."""
        self.plan, self.total = plan, sum(epochs for _, epochs in plan.stages)
        self.offsets, offset = {}, 0
        for name, epochs in plan.stages:
            self.offsets[name] = offset
            offset += epochs
        self.last_tenth = -1
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}", markup=False),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.task = self.bar.add_task("training", total=self.total, numbers="")
            self.bar.start()

    def stepped(self, step: int, losses: Tensor) -> None:
        """Do nothing, because reading a loss at every step would stall a GPU."""

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
    """Return the mean loss, monitored value and best value of the rows in one line."""
    parts = [f"loss {_mean(rows, 'train_loss'):.4g}"]
    if "monitor" in rows[0]:
        name = rows[0]["monitor"]
        parts.append(f"{name} {_mean(rows, 'value'):.4g}, best {_mean(rows, 'best'):.4g}")
    if len(rows) > 1:
        parts.append(f"{len(rows)} members")
    return ", ".join(parts)


def _mean(rows: Sequence[Row], name: str) -> float:
    values = [row[name] for row in rows if not math.isnan(row[name])]
    return sum(values) / len(values) if values else math.nan
