"""The signatures of all commands, and the value that their options are passed on as.

What a command does is in the module with its name, imported when it is called. Nothing here may import pandas or
scikit-learn, so that ``--help`` takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

Data = Annotated[
    list[Path],
    typer.Argument(
        help="The table: CSV (also .csv.gz), TSV, Parquet, Arrow or JSON lines. Several files, a folder or a pattern "
        "such as 'parts/*.parquet' are read as one table; - is standard input.",
    ),
]
Separator = Annotated[
    str | None, typer.Option("--sep", help="The separator of a text table, such as ';' or tab; by default guessed.")
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="The decimal mark of a text table, . or ,; by default guessed.")
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="The encoding of a text table, such as cp1252; by default guessed."),
]
ModelFolder = Annotated[Path, typer.Argument(help="The folder of a saved model, or the --out folder of fit.")]
Target = Annotated[str, typer.Option("--target", help="Name of the column to predict.")]
MetricName = Annotated[
    str,
    typer.Option(
        "--metric",
        help="The metric to optimise, such as f1 or 'fbeta(beta=2)' (see metricfit metrics), or a formula over tp, fp, "
        "fn, tn and n, such as '2*tp/(2*tp + fp + fn)' or 'minimize(fp + 5*fn)'.",
    ),
]
Requirements = Annotated[
    list[str] | None,
    typer.Option(
        "--subject-to",
        help="A requirement on the decisions, such as 'recall >= 0.9'; may be repeated. With several classes, "
        "'recall[gold] >= 0.9' is about the class gold, and a requirement without a class applies to every class.",
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        "--confidence",
        help="The probability, such as 0.95, with which all requirements must hold on new rows. By default they are "
        "met on held-out rows only.",
    ),
]
Calibration = Annotated[
    float | None,
    typer.Option(
        "--calibration",
        help="The share of the rows, such as 0.3, to keep apart from training and choose the decision on. The tests of "
        "--confidence are exact there. By default the decision is chosen on cross-validated scores.",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(
        "--positive",
        help="The positive label. By default 1 of 0/1 and of -1/1, True of booleans, otherwise the rarer label.",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        help="The classes from the lowest to the highest, such as low,medium,high, for metrics that depend on it. By "
        "default the order of numbers, or the order that the target of a Parquet or Arrow file declares.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option("--group", help="Name of a column; rows with the same value are never split between folds."),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Name of a column of dates or numbers, by which rows are ordered: every fold is then judged by a model of "
        "earlier rows. The column is not learned from.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="Name of a column that is not learned from, such as an identifier; may be repeated."),
]
Category = Annotated[
    list[str] | None,
    typer.Option(
        "--category",
        help="Name of a column of codes, such as zip codes, whose numbers are not quantities; may be repeated.",
    ),
]
SkipUnlabelled = Annotated[
    bool, typer.Option("--skip-unlabelled", help="Leave out rows without a label, which are otherwise refused.")
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        min=0,
        max=1,
        help="A probability of the positive class to decide at, instead of the model's threshold; no row is then "
        "referred.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of the folds, the initial weights and the batches.")
]
Models = Annotated[
    str,
    typer.Option(
        "--models",
        help="The families of models, separated by commas: linear, kernel, boosting, boosting_small, "
        "boosting_metric, extra_trees, network. By default all but boosting_metric and network.",
    ),
]
Folds = Annotated[
    int | None,
    typer.Option("--folds", min=2, help="Number of folds; by default 8, 5 above 20,000 rows and 3 above 100,000."),
]
Jobs = Annotated[int, typer.Option("--jobs", min=-1, help="Folds that are fitted at a time; -1 for one per core.")]
Budget = Annotated[float, typer.Option("--time-budget", min=0.001, help="Seconds of training for each model.")]


#: Options that may be repeated.
REPEATED = ("data", "subject_to", "refer_subject_to", "drop", "category", "id_columns")


class Given(SimpleNamespace):
    """What the user typed: one attribute for each argument of the command.

    Attributes:
        data: The files.
        target: Name of the column with the labels.
        group: Name of the column with the groups, or None.
        time: Name of the column with the times, or None.
        drop: Columns that are not learned from.
        category: Columns of codes, which are categories although they look like numbers.
        skip_unlabelled: Whether rows without a label are left out, which are otherwise refused.
        sep: The separator of a text table; None to guess it.
        decimal: The decimal mark of a text table; None to guess it.
        encoding: The encoding of a text table; None to guess it.
        order: The classes from the lowest to the highest, separated by commas, or None.
        metric: The metric.
        subject_to: The requirements.
        confidence: The probability with which the requirements must hold on new rows, or None.
        positive: The text of the positive label, or None to choose it.
    """

    data: Sequence[Path] = ()
    target: str = ""
    group: str | None = None
    time: str | None = None
    drop: Sequence[str] = ()
    category: Sequence[str] = ()
    skip_unlabelled: bool = False
    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    order: str | None = None
    metric: str = "f1"
    subject_to: Sequence[str] = ()
    confidence: float | None = None
    positive: str | None = None
    as_json: bool = False
    quiet: bool = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            **{name: () if name in REPEATED and value is None else value for name, value in arguments.items()}
        )

    @property
    def text(self) -> dict[str, str | None]:
        """How text tables are written."""
        return {"sep": self.sep, "decimal": self.decimal, "encoding": self.encoding}

    def words(self) -> list[str]:
        """Return the options about the table and the aim as words of a command."""
        words = [*map(str, self.data), "--target", self.target]
        words += ["--skip-unlabelled"] if self.skip_unlabelled else []
        for name in ("drop", "category", "group", "time", *self.text, "order", "metric", "subject_to", "confidence"):
            value = getattr(self, name)
            values = [] if value is None else [value] if isinstance(value, (str, float)) else value
            words += [word for each in values for word in (f"--{name.replace('_', '-')}", str(each))]
        return words if self.positive is None else [*words, "--positive", self.positive]


def _run(command: str, arguments: dict[str, Any]) -> None:
    """Run a command: ``run`` of the module with its name."""
    import_module(f"metricfit.cli.{command}").run(Given(**arguments))


def doctor(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="The table to train on, and further ones, such as the rows to test on, which are compared with it. "
            "Each is a file, a folder or a pattern; - is standard input.",
        ),
    ],
    target: Target,
    subject_to: Requirements = None,
    confidence: Confidence = None,
    positive: Positive = None,
    group: Group = None,
    time: Time = None,
    drop: Drop = None,
    category: Category = None,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Say what looks wrong in a table before anything is trained, the most serious first."""
    _run("doctor", locals())


def fit(
    data: Data,
    target: Target,
    out: Annotated[Path, typer.Option("--out", help="A new folder for the model and its report.")],
    metric: MetricName = "f1",
    subject_to: Requirements = None,
    confidence: Confidence = None,
    calibration: Calibration = None,
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
    positive: Positive = None,
    group: Group = None,
    time: Time = None,
    drop: Drop = None,
    category: Category = None,
    skip_unlabelled: SkipUnlabelled = False,
    order: Order = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="A method of compare, such as 'support vectors', in place of --models."),
    ] = None,
    models: Models = "auto",
    folds: Folds = None,
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
    jobs: Jobs = -1,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            help="Where to train: threads of this process, or ray or dask, with all folds of all models at a time.",
        ),
    ] = "threads",
    seed: Seed = 0,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier for a metric, choose its threshold, and write the model and a report."""
    _run("fit", locals())


def compare(
    data: Data,
    target: Target,
    metric: MetricName = "f1",
    subject_to: Requirements = None,
    confidence: Confidence = None,
    positive: Positive = None,
    group: Group = None,
    time: Time = None,
    drop: Drop = None,
    category: Category = None,
    skip_unlabelled: SkipUnlabelled = False,
    order: Order = None,
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
    time_budget: Budget = 300.0,
    seed: Seed = 0,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare ways to train a classifier on identical folds, and recommend one."""
    _run("compare", locals())


def evaluate(
    model: ModelFolder,
    data: Data,
    target: Annotated[str, typer.Option("--target", help="Name of the column with the labels.")],
    threshold: Threshold = None,
    report: Annotated[Path | None, typer.Option("--report", help="A new HTML file for a report.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Name of a column; the report then has the values of each group.")
    ] = None,
    skip_unlabelled: SkipUnlabelled = False,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compute the metrics of a saved model on labelled rows."""
    _run("evaluate", locals())


def predict(
    model: ModelFolder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="A new file for the predictions, .csv or .parquet.")],
    id_columns: Annotated[
        list[str] | None,
        typer.Option("--id", help="Name of a column that is copied to the predictions; may be repeated."),
    ] = None,
    threshold: Threshold = None,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict labels and probabilities of new rows with a saved model.

    A file with a header and no rows gives predictions with a header and no rows.
    """
    _run("predict", locals())


def export(
    model: ModelFolder,
    onnx: Annotated[Path, typer.Option("--onnx", help="A new file for the graph, .onnx.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="A table, such as the training rows, on whose rows the labels of the graph and of the model are "
            "compared; may be repeated. By default rows are made up.",
        ),
    ] = None,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a saved model as one ONNX graph, compare it with the model, and time it."""
    _run("export", locals())


def metrics(as_json: AsJson = False) -> None:
    """List the metrics with their formulas over true and false positives and negatives."""
    _run("metrics", locals())
