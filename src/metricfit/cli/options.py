"""The options of all commands: one dataclass per command, whose docstring is the text of ``--help``.

What a command does is in its module, imported when it is called. Nothing here may import pandas or scikit-learn, so
that ``--help`` takes no time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import import_module
from inspect import Parameter, Signature, cleandoc
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_origin, get_type_hints

from typer import Argument, Option

Files = Annotated[list[Path], Argument()]
Model = Annotated[Path, Argument()]
Threshold = Annotated[float | None, Option(min=0, max=1)]
Seconds = Annotated[float, Option(min=0.001)]
Seed = Annotated[int, Option(min=0, max=2**31 - 1)]
Overwrite = Annotated[bool, Option("--overwrite")]

#: The options of all commands in the order of ``--help``, and the groups that it lists them in.
GROUPS = {
    "Goal": "target metric average subject_to confidence positive order refer refer_subject_to threshold",
    "Data": "data weight group time today drop category skip_unlabelled id_columns",
    "Validation": "folds calibration max_rows",
    "Compute": "method predictions networks models quality time_budget jobs backend seed",
    "Reading": "sep decimal encoding",
    "Output": "out onnx report picture insight overwrite all_metrics as_json quiet help",
}


def _families() -> list[str]:
    return list(import_module("metricfit.tabular.families.choice").NAMES)


def _methods() -> list[str]:
    return [method.name for method in import_module("metricfit.tabular.compare.methods").METHODS]


#: The values that the shell completes, by the names of options; files are completed by the shell itself.
COMPLETED: dict[str, Callable[[], Sequence[str]]] = {
    "metric": lambda: import_module("metricfit.metrics").names(),
    "average": lambda: ("macro", "micro", "weighted"),
    "quality": lambda: ("fast", "default", "best"),
    "models": _families,
    "method": _methods,
}


def _completion(name: str) -> Callable[[str], list[str]] | None:
    """Return what completes the values of an option; None if the shell completes files."""
    if name not in COMPLETED:
        return None

    def complete(incomplete: str) -> list[str]:
        chosen, comma, last = incomplete.rpartition(",") if name == "models" else ("", "", incomplete)
        values = [f"{chosen}{comma}{value}" for value in COMPLETED[name]() if value.startswith(last)]
        in_bash = os.environ.get("_METRICFIT_COMPLETE") == "complete_bash"  # which inserts values as they are
        return (
            [value.replace(" ", "\\ ").replace("(", "\\(").replace(")", "\\)") for value in values]
            if in_bash
            else values
        )

    return complete


def describe_fields(cls: type) -> dict[str, str]:
    """Return the descriptions of the fields of a class, as its docstring and its bases' docstrings list them.

    >>> describe_fields(Evaluate)["target"]
    'Name of the column with the labels.'
    """
    texts: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        section = cleandoc(owner.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
        texts |= {name: " ".join(text.split()) for name, text in entries}
    return texts


@dataclass(kw_only=True)
class Options:
    """The options of a command that takes no other.

    Attributes:
        as_json: Print only JSON on standard output.
    """

    as_json: Annotated[bool, Option("--json")] = False
    #: Names of inherited options that the command does not have.
    without: ClassVar[str] = ""
    #: Whether running the command again continues an interrupted run.
    resumes: ClassVar[bool] = False

    @classmethod
    def help(cls) -> str:
        """Return what the command does."""
        return cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")[0]

    @classmethod
    def command(cls) -> Callable[..., None]:
        """Return the function of the command: ``run`` of its module, with these options as its signature."""

        def run(**typed: Any) -> None:
            import_module(f"metricfit.cli.{cls.__name__.lower()}").run(cls(**typed))

        hints, texts = get_type_hints(cls, include_extras=True), describe_fields(cls)
        order = ["model", *" ".join(GROUPS.values()).split()]
        shown = sorted(
            (entry for entry in fields(cls) if entry.name not in cls.without.split()),
            key=lambda entry: order.index(entry.name),
        )
        parameters = [_parameter(entry, hints[entry.name], texts[entry.name]) for entry in shown]
        run.__doc__, run.__dict__["__signature__"] = cls.help(), Signature(parameters)
        return run


def _parameter(declared: Field[Any], hint: Any, text: str) -> Parameter:
    """Return a field as a parameter that typer reads: its type, its default and its help."""
    kind, info = (hint.__origin__, copy(hint.__metadata__[0])) if get_origin(hint) is Annotated else (hint, Option())
    info.help, info.autocompletion = text, _completion(declared.name)
    default = Parameter.empty if declared.default is MISSING else declared.default
    if declared.default_factory is not MISSING:
        default = declared.default_factory()
    return Parameter(declared.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


class Metrics(Options):
    """List the metrics with their formulas over true and false positives and negatives.

    Example: metricfit metrics --json
    """


@dataclass(kw_only=True)
class TableOptions(Options):
    """What the user says about a table and the aim.

    Attributes:
        data: The table: CSV (also .csv.gz), TSV, Parquet, Arrow, JSON, a spreadsheet, or a table of SQLite or DuckDB
            such as loans.db::applications. Several files, a folder or a pattern such as 'parts/*.parquet' are read as
            one table; - is standard input.
        target: Name of the column to predict.
        weight: Name of a column with the weight of each row, at least 0. The column is not learned from.
        group: Name of a column; rows with the same value are never split between folds.
        time: Name of a column of dates or numbers, by which rows are ordered: every fold is then judged by a model of
            earlier rows. The column is not learned from.
        today: Name of a column with today's decisions, as labels or as 1 and 0. They are judged on the same rows as the
            model. The column is not learned from.
        drop: Name of a column that is not learned from, such as an identifier; may be repeated.
        category: Name of a column of codes, such as zip codes, whose numbers are not quantities; may be repeated.
        skip_unlabelled: Leave out rows without a label, which are otherwise refused.
        sep: The separator of a text table, such as ';' or tab; by default guessed.
        decimal: The decimal mark of a text table, . or ,; by default guessed.
        encoding: The encoding of a text table, such as cp1252; by default guessed.
        order: The classes from the lowest to the highest, such as low,medium,high, for metrics that depend on it. By
            default the order of numbers, or the order that the target of a Parquet or Arrow file declares.
        metric: The metric to optimise, such as f1 or 'fbeta(beta=2)' (see metricfit metrics), or a formula over tp, fp,
            fn, tn and n, such as '2*tp/(2*tp + fp + fn)' or 'minimize(fp + 5*fn)'.
        average: The average of the metric over several classes: macro, micro or weighted.
        subject_to: A requirement on the decisions, such as 'recall >= 0.9'; may be repeated. With several classes,
            'recall[gold] >= 0.9' is about the class gold, and a requirement without a class applies to every class.
        confidence: The probability, such as 0.95, with which all requirements must hold on new rows. By default they
            are met on held-out rows only.
        positive: The positive label. By default 1 of 0/1 and of -1/1, True of booleans, otherwise the rarer label.
        quiet: Show no progress.
    """

    data: Files
    target: str
    weight: str | None = None
    group: str | None = None
    time: str | None = None
    today: str | None = None
    drop: list[str] = field(default_factory=list)
    category: list[str] = field(default_factory=list)
    skip_unlabelled: Annotated[bool, Option("--skip-unlabelled")] = False
    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    order: str | None = None
    metric: str = "f1"
    average: str = "macro"
    subject_to: list[str] = field(default_factory=list)
    confidence: float | None = None
    positive: str | None = None
    quiet: Annotated[bool, Option("--quiet")] = False

    @property
    def text(self) -> dict[str, str | None]:
        """How text tables are written."""
        return {"sep": self.sep, "decimal": self.decimal, "encoding": self.encoding}

    def words(self) -> list[str]:
        """Return the options about the table and the aim as words of a command."""
        words = [*map(str, self.data), "--target", self.target, *["--skip-unlabelled"] * self.skip_unlabelled]
        aim = ("order", "metric", "subject_to", "confidence", "positive")
        average = ["average"] * (self.average != TableOptions.average)
        for name in ("drop", "category", "weight", "group", "time", "today", *self.text, *aim, *average):
            value = getattr(self, name)
            values = value if isinstance(value, list) else [] if value is None else [value]
            words += [word for each in values for word in (f"--{name.replace('_', '-')}", str(each))]
        return words


@dataclass(kw_only=True)
class Doctor(TableOptions):
    """Say what looks wrong in a table before anything is trained, the most serious first.

    Example: metricfit doctor loans.csv --target default

    Attributes:
        data: The table to train on, and further ones, such as the rows to test on, which are compared with it. Each is
            a file, a folder or a pattern; - is standard input.
    """

    without = "metric average order weight today skip_unlabelled quiet"


@dataclass(kw_only=True)
class Fit(TableOptions):
    """Train a classifier for a metric, choose its threshold, and write the model and a report.

    Example: metricfit fit loans.csv --target default --metric f1 --out loans

    Attributes:
        out: A new folder for the model and its report.
        overwrite: Replace the folder if it holds a model of fit.
        calibration: The share of the rows, such as 0.3, to keep apart from training and choose the decision on. The
            tests of --confidence are exact there. By default the decision is chosen on cross-validated scores.
        refer: Largest share of rows to refer to a person, such as 0.05.
        refer_subject_to: A requirement on the rows that are decided, such as 'precision >= 0.9'; may be repeated. The
            fewest rows that meet it are referred to a person, and at most --refer.
        method: A method of compare, such as 'support vectors', in place of --models.
        models: The families of models, separated by commas: linear, text, boosting_small, extra_trees, boosting,
            kernel, catboost, xgboost, in_context, tabicl, tabpfn, boosting_metric, network. By default linear,
            boosting_small, extra_trees, boosting and kernel; text only for tables with free text.
        quality: "fast" for linear and boosting_small alone, "best" for more models, as far as the time budget goes.
        folds: Number of folds; by default 8, 5 above 20,000 rows and 3 above 100,000.
        time_budget: Seconds of training. Models that would take longer are left out.
        insight: Show in the report which columns matter, and the values of the rows that are most wrong.
        onnx: Also write the model as a graph, model.onnx, and compare the labels on the training rows.
        jobs: Folds that are fitted at a time; -1 for one per core.
        backend: Where to train: threads of this process, or ray or dask, with all folds of all models at a time.
        seed: Seed of the folds, the initial weights and the batches.
    """

    out: Path
    overwrite: Overwrite = False
    calibration: float | None = None
    refer: Threshold = None
    refer_subject_to: list[str] = field(default_factory=list)
    method: str | None = None
    models: str = "auto"
    quality: str = "default"
    folds: Annotated[int | None, Option(min=2)] = None
    time_budget: Seconds = 300.0
    insight: bool = True
    onnx: Annotated[bool, Option("--onnx")] = False
    jobs: Annotated[int, Option(min=-1)] = -1
    backend: str = "threads"
    seed: Seed = 0


@dataclass(kw_only=True)
class Compare(TableOptions):
    """Compare ways to train a classifier on identical folds, and recommend one.

    Example: metricfit compare loans.csv --target default --metric f1

    Attributes:
        out: Folder for finished trainings and the report. By default metricfit-runs/TABLE-METRIC-DATE.
        calibration: The share of the training rows of each fold, such as 0.3, to choose decisions on. Models are not
            trained on them. By default decisions are chosen on cross-validated scores.
        folds: Number of folds.
        jobs: Trainings at a time; -1 for one per core.
        backend: Where to train: loky, threading, sequential, ray, dask.
        method: What to compare; may be repeated. A method of metricfit such as 'extra trees', or a classifier of your
            own such as mine:pipeline, an object or function of a module, also of a file in this folder. By default all
            methods that take seconds. LightGBM as it comes is always there.
        networks: Compare networks too, which take minutes.
        predictions: A file with the predictions of another program for the same rows in the same order; may be
            repeated. It holds labels, probabilities of the positive class, or a column per class; a column fold says
            which fold held each row out.
        max_rows: Rows to compare on; of a larger table a random sample is taken. By default 500000.
        time_budget: Seconds of training for each model.
        seed: Seed of the folds, the initial weights and the batches.
    """

    out: Path | None = None
    calibration: float | None = None
    folds: Annotated[int, Option(min=2)] = 5
    jobs: int = 1
    backend: str = "loky"
    method: list[str] = field(default_factory=list)
    networks: Annotated[bool, Option("--networks")] = False
    predictions: list[Path] = field(default_factory=list)
    max_rows: Annotated[int | None, Option(min=100)] = None
    time_budget: Seconds = 300.0
    seed: Seed = 0
    resumes = True


#: The aim of training, which a saved model has.
OF_TRAINING = "metric average subject_to confidence positive order"


@dataclass(kw_only=True)
class ModelOptions(TableOptions):
    """What the user says about a saved model and a table.

    Attributes:
        model: The folder of a saved model, or the --out folder of fit.
        threshold: A probability of the positive class to decide at, instead of the model's threshold; no row is then
            referred.
    """

    model: Model
    threshold: Threshold = None


@dataclass(kw_only=True)
class Evaluate(ModelOptions):
    """Compute the metrics of a saved model on labelled rows.

    Example: metricfit evaluate loans new.csv --target default

    Attributes:
        target: Name of the column with the labels.
        weight: Name of a column with the weight of each row, at least 0, by which rows count in all values.
        report: A new HTML file for a report.
        overwrite: Replace the report if it exists.
        all_metrics: Print every metric; by default the model's and six more.
        group: Name of a column; the report then has the values of each group.
        time: Name of a column of dates or numbers; the value is then measured by period too.
    """

    report: Path | None = None
    overwrite: Overwrite = False
    all_metrics: Annotated[bool, Option("--all")] = False
    without = f"{OF_TRAINING} drop category"


@dataclass(kw_only=True)
class Predict(ModelOptions):
    """Predict labels and probabilities of new rows with a saved model.

    A file with a header and no rows gives predictions with a header and no rows.

    Example: metricfit predict loans new.csv --out labels.csv --id customer

    Attributes:
        out: A new file for the predictions, .csv or .parquet.
        overwrite: Replace the file if it exists.
        id_columns: Name of a column that is copied to the predictions; may be repeated.
    """

    target: str = ""
    out: Path
    overwrite: Overwrite = False
    id_columns: Annotated[list[str], Option("--id")] = field(default_factory=list)
    without = f"{OF_TRAINING} weight target group time today drop category skip_unlabelled"


@dataclass(kw_only=True)
class Watch(ModelOptions):
    """Test whether the requirements of a saved model still hold, on all rows labelled since deployment.

    It may run every day on all rows so far: the tests allow any number of looks. The exit code is 3 after an alarm.

    Example: metricfit watch loans 'labelled/*.csv' --target default --time day --picture watch.svg

    Attributes:
        target: Name of the column with the labels.
        time: Name of a column of dates or numbers, by which rows are ordered, as their labels arrive. By default rows
            stay in the order of the files.
        today: Name of a column with the decisions that were made about the rows, as labels or as 1 and 0. The other
            columns are then not needed. By default the model decides the rows.
        subject_to: A requirement to watch, such as 'recall >= 0.85'; may be repeated. By default the model's own.
        confidence: The probability that no alarm is ever raised while all requirements hold.
        picture: A file, .svg, .png or .pdf, for the values and the evidence over time; it is replaced.
    """

    picture: Path | None = None
    confidence: float | None = 0.95
    without = "metric average positive order weight group drop category threshold"


@dataclass(kw_only=True)
class Export(ModelOptions):
    """Write a saved model as one ONNX graph, compare it with the model, and time it.

    Example: metricfit export loans --onnx loans.onnx --data loans.csv

    Attributes:
        onnx: A new file for the graph, .onnx.
        overwrite: Replace the file if it exists.
        data: A table, such as the training rows, on whose rows the labels of the graph and of the model are compared;
            may be repeated. By default rows are made up.
    """

    target: str = ""
    onnx: Path
    overwrite: Overwrite = False
    data: list[Path] = field(default_factory=list)
    without = f"{OF_TRAINING} weight target group time today drop category skip_unlabelled threshold"
