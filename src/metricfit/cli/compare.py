"""``metricfit compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from metricfit.cli import options
from metricfit.cli.errors import NOT_MET, UserError
from metricfit.cli.printing import bar, show
from metricfit.cli.rows import check_folder, check_words, in_words, positive_of, rows_of
from metricfit.report import pages
from metricfit.runs.backends import BACKENDS
from metricfit.tabular.compare.comparison import Comparison
from metricfit.tabular.compare.comparison import compare as compare_methods
from metricfit.tabular.compare.standings import Row
from metricfit.tabular.compare.verdict import UNTUNED


def compare(
    data: options.Data,
    target: options.Target,
    metric: options.MetricName = "f1",
    subject_to: options.Requirements = None,
    positive: options.Positive = None,
    group: options.Group = None,
    to: Annotated[Path, typer.Option("--out", help="Where cells and the report are kept.")] = Path("metricfit-compare"),
    folds: Annotated[int, typer.Option("--folds", min=2, help="How many parts the table is cut into.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", help="Cells at a time; -1 for one a core.")] = 1,
    backend: Annotated[str, typer.Option("--backend", help=", ".join(BACKENDS))] = "loky",
    network: options.Network = "auto",
    members: options.Members = 4,
    time_budget: options.Budget = 60.0,
    epochs: options.Epochs = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare ways to train and to choose a threshold, on identical folds; say which to use."""
    check_words(metric, subject_to)
    check_folder(to)
    X, y, groups = rows_of(data, target, group)
    if y.nunique() != 2:
        raise UserError(
            f"compare is for two classes; the target has {y.nunique()}. Choose one against the rest in your table, or "
            "use fit, which takes several."
        )
    chosen = positive_of(y, positive)
    counts = y.value_counts()
    rarest, rows = counts.index[-1], counts.iloc[-1]
    if rows < folds:
        raise UserError(f"The label {str(rarest)!r} has {rows} rows, fewer than --folds {folds}; give fewer folds.")
    labels = (y == chosen).to_numpy().astype(np.int64)
    with bar("comparing", quiet) as watch:
        found = compare_methods(
            X,
            labels,
            metric,
            to / "cells",
            name=data.name,
            subject_to=subject_to or (),
            groups=groups,
            parts=folds,
            seed=seed,
            jobs=jobs,
            backend=backend,
            watch=watch,
            network=network,
            members=members,
            epochs=epochs,
            time_budget=time_budget if epochs is None else None,
        )
    report = pages.of_comparison(
        found,
        data.name,
        target,
        subject_to or (),
        to / "report.html",
        group=group,
        classes=(str(y[y != chosen].iloc[0]), str(chosen)),
    )
    summary = {
        "metric": metric,
        "positive": chosen,
        "classes": {str(label): int(rows) for label, rows in counts.items()},
        "verdict": found.verdict,
        "recommended": found.recommended,
        "methods": [_row(row, bool(subject_to)) for row in found.rows],
        "effort": found.effort,
        "report": str(report),
    }
    again = " ".join(f"--{key} {value}" for key, value in found.effort.items())
    effort = f"All networks trained alike; {again} repeats this whatever the machine's speed."
    classes = in_words(counts, chosen)
    show(summary, as_json, [classes, table_of(found, bool(subject_to)), found.verdict, effort, f"Report: {report}"])
    if all(row.unreached for row in found.rows if row.name not in UNTUNED):
        raise typer.Exit(NOT_MET)


def table_of(found: Comparison, required: bool) -> Table:
    """The methods, best first: means over folds with their intervals, differences to the reference, seconds.

    Differences have simultaneous intervals and p-values with Holm's correction. Under requirements there is also the
    number of folds on which they held, and a mark where they could not be met on a fold's training rows.
    """
    folds = len(found.rows[0].values)
    table = Table(
        "method", f"{found.metric} (95 %)", "against tuned cross-entropy (95 %, simultaneous)", "p (Holm)", "seconds"
    )
    if required:
        table.add_column("requirements held")
    for row in found.rows:
        mean = f"{row.mean:.3f}"
        if row.interval is not None:
            mean += f" ({row.interval.low:.3f} to {row.interval.high:.3f})"
        versus = "" if row.difference is None else f"{row.difference:+.3f}"
        if row.difference_interval is not None:
            versus += f" ({row.difference_interval.low:+.3f} to {row.difference_interval.high:+.3f})"
        p_value = "" if row.p_value is None else f"{row.p_value:.2g}"
        held = f"{row.held} of {folds}"
        if row.unreached:
            held += f" (out of reach on {len(row.unreached)})"
        table.add_row(row.name, mean, versus, p_value, f"{row.seconds:.1f}", *([held] if required else []))
    return table


def _row(row: Row, required: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": row.name, "mean": row.mean, "interval": row.interval, "values": row.values}
    found |= {"seconds": row.seconds, "versus_reference": None}
    if row.difference is not None:
        found["versus_reference"] = {
            "difference": row.difference,
            "interval": row.difference_interval,
            "p_value": row.p_value,
        }
    return found | ({"held": row.held, "not_reachable": row.unreached} if required else {})
