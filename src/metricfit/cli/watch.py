"""``metricfit watch``."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pandas as pd
import typer

from metricfit.cli.options import Watch
from metricfit.cli.scored_data import load_model, scored_rows
from metricfit.cli.terminal import NOT_MET, UserError, print_result
from metricfit.data.columns import order_by_time
from metricfit.errors import quote
from metricfit.tabular.watch import WatchedRequirement

PICTURES = (".svg", ".png", ".pdf")


class Result(TypedDict):
    """What ``watch --json`` prints.

    Attributes:
        rows: Number of rows.
        alarm: Whether a requirement no longer holds.
        confidence: The probability that no alarm is ever raised while all requirements hold.
        requirements: What the rows say about each requirement.
        picture: The file of the picture; null without one.
    """

    rows: int
    alarm: bool
    confidence: float
    requirements: list[WatchedRequirement]
    picture: str | None


def run(options: Watch) -> None:
    """Test whether requirements still hold; the options are those of ``options.Watch``."""
    picture = options.picture
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise UserError(f"--picture writes {', '.join(PICTURES)}; {quote(picture.name)} ends in none of them.")
    model = load_model(options.model)
    X, y, columns = scored_rows(model, options, [options.time], doing="Watching")
    times = columns.get(options.time or "")
    if times is not None:
        order = order_by_time(pd.Series(times, name=options.time))
        X, y, times = X.take(order), y.iloc[order], np.asarray(times)[order]
    watch = model.watch(X, y, subject_to=options.subject_to or None, confidence=options.confidence, times=times)
    if picture is not None:
        watch.plot().savefig(picture)
    result = Result(
        rows=watch.rows,
        alarm=watch.alarm,
        confidence=watch.confidence,
        requirements=list(watch.requirements),
        picture=None if picture is None else str(picture),
    )
    lines = [*str(watch).splitlines(), *([] if picture is None else [f"Picture: {picture}"])]
    print_result(result, options.as_json, lines)
    if watch.alarm:
        raise typer.Exit(NOT_MET)
