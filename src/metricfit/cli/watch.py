"""``metricfit watch``."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import pandas as pd
import typer

from metricfit.cli.command_rows import check_named
from metricfit.cli.options import Watch
from metricfit.cli.output_paths import check_file
from metricfit.cli.scored_data import load_any_model, scored_rows, whole_rows
from metricfit.cli.terminal import NOT_MET, UserError, print_result
from metricfit.data.columns import order_by_time
from metricfit.errors import quote
from metricfit.report.todays_rule import read_today
from metricfit.tabular import MetricClassifier
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
    """Test whether requirements still hold; ``options.Watch`` lists the options."""
    picture = options.picture
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise UserError(f"--picture writes {', '.join(PICTURES)}; {quote(picture.name)} ends in none of them.")
    if picture is not None:
        check_file(picture, "--picture", overwrite=True)
    check_named(options)
    model, names = load_any_model(options.model), [options.time, options.today]
    X: Any = None
    if options.today is None and isinstance(model, MetricClassifier):
        X, y, columns = scored_rows(model, options, names, doing="Watching")
    else:
        X, y, columns = whole_rows(model, options, names, scored=options.today is None)
    times, predicted = columns.get(options.time or ""), None
    if options.today is not None:
        classes = model.chosen_.names.in_order
        predicted = classes[read_today(columns[options.today], options.today, classes.tolist()).decided]
    if times is not None:
        order = order_by_time(pd.Series(times, name=options.time))
        y, times = y.iloc[order], np.asarray(times)[order]
        X = X.take(order) if X is not None else None
        predicted = None if predicted is None else predicted[order]
    watch = model.watch(
        X,
        y,
        subject_to=options.subject_to or None,
        confidence=options.confidence,
        times=times,
        predicted=predicted,
    )
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
