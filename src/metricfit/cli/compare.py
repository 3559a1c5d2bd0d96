"""``metricfit compare``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.table import Table

from metricfit.cli import options
from metricfit.cli.column_choice import EVERYTHING, ColumnChoice
from metricfit.cli.command_rows import (
    check_binary_options,
    check_metric_options,
    choose_positive_label,
    describe_classes,
    title_data,
)
from metricfit.cli.exit_codes import NOT_MET, UserError
from metricfit.cli.large_rows import read_compared_rows
from metricfit.cli.output_paths import check_folder, run_folder
from metricfit.cli.progress_display import progress_bar
from metricfit.cli.terminal import command_line, print_message, print_result
from metricfit.data.text_format import TextOptions
from metricfit.report.pages import write_comparison_page
from metricfit.runs.backends import BACKENDS
from metricfit.tabular.compare.comparison import Comparison
from metricfit.tabular.compare.comparison import compare as compare_methods
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE
from metricfit.tabular.compare.run_description import ChangedRunError, other_tables
from metricfit.tabular.large import row_sources


def compare(
    data: options.Data,
    target: options.Target,
    metric: options.MetricName = "f1",
    subject_to: options.Requirements = None,
    confidence: options.Confidence = None,
    positive: options.Positive = None,
    group: options.Group = None,
    time: options.Time = None,
    drop: options.Drop = None,
    category: options.Category = None,
    skip_unlabelled: options.SkipUnlabelled = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for finished trainings and the report. By default metricfit-runs/TABLE-METRIC-DATE.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Number of folds.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", help="Trainings at a time; -1 for one per core.")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="Where to train: " + ", ".join(BACKENDS) + ".")] = "loky",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="A method to compare; may be repeated. By default all of them."),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows",
            min=100,
            help="Rows to compare on; of a larger table a random sample is taken. By default 500000.",
        ),
    ] = None,
    time_budget: options.Budget = 300.0,
    seed: options.Seed = 0,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare ways to train a classifier on identical folds, and recommend one."""
    check_metric_options(metric, subject_to, confidence)
    named_folder = run_folder(data, metric, date.today()) if out is None else out
    check_folder(named_folder)
    judged = subject_to if confidence is None else None  # with a confidence, too few rows are refused
    written, choice = TextOptions(sep, decimal, encoding), ColumnChoice.of(drop, category, skip_unlabelled)
    rows, table_rows, note = read_compared_rows(
        data, target, group, written, time, subject_to=judged, choice=choice, most=max_rows or row_sources.LARGE_ROWS
    )
    X, y, groups, findings = rows
    if note is not None:
        print_message(f"{note}.")
    check_binary_options(y, positive)
    positive_label, counts = choose_positive_label(y, positive), y.value_counts()
    if out is None and not quiet:
        print_message(
            f"Trainings and report are kept in {named_folder}; --out {shlex.quote(str(named_folder))} finds them."
        )
    with progress_bar("comparing", quiet) as progress:
        compare_in = partial(
            compare_methods,
            X,
            y,
            metric,
            subject_to=subject_to,
            confidence=confidence,
            groups=groups,
            time=None if time is None else pd.Series(range(len(X)), name=time),  # they are sorted
            pos_label=positive_label,
            folds=folds,
            name=title_data(data),
            methods=method,
            time_budget=time_budget,
            seed=seed,
            jobs=jobs,
            backend=backend,
            progress=progress,
        )
        _refuse_other_tables(named_folder, title_data(data))
        result, folder = _compare_in_folder(compare_in, named_folder, by_default=out is None)
    if note is not None:
        result = replace(result, notes=(note, *result.notes))
    report = write_comparison_page(result, folder / "report.html", command=command_line())
    command = fit_command(
        result,
        data,
        target,
        folder / "recommended",
        subject_to=subject_to,
        choice=choice,
        given={
            "--confidence": None if confidence is None else f"{confidence:g}",
            "--positive": positive,
            "--group": group,
            "--time": time,
            "--sep": sep,
            "--decimal": decimal,
            "--encoding": encoding,
        },
        seed=seed,
    )
    summary = result.to_dict() | {
        "table_rows": table_rows,
        "compared_rows": len(y),
        "findings": [finding.to_dict() for finding in findings],
        "command": command,
        "positive": positive_label,
        "classes": {str(label): int(rows) for label, rows in counts.items()},
        "folder": str(folder),
        "report": str(report),
    }
    lines: list[str | Table] = [
        describe_classes(counts, positive_label),
        table_of(result),
        *(f"{note}." for note in result.notes),
        result.verdict,
        f"To fit it on all rows: {command}",
        f"Trainings: {folder} (the same command uses them again)",
        f"Report: {report}",
    ]
    print_result(summary, as_json, lines)
    if not result.requirements_reachable:
        raise typer.Exit(NOT_MET)


def _refuse_other_tables(folder: Path, name: str) -> None:
    """Refuse a folder with the comparison of a table of another name, whose report would be replaced."""
    others = other_tables(folder / "cells", name)
    if others:
        raise UserError(
            f"{folder} holds a comparison of {others[0]}, and its report would be replaced by that of {name}. Give "
            "another --out to keep both, or remove that folder."
        )


def _compare_in_folder(
    compare_in: Callable[..., Comparison], folder: Path, *, by_default: bool
) -> tuple[Comparison, Path]:
    """Compare in a folder, or if it was not chosen by the user and holds another comparison, in the next one."""
    number, first = 2, folder
    while True:
        try:
            return compare_in(folder=folder / "cells"), folder
        except ChangedRunError as error:
            problem = f"{folder} holds a comparison of another table or with other options: {'; '.join(error.changes)}."
            if not by_default:
                raise UserError(f"{problem} Give another --out to keep both, or remove that folder.") from error
            folder, number = first.with_name(f"{first.name}-{number}"), number + 1
            print_message(f"{problem} This one goes to {folder}.")


def fit_command(
    comparison: Comparison,
    data: Sequence[Path],
    target: str,
    out: Path,
    *,
    subject_to: list[str] | None,
    choice: ColumnChoice = EVERYTHING,
    given: Mapping[str, str | None],
    seed: int,
) -> str:
    """Return the command that fits the recommended method, as it would be typed; ``given`` are further options."""
    words = ["metricfit", "fit", *map(str, data), "--target", target, "--metric", comparison.metric]
    for requirement in subject_to or ():
        words += ["--subject-to", requirement]
    for option, names in (("--drop", choice.drop), ("--category", choice.category)):
        words += [word for name in names for word in (option, name)]
    words += ["--skip-unlabelled"] if choice.skip_unlabelled else []
    for option, value in given.items():
        words += [] if value is None else [option, value]
    words += [] if seed == 0 else ["--seed", str(seed)]
    words += [] if comparison.recommended == DEFAULT else ["--method", str(comparison.recommended)]
    return shlex.join([*words, "--out", str(out)])


def table_of(comparison: Comparison) -> Table:
    """Make the table of methods, best first.

    It has means over folds with their intervals, differences to the reference with simultaneous intervals, p-values
    with Holm's correction, and seconds. With requirements it also has the number of folds on which they held, and a
    mark where they could not be met on a fold's training rows.
    """
    required, folds = bool(comparison.subject_to), len(comparison.rows[0].values)
    table = Table(
        "method",
        f"{comparison.metric} (95 %)",
        f"against {REFERENCE}\n(95 %, simultaneous)",
        "p (Holm)",
        "seconds",
    )
    if required:
        table.add_column("requirements held")
    for row in comparison.rows:
        mean = f"{row.mean:.3f}"
        if row.interval is not None:
            mean += f" ({row.interval[0]:.3f} to {row.interval[1]:.3f})"
        difference = "" if row.difference is None else f"{row.difference:+.3f}"
        if row.difference_interval is not None:
            difference += f" ({row.difference_interval[0]:+.3f} to {row.difference_interval[1]:+.3f})"
        p_value = "" if row.p_value is None else f"{row.p_value:.2g}"
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        held = f"{row.held} of {folds}"
        if row.not_reachable:
            held += f" (out of reach on {len(row.not_reachable)})"
        table.add_row(row.name, mean, difference, p_value, seconds, *([held] if required else []))
    return table
