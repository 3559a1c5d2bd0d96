"""Several monitors of a stage: the first one decides which epoch is best, and all of them are in the history."""

from __future__ import annotations

from collections.abc import Sequence

from metricfit.core.threshold_vectors import PerLabel
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import Formula, Metric
from metricfit.train.history import Row
from metricfit.train.monitor import Monitor, as_monitor
from metricfit.train.monitored_value import Measured

#: What is monitored: "loss", a metric, "best f1" or a Monitor, or a list of these, of which the first decides.
Monitored = str | Metric | Monitor | Formula | Sequence[str | Metric | Monitor | Formula]

#: Columns of the history that have another meaning.
PROGRESS = ("stage", "epoch", "step", "member", "train_loss", "lr", "cuda_graphs")
DECIDING = ("validation_loss", "monitor", "value", "threshold", "best", "feasible", "violation")
RESERVED = frozenset((*PROGRESS, *DECIDING))


def make_monitors(monitor: Monitored) -> tuple[Monitor, ...]:
    """Return the monitors of a stage, the one that decides first.

    Raises:
        ValueError: There is none, one is unknown, or two would have the same column of the history.

    Example:
        >>> [each.name for each in make_monitors(["best f1", "auroc"])]
        ['best f1', 'auroc']
    """
    if not isinstance(monitor, (list, tuple)):
        return (as_monitor(monitor),)  # type: ignore[arg-type]
    if not monitor:
        raise InvalidValueError("monitor is an empty list; leave it out to monitor the loss")
    monitors = tuple(map(as_monitor, monitor))
    names = name_columns(monitors)
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InvalidValueError(f"monitor names {quote(name)} twice, but each has one column of the history")
        if name in RESERVED:
            raise InvalidValueError(
                f"a column {quote(name)} of the history has another meaning; give this metric another name"
            )
    return monitors


def name_column(monitor: Monitor) -> str:
    """Return the name of a monitor's column: its own, with the threshold and the average that are not the usual ones.

    Example:
        >>> name_column(Monitor("f1", threshold=0.3, average="micro"))
        'f1 at 0.3 micro'
    """
    name = monitor.name
    if isinstance(monitor.threshold, (int, float)) and monitor.threshold != 0.5:
        name += f" at {monitor.threshold:g}"
    elif isinstance(monitor.threshold, PerLabel):
        name += " at thresholds per label"
    return name if monitor.average == "macro" else f"{name} {monitor.average}"


def name_columns(monitors: Sequence[Monitor]) -> list[str]:
    """Return the names of the columns of several monitors; other thresholds per label of a metric are numbered.

    Example:
        >>> name_columns([Monitor("f1", threshold=[0.2, 0.5]), Monitor("f1", threshold=[0.3, 0.6])])
        ['f1 at thresholds per label', 'f1 at thresholds per label (2)']
    """
    names: list[str] = []
    for number, monitor in enumerate(monitors):
        name = name_column(monitor)
        if isinstance(monitor.threshold, PerLabel) and monitor not in monitors[:number]:
            alike = sum(name_column(earlier) == name for earlier in monitors[:number])
            name += f" ({alike + 1})" if alike else ""
        names.append(name)
    return names


def make_columns(monitors: Sequence[Monitor], measured: Sequence[Measured]) -> Row:
    """Return the columns that a list of monitors adds to a row of the history.

    Args:
        monitors: The monitors of the stage.
        measured: What each of them measured.

    Returns:
        Each monitor's value under its name. For monitors other than the first also the threshold, if it is the best
        one, and whether its requirements hold, if there are any; those of the first are columns of every history.
    """
    row: Row = {}
    for number, (name, monitor, result) in enumerate(zip(name_columns(monitors), monitors, measured, strict=True)):
        row[name] = result.value
        if number and monitor.threshold == "best":
            row[f"{name} threshold"] = result.threshold
        if number and monitor.requirements:
            row[f"{name} feasible"] = result.feasible
    return row
