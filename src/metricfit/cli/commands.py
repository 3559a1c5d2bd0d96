"""The signatures of all commands; what a command does is in the module with its name, imported when it is called.

Nothing here may import pandas or scikit-learn, so that ``--help`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from metricfit.cli import options


def _run(command: str, arguments: dict[str, Any]) -> None:
    """Run a command: ``run`` of the module with its name."""
    import_module(f"metricfit.cli.{command}").run(options.Given(**arguments))


def doctor(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="The table to train on, and further ones, such as the rows to test on, which are compared with it. "
            "Each is a file, a folder or a pattern; - is standard input.",
        ),
    ],
    target: options.Target,
    subject_to: options.Requirements = None,
    confidence: options.Confidence = None,
    positive: options.Positive = None,
    group: options.Group = None,
    time: options.Time = None,
    drop: options.Drop = None,
    category: options.Category = None,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what looks wrong in a table before anything is trained, the most serious first."""
    _run("doctor", locals())


def fit(
    data: options.Data,
    target: options.Target,
    out: Annotated[Path, typer.Option("--out", help="A new folder for the model and its report.")],
    metric: options.MetricName = "f1",
    subject_to: options.Requirements = None,
    confidence: options.Confidence = None,
    calibration: options.Calibration = None,
    refer: Annotated[
        float | None,
        typer.Option("--refer", min=0, max=1, help="Largest share of rows to refer to a person, such as 0.05."),
    ] = None,
    refer_subject_to: Annotated[
        list[str] | None,
        typer.Option(
            "--refer-subject-to",
            help="A requirement on the rows that are decided, such as 'precision >= 0.9'; may be repeated. The fewest "
            "rows that meet it are referred to a person, and at most --refer.",
        ),
    ] = None,
    positive: options.Positive = None,
    group: options.Group = None,
    time: options.Time = None,
    drop: options.Drop = None,
    category: options.Category = None,
    skip_unlabelled: options.SkipUnlabelled = False,
    order: options.Order = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="A method of compare, such as 'support vectors', in place of --models."),
    ] = None,
    models: options.Models = "auto",
    folds: options.Folds = None,
    time_budget: Annotated[
        float,
        typer.Option(
            "--time-budget", min=0.001, help="Seconds of training. Models that would take longer are left out."
        ),
    ] = 300.0,
    insight: Annotated[
        bool,
        typer.Option(
            "--insight/--no-insight",
            help="Show in the report which columns matter, and the values of the rows that are most wrong.",
        ),
    ] = True,
    onnx: Annotated[
        bool,
        typer.Option(
            "--onnx", help="Also write the model as a graph, model.onnx, and compare the labels on the training rows."
        ),
    ] = False,
    jobs: options.Jobs = -1,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            help="Where to train: threads of this process, or ray or dask, with all folds of all models at a time.",
        ),
    ] = "threads",
    seed: options.Seed = 0,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a classifier for a metric, choose its threshold, and write the model and a report."""
    _run("fit", locals())


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
    order: options.Order = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for finished trainings and the report. By default metricfit-runs/TABLE-METRIC-DATE.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Number of folds.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", help="Trainings at a time; -1 for one per core.")] = 1,
    backend: Annotated[
        str, typer.Option("--backend", help="Where to train: loky, threading, sequential, ray, dask.")
    ] = "loky",
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
    _run("compare", locals())


def evaluate(
    model: options.ModelFolder,
    data: options.Data,
    target: Annotated[str, typer.Option("--target", help="Name of the column with the labels.")],
    threshold: options.Threshold = None,
    report: Annotated[Path | None, typer.Option("--report", help="A new HTML file for a report.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Name of a column; the report then has the values of each group.")
    ] = None,
    skip_unlabelled: options.SkipUnlabelled = False,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Compute the metrics of a saved model on labelled rows."""
    _run("evaluate", locals())


def predict(
    model: options.ModelFolder,
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", help="A new file for the predictions, .csv or .parquet.")],
    id_columns: Annotated[
        list[str] | None,
        typer.Option("--id", help="Name of a column that is copied to the predictions; may be repeated."),
    ] = None,
    threshold: options.Threshold = None,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict labels and probabilities of new rows with a saved model.

    A file with a header and no rows gives predictions with a header and no rows.
    """
    _run("predict", locals())


def export(
    model: options.ModelFolder,
    onnx: Annotated[Path, typer.Option("--onnx", help="A new file for the graph, .onnx.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="A table, such as the training rows, on whose rows the labels of the graph and of the model are "
            "compared; may be repeated. By default rows are made up.",
        ),
    ] = None,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a saved model as one ONNX graph, compare it with the model, and time it."""
    _run("export", locals())


def metrics(as_json: options.AsJson = False) -> None:
    """List the metrics with their formulas over true and false positives and negatives."""
    _run("metrics", locals())


def datasets(as_json: options.AsJson = False) -> None:
    """List the datasets of metricfit.data.load and fetch: their size, positive class and source."""
    _run("datasets", locals())
