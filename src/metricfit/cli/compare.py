"""``metricfit compare``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd
import typer
from rich.markup import escape
from rich.table import Table

from metricfit._files import hash_bytes
from metricfit.cli.command_rows import (
    check_aim,
    check_binary_options,
    choose_positive_label,
    describe_classes,
    read_compared_rows,
    read_data,
    title_data,
)
from metricfit.cli.options import Compare
from metricfit.cli.output_paths import check_folder, run_folder
from metricfit.cli.progress_display import progress_bar
from metricfit.cli.terminal import NOT_MET, UserError, command_line, print_message, print_result
from metricfit.report.comparison_page import MARK, write_comparison_page
from metricfit.report.todays_rule import read_today
from metricfit.tabular import large_rows
from metricfit.tabular.compare.comparison import Comparison, FoldPeriod
from metricfit.tabular.compare.comparison import compare as compare_methods
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE, TUNED, OutsidePredictions, OwnModel
from metricfit.tabular.compare.trainings import ChangedRunError, other_tables
from metricfit.tabular.compare.verdict import ComparisonRow
from metricfit.tabular.doctor.finding import Finding
from metricfit.tabular.facts import Ends


class Recommendation(TypedDict):
    """The recommendation, for scripts.

    Attributes:
        method: Name of the recommended method, as `fit --method` takes it.
        mean: Its mean over the folds.
        interval: 95 % interval of the mean.
        sure: Whether the folds prove that no other method is better, or only negligibly.
        not_better_than: Decisions without a model that it does not clearly beat.
        requirements_reachable: Whether some method met the requirements on every fold's training rows.
    """

    method: str
    mean: float
    interval: Ends | None
    sure: bool
    not_better_than: str | None
    requirements_reachable: bool


class Result(TypedDict):
    """What ``compare --json`` prints.

    Attributes:
        metric: Name of the metric.
        verdict: The recommendation in two sentences.
        details: The reasons in full, with intervals, and the rule.
        recommended: Name of the recommended method.
        recommendation: The recommendation, for scripts.
        methods: The methods, the best mean first.
        periods: With `--time`, the metric of each method by period, the earliest first; otherwise empty.
        notes: What was left out, and why.
        table_rows: Rows of the table.
        compared_rows: Rows that were compared on: all of them, or a sample of a large table.
        findings: What looks wrong, the most serious first; [the page of doctor](doctor.md) lists the kinds.
        command: The command that fits the recommended method on all rows; null for a model of your own and for
            LightGBM as it comes.
        python: The same in Python; null for predictions.
        positive: The positive class of two; null for several classes.
        classes: Number of rows of each class, by its label.
        folder: The folder of the trainings and the report.
        report: The file of the report.
    """

    metric: str
    verdict: str
    details: list[str]
    recommended: str | None
    recommendation: Recommendation | None
    methods: list[ComparisonRow]
    periods: list[FoldPeriod]
    notes: list[str]
    table_rows: int
    compared_rows: int
    findings: list[Finding]
    command: str | None
    python: str | None
    positive: Any
    classes: dict[str, int]
    folder: str
    report: str


def run(options: Compare) -> None:
    """Compare methods, and write the report; ``options.Compare`` lists the options."""
    check_folder(options.out)
    out, quiet = options.out, options.quiet
    check_aim(options)
    named_folder = run_folder(options.data, options.metric, date.today()) if out is None else out
    # With a confidence, too few rows are refused before training, and need no warning.
    rows, table_rows, note = read_compared_rows(
        options,
        options.subject_to if options.confidence is None else (),
        most=options.max_rows or large_rows.LARGE_ROWS,
    )
    X, y, groups = rows.X, rows.y, rows.groups
    predictions = _read_predictions(options.predictions, rows.numbers)
    if note is not None:
        print_message(f"{note}.")
    check_binary_options(y, options.positive)
    positive_label, counts = choose_positive_label(y, options.positive), y.value_counts()
    if rows.today is not None:
        labels = sorted(y.unique().tolist(), key=lambda label: (label == positive_label, str(label)))
        today = read_today(rows.today, str(options.today), labels)
        predictions[today.name] = pd.Series([labels[number] for number in today.decided])
    if out is None and not quiet:
        print_message(
            f"Trainings and report are kept in {named_folder}; --out {shlex.quote(str(named_folder))} finds them."
        )
    with progress_bar("comparing", quiet) as progress:
        compare_in = partial(
            compare_methods,
            X,
            rows.ordered_labels,
            options.metric,
            subject_to=list(options.subject_to) or None,
            confidence=options.confidence,
            average=options.average,  # type: ignore[arg-type]  # check_aim knows it
            groups=groups,
            time=rows.times,
            calibration=options.calibration,
            sample_weight=rows.weight,
            pos_label=positive_label,
            folds=options.folds,
            name=title_data(options.data),
            methods=methods_of(options),
            predictions=predictions,
            networks=options.networks,
            time_budget=options.time_budget,
            seed=options.seed,
            jobs=options.jobs,
            backend=options.backend,
            progress=progress,
        )
        _refuse_other_tables(named_folder, title_data(options.data))
        result, folder = _compare_in_folder(compare_in, named_folder, by_default=out is None)
    if note is not None:
        result = replace(result, notes=(note, *result.notes))
    report = write_comparison_page(result, folder / "report.html", command=command_line())
    command = fit_command(result, options, folder / "recommended")
    python = fit_in_python(result, options.positive, rows.order)
    summary = result.to_dict() | {
        "table_rows": table_rows,
        "compared_rows": len(y),
        "findings": rows.findings,
        "command": command,
        "python": python,
        "positive": positive_label,
        "classes": {str(label): int(rows) for label, rows in counts.items()},
        "folder": str(folder),
        "report": str(report),
    }
    lines: list[str | Table] = [
        describe_classes(counts, positive_label),
        table_of(result),
        *([table_over_time(result)] if result.periods else []),
        *(f"{note}." for note in result.notes),
        result.verdict,
        f"To fit it on all rows: {command or python}"
        if command or python
        else "Its predictions are all that is known.",
        f"Trainings: {folder} (the same command uses them again)",
        f"Reasons, intervals and tests: {report}",
    ]
    print_result(summary, options.as_json, lines)
    if not result.requirements_reachable:
        raise typer.Exit(NOT_MET)


def _refuse_other_tables(folder: Path, name: str) -> None:
    """Refuse a folder with the comparison of a table of another name, whose report would be replaced."""
    others = other_tables(folder / "cells", name)
    if others:
        raise UserError(
            f"{folder} holds a comparison of {others[0]}, and the report of {name} would replace its report. Give "
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


def methods_of(options: Compare) -> list[Any] | None:
    """Return the methods that the options name, or None; a name with a colon is a module and an object in it."""
    return [load_method(name) if ":" in name else name for name in options.method] or None


def load_method(name: str) -> OwnModel:
    """Import a classifier, or call the function or class that makes one; modules in the current folder are found.

    Args:
        name: The module and the object, such as ``mine:pipeline``.

    Raises:
        UserError: There is no such object, or it makes no classifier.
    """
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
        made = getattr(module, attribute)
        made = made if hasattr(made, "fit") and not isinstance(made, type) else made()
    except Exception as error:
        raise UserError(f"--method {name} cannot be imported: {type(error).__name__}: {error}.") from error
    if not hasattr(made, "fit") or not hasattr(made, "predict"):
        raise UserError(f"--method {name} is a {type(made).__name__}, and no classifier of scikit-learn.")
    source = getattr(module, "__file__", None)
    return OwnModel(name, made, version="" if source is None else hash_bytes(Path(source).read_bytes()))


def _read_predictions(paths: Sequence[Path], rows: Any) -> dict[str, pd.DataFrame]:
    """Read the files of ``--predictions``, and return these rows of them by the names of the files."""
    found = {}
    for path in paths:
        table = read_data([path], None, {})
        if len(table) <= rows.max():
            raise UserError(
                f"{path} has {len(table):,} rows, fewer than the table; it needs one per row, in its order."
            )
        found[path.stem] = table.iloc[rows]
    return found


def fit_command(comparison: Comparison, options: Compare, out: Path) -> str | None:
    """Return the command that fits the recommended method, as it would be typed; None if ``fit`` does not have it."""
    if comparison.recommended.removesuffix(TUNED) in comparison.models:
        return None
    words = ["metricfit", "fit", *options.words()]
    words += [] if options.seed == 0 else ["--seed", str(options.seed)]
    words += [] if options.calibration is None else ["--calibration", str(options.calibration)]
    words += [] if comparison.recommended == DEFAULT else ["--method", comparison.recommended]
    return shlex.join([*words, "--out", str(out)])


def fit_in_python(comparison: Comparison, positive: str | None, order: Sequence[Any] | None = None) -> str | None:
    """Return how the recommended method is fitted in Python; None if only its predictions are known."""
    name = comparison.recommended.removesuffix(TUNED)
    y = "y" if order is None else f"pandas.Categorical(y, {list(order)}, ordered=True)"
    if isinstance(comparison.models.get(name), OutsidePredictions):
        return None
    if name == REFERENCE:
        return "lightgbm.LGBMClassifier().fit(X, y)"
    model = comparison.classifier()
    if name not in comparison.models:
        return f"metricfit.{' '.join(repr(model).split())}.fit(X, {y})"
    own = name.replace(":", ".")
    if comparison.recommended == name:
        return f"{own}.fit(X, y)"
    settings = {key: getattr(model, key) for key in ("subject_to", "confidence") if getattr(model, key) is not None}
    settings |= {"pos_label": model.pos_label} if positive is not None else {}
    settings |= {"average": comparison.average} if comparison.average != "macro" else {}
    said = "".join(f", {key}={value!r}" for key, value in settings.items())
    return f"metricfit.TunedDecisionClassifier({own}, {comparison.metric!r}{said}).fit(X, {y})"


def table_over_time(comparison: Comparison) -> Table:
    """Make the table of the metric by period, the earliest first."""
    names = comparison.over_time
    table = Table("period", "rows", *map(escape, names))
    for period in comparison.periods:
        values = (f"{period.values[name]:.3f}" for name in names)
        table.add_row(escape(f"{period.first} to {period.last}"), f"{period.rows:,}", *values)
    return table


def table_of(comparison: Comparison) -> Table:
    """Make the table of methods: the reference first, then the best mean first, with the recommended row marked.

    It has means over folds, differences to the reference and seconds. With requirements it also has the number of
    folds on which they held, and a note where they could not be met on a fold's training rows.
    """
    required, folds = bool(comparison.subject_to), len(comparison.rows[0].values)
    table = Table("", "method", f"mean {comparison.metric}", f"against {REFERENCE}", "seconds")
    if required:
        table.add_column("requirements held")
    for row in comparison.reference_first:
        recommended = row.name == comparison.recommended
        held = f"{row.held} of {folds}"
        if row.not_reachable:
            held += f" (out of reach on {len(row.not_reachable)})"
        table.add_row(
            MARK if recommended else "",
            escape(row.name),
            f"{round(row.mean, 3) + 0.0:.3f}",
            "" if row.difference is None else f"{row.difference:+.3f}",
            "" if row.seconds is None else f"{row.seconds:.1f}",
            *([held] if required else []),
            style="bold" if recommended else None,
            end_section=row.name == REFERENCE,
        )
    return table
