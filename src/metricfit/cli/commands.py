"""The signatures of all commands; what a command does is in the module with its name, imported when it is called.

Nothing here may import pandas, scikit-learn or torch, so that ``--help`` takes no time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli import options
from metricfit.cli.options import Aim, TableOptions


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
    from metricfit.cli.doctor import run_doctor

    table = TableOptions(
        tuple(data), target, group, time, tuple(drop or ()), tuple(category or ()), False, sep, decimal, encoding
    )
    run_doctor(table, Aim("f1", tuple(subject_to or ()), confidence, positive), as_json=as_json)


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
    from metricfit.cli.fit import run_fit
    from metricfit.cli.output_paths import claimed_folder

    with claimed_folder(out):
        run_fit(
            TableOptions(
                tuple(data),
                target,
                group,
                time,
                tuple(drop or ()),
                tuple(category or ()),
                skip_unlabelled,
                sep,
                decimal,
                encoding,
                order,
            ),
            Aim(metric, tuple(subject_to or ()), confidence, positive),
            out,
            refer=refer,
            refer_subject_to=refer_subject_to,
            method=method,
            models=models,
            folds=folds,
            time_budget=time_budget,
            insight=insight,
            onnx=onnx,
            calibration=calibration,
            jobs=jobs,
            backend=backend,
            seed=seed,
            as_json=as_json,
            quiet=quiet,
        )


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
    from metricfit.cli.compare import run_compare
    from metricfit.cli.output_paths import claimed_folder

    with claimed_folder(out):
        run_compare(
            TableOptions(
                tuple(data),
                target,
                group,
                time,
                tuple(drop or ()),
                tuple(category or ()),
                skip_unlabelled,
                sep,
                decimal,
                encoding,
                order,
            ),
            Aim(metric, tuple(subject_to or ()), confidence, positive),
            out,
            folds=folds,
            jobs=jobs,
            backend=backend,
            methods=method,
            max_rows=max_rows,
            time_budget=time_budget,
            seed=seed,
            as_json=as_json,
            quiet=quiet,
        )


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
    from metricfit.cli.evaluate import run_evaluate

    table = TableOptions(
        tuple(data), target, group, skip_unlabelled=skip_unlabelled, sep=sep, decimal=decimal, encoding=encoding
    )
    run_evaluate(model, table, threshold=threshold, report=report, as_json=as_json, quiet=quiet)


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
    from metricfit.cli.predict import run_predict

    text = {"sep": sep, "decimal": decimal, "encoding": encoding}
    run_predict(model, data, out, text, id_columns=id_columns or (), threshold=threshold, as_json=as_json, quiet=quiet)


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
    from metricfit.cli.export import run_export

    text = {"sep": sep, "decimal": decimal, "encoding": encoding}
    run_export(model, onnx, data or (), text, as_json=as_json, quiet=quiet)


def metrics(as_json: options.AsJson = False) -> None:
    """List the metrics with their formulas over true and false positives and negatives."""
    from metricfit.cli.terminal import print_result
    from metricfit.metrics import registry

    formulas = {repr(entry): entry.summary for entry in map(registry.find, registry.names())}
    width = max(map(len, formulas))
    lines = [f"{name:{width}}  {formula}" for name, formula in formulas.items()]
    listed = [{"name": name, "formula": formula} for name, formula in formulas.items()]
    print_result({"metrics": listed}, as_json, lines)


def datasets(as_json: options.AsJson = False) -> None:
    """List the datasets of metricfit.data.load and fetch: their size, positive class and source."""
    from metricfit.cli.terminal import print_result
    from metricfit.data.datasets import CATALOGUE, names

    listed, lines = [], []
    width = max(map(len, names()))
    for name in names():
        entry = CATALOGUE[name]
        listed.append(
            {
                "name": name,
                "rows": entry.rows,
                "positives": entry.positives,
                "positive": entry.positive,
                "source": entry.source,
                "fetch": entry.openml is not None,
            }
        )
        counts = f"{entry.rows} rows, {entry.positives} positive"
        lines.append(f"{name:{width}}  {counts}: {entry.positive}; {entry.source}")
    print_result({"datasets": listed}, as_json, lines)
