"""The section of learning curves: losses and the monitored value by epoch, one line per member."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from metricfit.errors import InvalidValueError
from metricfit.report.charts import FIRST, GOOD, MUTED, SECOND, Chart, Drawing, label, styled
from metricfit.report.page import Section

Row = Mapping[str, Any]
#: What a line is called, and its colour.
Line = tuple[str, str]
LOSSES = {"train_loss": ("training", FIRST), "validation_loss": ("validation", SECOND)}


def learning_curves(
    histories: Sequence[Row] | Sequence[Sequence[Row]], *, title: str = "Learning curves", lead: str = ""
) -> Section:
    """Make charts of the training and validation losses and of the monitored value.

    Args:
        histories: ``FitResult.history``, or one history for each member of an ensemble. Columns that no row has are
            left out, and so is a monitored value that is the validation loss. Epochs without a finite number leave a
            gap. Epochs are counted through all stages.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If there is no finite number to draw.

    Example:
        >>> learning_curves([{"train_loss": 0.5, "value": 0.1}, {"train_loss": 0.4, "value": 0.2}]).context["members"]
        1
    """
    members = _members(histories)
    charts = []
    if any(_line(rows, name) for rows in members for name in LOSSES):
        charts.append(_chart(members, "Loss", "loss", "Training and validation loss", LOSSES))
    if any(_line(rows, "value") and _line(rows, "value") != _line(rows, "validation_loss") for rows in members):
        names = dict.fromkeys(str(row["monitor"]) for rows in members for row in rows if row.get("monitor"))
        called = ", ".join(names) or "monitored value"
        lines = {"value": (called, GOOD)}
        charts.append(_chart(members, "Monitored value", called, f"{called} on the validation set", lines))
    if not charts:
        raise InvalidValueError(
            "the histories hold no finite train_loss, validation_loss or value; there is nothing to draw"
        )
    return Section(title, "charts.html", {"charts": charts, "members": len(members)}, lead)


def _members(histories: Any) -> list[list[Row]]:
    several = list(histories)
    if several and isinstance(several[0], Mapping):
        return [several]
    return [list(rows) for rows in several]


def _line(rows: Sequence[Row], name: str) -> list[float]:
    """Return a column with NaN where there is no finite number; an empty list if there is none at all."""
    values = [math.nan if row.get(name) is None else float(row[name]) for row in rows]
    finite = [value if math.isfinite(value) else math.nan for value in values]
    return [] if all(map(math.isnan, finite)) else finite


@styled
def _chart(members: Sequence[Sequence[Row]], title: str, ylabel: str, what: str, lines: Mapping[str, Line]) -> Chart:
    drawing = Drawing()
    for name, (description, colour) in lines.items():
        _draw(drawing, members, name, description, colour)
    drawing.axes.set(xlabel="epoch", ylabel=label(ylabel))
    if len(lines) > 1:
        drawing.axes.legend()
    of = "one model" if len(members) == 1 else f"{len(members)} members, one line each"
    return drawing.finished(title, f"{what} by epoch, of {of}.")


def _draw(drawing: Drawing, members: Sequence[Sequence[Row]], name: str, called: str, colour: str) -> None:
    alone = len(members) == 1
    legend: str | None = label(called)
    for rows in members:
        line = _line(rows, name)
        if not line:
            continue
        marker = "o" if len(line) == 1 else None
        epochs = range(1, len(line) + 1)
        drawing.axes.plot(
            epochs,
            line,
            color=colour,
            label=legend,
            marker=marker,
            linewidth=1.8 if alone else 0.9,
            alpha=1 if alone else 0.7,
        )
        legend = None
    if alone:
        for epoch, (before, after) in enumerate(pairwise(members[0]), start=1):
            if before.get("stage") != after.get("stage"):
                drawing.axes.axvline(epoch + 0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
