"""Progress of ``fit`` and of cells: a bar with the time left on a terminal, lines where there is none."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from metricfit.cli.terminal import err, print_message, relay_messages
from metricfit.runs.cells import format_seconds
from metricfit.tabular.out_of_fold import FitProgress, FitWatcher

if TYPE_CHECKING:
    from metricfit.runs import Progress as CellProgress

BAR_WIDTH = 12
#: Seconds between two lines about rows where there is no terminal.
BETWEEN_LINES = 10.0
#: Characters of a name beside a bar, so that the time left is visible on 80 columns.
NAME_WIDTH = {"family": 18, "cell": 38}


class TimeLeft(ProgressColumn):
    """The estimated time that is left, counted down between two estimates.

    rich's own estimate looks at the last 30 seconds, in which there is often no step.
    """

    def render(self, task: Task) -> Text:
        """Write the time, or nothing before the first estimate."""
        seconds_left = task.fields.get("seconds_left")
        if seconds_left is None:
            return Text("")
        left = seconds_left - (time.monotonic() - task.fields["estimated_at"])
        return Text(f"about {format_seconds(left)} left" if left > -1 else "longer than estimated")


def _estimate(seconds_left: float | None) -> dict[str, Any]:
    """Return the fields of a task that `TimeLeft` shows."""
    return {"seconds_left": seconds_left, "estimated_at": time.monotonic()}


@contextmanager
def _bar(columns: Sequence[ProgressColumn], quiet: bool, level: int) -> Iterator[Progress | None]:
    """Draw a bar where there is a terminal, and print what the library logs; None if only warnings are wanted."""
    if quiet:
        with relay_messages(logging.WARNING):
            yield None
        return
    bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
    with bar, relay_messages(level):
        yield bar


@contextmanager
def row_progress(text: str, quiet: bool) -> Iterator[Callable[[int, float], None]]:
    """Show how many rows are done; where there is no terminal, print a line now and then."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with _bar(columns, quiet, logging.INFO) as bar:
        if bar is None:
            yield lambda rows, share: None
            return
        task = bar.add_task(f"{text} ...", total=1.0)
        printed = time.monotonic()

        def update(rows: int, share: float) -> None:
            nonlocal printed
            bar.update(task, completed=share, description=f"{text}: {rows:,} rows")
            if not err.is_terminal and time.monotonic() - printed > BETWEEN_LINES:
                printed = time.monotonic()
                print_message(f"{text}: {rows:,} rows, {share:.0%}.")

        yield update


@contextmanager
def progress_bar(text: str, quiet: bool) -> Iterator[Callable[[CellProgress], None] | None]:
    """Show a progress bar over cells with the time left, or print lines if there is no terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(BAR_WIDTH), MofNCompleteColumn(), TimeLeft())
    with _bar(columns, quiet, logging.WARNING) as progress:
        if progress is None:
            yield None
            return
        task = progress.add_task(text, total=None)

        def update(state: CellProgress) -> None:
            description = state.last or text
            if len(description) > NAME_WIDTH["cell"]:  # its end says which cell it is
                description = "…" + description[1 - NAME_WIDTH["cell"] :]
            estimate = _estimate(state.seconds_left)
            progress.update(task, total=state.total, completed=state.done, description=description, **estimate)
            if not err.is_terminal:
                left = "" if state.seconds_left is None else f", about {format_seconds(state.seconds_left)} left"
                print_message(f"{state.done} of {state.total}: {state.last or 'finished in an earlier run'}{left}")

        yield update


class FitDisplay(FitWatcher):
    """Shows the progress of ``fit``, and remembers which families are complete.

    Lines about finished families come from the log; the bar is drawn on a terminal alone.

    Attributes:
        complete: The names of the families that are fitted.
        interrupted: The names of the families that were left out after Ctrl-C.
        last: Whether no family is left to be fitted.
        notice: The thread that says that training stops; None before Ctrl-C.
        check: Called with the model when its table is encoded and nothing is trained, or None.
    """

    def __init__(self, bar: Progress | None) -> None:
        super().__init__()
        self.shows_values = bar is not None
        self.complete: list[str] = []
        self.interrupted: list[str] = []
        self.last = False
        self.notice: threading.Thread | None = None
        self.check: Callable[[Any], None] | None = None
        self._bar = bar
        self._task = None if bar is None else bar.add_task("preparing the table", total=None, facts="")

    def begin(self, model: Any) -> None:
        """Check the model before anything is trained."""
        if self.check is not None:
            self.check(model)

    def report(self, progress: FitProgress) -> None:
        """Move the bar."""
        if progress.ended and progress.left_out is None:
            self.complete.append(progress.family)
        if progress.ended and progress.left_out is not None and self.stop.is_set():
            self.interrupted.append(progress.family)
        self.last = progress.ended and progress.number == progress.families
        if self._bar is None or self._task is None:
            return
        if self.last:
            self._bar.update(self._task, description="choosing the decision, writing the report", total=None, facts="")
            self._bar.update(self._task, seconds_left=None)
            return
        best = "" if progress.best is None else f"best {progress.best:.3f}"
        folds = f"{progress.folds if progress.ended else progress.folds_done}/{progress.folds} folds"
        family, width = progress.family, NAME_WIDTH["family"]
        family = family if len(family) <= width else family[: width - 1] + "…"
        self._bar.update(
            self._task,
            description=f"{family} ({progress.number} of {progress.families})",
            total=progress.families * progress.folds,
            completed=(progress.number - 1 + progress.ended) * progress.folds
            + progress.folds_done * (not progress.ended),
            facts=" ".join(fact for fact in (folds, best) if fact),
            **_estimate(progress.seconds_left),
        )


@contextmanager
def fit_display(quiet: bool) -> Iterator[FitDisplay]:
    """Show the progress of ``fit``; after Ctrl-C the families that are complete become the model."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR_WIDTH),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeLeft(),
    )
    with _bar(columns, quiet, logging.INFO) as bar, _stop_at_interrupt(FitDisplay(bar)) as display:
        yield display


@contextmanager
def _stop_at_interrupt(display: FitDisplay) -> Iterator[FitDisplay]:
    """Make the first Ctrl-C stop training, if a family is complete, and the second one end the command."""

    def stop(number: int, frame: Any) -> None:
        if display.stop.is_set() or not display.complete:
            raise KeyboardInterrupt
        display.stop.set()
        rest = "Training is complete" if display.last else f"The model is made of {list_names(display.complete)}"
        text = f"Stopping. {rest}; press Ctrl-C again to end without a model."
        # In a thread, because the signal may have come in the middle of another message, which must be finished first.
        display.notice = threading.Thread(target=print_message, args=(text,))
        display.notice.start()

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield display
        return
    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield display
    finally:
        signal.signal(signal.SIGINT, previous)
        if display.notice is not None:
            display.notice.join()


def list_names(names: list[str]) -> str:
    """Write a list of names.

    >>> list_names(["linear", "kernel", "boosting"])
    'linear, kernel and boosting'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
