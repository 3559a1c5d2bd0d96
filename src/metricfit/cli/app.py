"""metricfit on the command line: fit, compare, evaluate, predict, metrics, datasets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from metricfit.cli import pages
from metricfit.cli.errors import UserError
from metricfit.cli.tables import check_classes, read_table, split_target
from metricfit.data import names as dataset_names
from metricfit.estimators import MetricClassifier
from metricfit.experiments.cells import BACKENDS, CellError
from metricfit.experiments.cells import Progress as CellProgress
from metricfit.experiments.compare import Comparison
from metricfit.experiments.compare import compare as compare_methods
from metricfit.metrics import get_metric, parse_requirement
from metricfit.metrics import names as metric_names
from metricfit.metrics.curves import InfeasibleError

app = typer.Typer(
    name="metricfit",
    help="Name the metric you are judged by; get a classifier trained for it, and the evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)

Data = Annotated[Path, typer.Argument(help="CSV (also .gz), Parquet, Arrow or JSON lines.")]
Target = Annotated[str, typer.Option("--target", help="The column to predict.")]
MetricName = Annotated[str, typer.Option("--metric", help="What you are judged by, such as f1 or 'fbeta(beta=2)'.")]
Requirements = Annotated[list[str] | None, typer.Option("--subject-to", help="'recall >= 0.9'; may be repeated.")]
Positive = Annotated[str | None, typer.Option("--positive", help="The positive label; by default the rarer one.")]
Group = Annotated[str | None, typer.Option("--group", help="Rows with one value of this column stay together.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Seed = Annotated[int, typer.Option("--seed")]
Network = Annotated[str, typer.Option("--network", help="auto, tabm, embedded or mlp.")]
Members = Annotated[int, typer.Option("--members", help="Folds, each held out by one member.")]
Budget = Annotated[float, typer.Option("--time-budget", help="Seconds of training, of each model.")]


def told(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose user's mistakes end in one paragraph and exit code 2."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (UserError, InfeasibleError, CellError, ModuleNotFoundError) as error:
            _fail(str(error))
        except (ValueError, TypeError, OSError) as error:
            _fail(str(error) or type(error).__name__)
        except KeyboardInterrupt:
            err.print("Interrupted. What was finished is kept; run the same command again to go on.")
            raise typer.Exit(130) from None

    return run


def _fail(message: str) -> None:
    err.print("Error: " + " ".join(message.split()), markup=False)
    raise typer.Exit(2)


@app.command()
@told
def fit(
    data: Data,
    target: Target,
    to: Annotated[Path, typer.Option("--out", help="A new folder, for the model and its report.")],
    metric: MetricName = "f1",
    subject_to: Requirements = None,
    positive: Positive = None,
    group: Group = None,
    network: Network = "auto",
    members: Members = 8,
    time_budget: Budget = 300.0,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier for the metric, choose its threshold, write the model and a report."""
    _check_words(metric, subject_to)
    if to.exists() and any(to.iterdir()):
        raise UserError(f"{to} is not empty; give a new folder.")
    X, y, groups = _rows(data, target, group)
    model = MetricClassifier(
        metric,
        subject_to=subject_to or None,
        network=network,
        members=members,
        time_budget=time_budget,
        pos_label=_positive(y, positive),
        random_state=seed,
    )
    with err.status("Training ...") if not quiet else _silence():
        model.fit(X, y.to_numpy(), groups=groups)
    model.save(to / "model")
    report = pages.of_model(model, data.name, target, to / "report.html")
    found = {"metric": metric, "out_of_fold": model.value_, "threshold": model.threshold_}
    found |= {"interval": model.threshold_interval_, "model": str(to / "model"), "report": str(report)}
    _print(found, as_json, lines=[_out_of_fold(model, metric), f"Model: {to / 'model'}", f"Report: {report}"])


@app.command()
@told
def compare(
    data: Data,
    target: Target,
    metric: MetricName = "f1",
    subject_to: Requirements = None,
    positive: Positive = None,
    group: Group = None,
    to: Annotated[Path, typer.Option("--out", help="Where cells and the report are kept.")] = Path("metricfit-compare"),
    folds: Annotated[int, typer.Option("--folds", help="How many parts the table is cut into.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", help="Cells at a time.")] = 1,
    backend: Annotated[str, typer.Option("--backend", help=", ".join(BACKENDS))] = "loky",
    network: Network = "auto",
    members: Members = 4,
    time_budget: Budget = 60.0,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare ways to train and to choose a threshold, on identical folds; say which to use."""
    _check_words(metric, subject_to)
    X, y, groups = _rows(data, target, group)
    labels = _zero_one(y, _positive(y, positive))
    with _bar(quiet) as watch:
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
            time_budget=time_budget,
        )
    report = pages.of_comparison(found, data.name, target, subject_to or (), to / "report.html")
    summary = {
        "metric": metric,
        "verdict": found.verdict,
        "methods": [
            {"name": row.name, "mean": row.mean, "values": row.values, "seconds": row.seconds} for row in found.rows
        ],
        "report": str(report),
    }
    if not as_json:
        out.print(_table(found))
    _print(summary, as_json, lines=[found.verdict, f"Report: {report}"])


@app.command()
@told
def evaluate(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    data: Data,
    target: Annotated[str | None, typer.Option("--target", help="The column with the labels.")] = None,
    threshold: Annotated[float | None, typer.Option("--threshold", help="Another than the model's.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a report here.")] = None,
    as_json: AsJson = False,
) -> None:
    """A model's metrics on labelled rows."""
    loaded = _model(model)
    if target is None:
        raise UserError("Give --target, the column with the labels.")
    features, y = split_target(read_table(data), target, str(data))
    X = _known_columns(loaded, features, data)
    found = _metrics(loaded, X, y, threshold)
    if report is not None:
        found["report"] = str(pages.of_evaluation(loaded, X, y, data.name, threshold, report))
    _print(found, as_json, lines=[f"{name}: {value}" for name, value in found.items()])


@app.command()
@told
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    data: Data,
    to: Annotated[Path, typer.Option("--out", help="A CSV file for the predictions.")],
    as_json: AsJson = False,
) -> None:
    """Labels and probabilities for new rows."""
    loaded = _model(model)
    X = _known_columns(loaded, read_table(data), data)
    probabilities = loaded.predict_proba(X)
    frame = pd.DataFrame({"predicted": loaded.predict(X)})
    for label, column in zip(loaded.classes_, probabilities.T, strict=True):
        frame[f"probability of {label}"] = column
    unfinished = to.with_name(f".{to.name}.unfinished")
    frame.to_csv(unfinished, index=False)
    unfinished.replace(to)
    _print({"rows": len(frame), "file": str(to)}, as_json, lines=[f"{len(frame)} rows: {to}"])


@app.command()
def metrics(as_json: AsJson = False) -> None:
    """The names of metrics."""
    _print({"metrics": metric_names()}, as_json, lines=list(metric_names()))


@app.command()
def datasets(as_json: AsJson = False) -> None:
    """The names of datasets that metricfit.data.load and fetch know."""
    _print({"datasets": list(dataset_names())}, as_json, lines=list(dataset_names()))


def main() -> None:
    """The entry point."""
    app()


def _check_words(metric: str, subject_to: list[str] | None) -> None:
    get_metric(metric)
    for each in subject_to or ():
        parse_requirement(each)


def _rows(data: Path, target: str, group: str | None) -> tuple[pd.DataFrame, pd.Series, Any]:
    frame = read_table(data)
    X, y = split_target(frame, target, str(data))
    check_classes(y, str(data))
    if group is None:
        return X, y, None
    if group not in X.columns:
        raise UserError(f"{data} has no column {group!r} to group by.")
    return X.drop(columns=group), y, X[group].to_numpy()


def _positive(y: pd.Series, positive: str | None) -> Any:
    """The positive label: the one named, else the rarer of two."""
    counts = y.value_counts()
    if positive is None:
        return counts.index[-1] if len(counts) == 2 else None
    for label in counts.index:
        if str(label) == positive:
            return label
    shown = ", ".join(str(label) for label in counts.index[:10])
    raise UserError(f"No row has the label {positive!r}; the labels are {shown}.")


def _zero_one(y: pd.Series, positive: Any) -> Any:
    if y.nunique() != 2:
        raise UserError(
            f"compare is for two classes; the target has {y.nunique()}. Choose one against the rest in your table, or "
            "use fit, which takes several."
        )
    return (y == positive).to_numpy().astype(np.int64)


def _model(path: Path) -> MetricClassifier:
    if not path.exists():
        raise UserError(f"There is no model {path}.")
    return MetricClassifier.load(path)


def _known_columns(model: MetricClassifier, frame: pd.DataFrame, data: Path) -> pd.DataFrame:
    """The columns the model was trained on; others are left aside."""
    wanted = list(getattr(model, "feature_names_in_", frame.columns))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UserError(f"{data} lacks {len(missing)} of the columns the model was trained on: {shown}.")
    return frame[wanted]


def _metrics(model: MetricClassifier, X: pd.DataFrame, y: pd.Series, threshold: float | None) -> dict[str, Any]:
    unknown = sorted(set(y.unique()) - set(model.classes_), key=str)
    if unknown:
        raise UserError(f"Labels that the model does not know: {', '.join(map(str, unknown[:5]))}.")
    counts = pages.counts_of(model, X, y, threshold)
    found: dict[str, Any] = {"rows": len(y)}
    if len(model.classes_) == 2:
        at = model.threshold_ if threshold is None else threshold
        found |= {"threshold": at} | {
            key: int(value) for key, value in zip(("tp", "fp", "fn", "tn"), counts, strict=True)
        }
        found |= {name: float(get_metric(name)(counts)) for name in pages.plain_metrics()}
    else:
        found[str(model.metric)] = model.score(X, y.to_numpy())
    return found


def _out_of_fold(model: MetricClassifier, metric: str) -> str:
    at = "" if model.threshold_ is None else f" at threshold {model.threshold_:.4g}"
    return f"{metric} {model.value_:.3f}{at}, on rows each model had not seen."


def _table(found: Comparison) -> Table:
    table = Table("method", found.metric, "against tuned cross-entropy", "seconds")
    for row in found.rows:
        versus = (
            ""
            if row.versus is None
            else f"{row.versus.difference:+.3f} ({row.versus.interval[0]:+.3f} to {row.versus.interval[1]:+.3f})"
        )
        table.add_row(row.name, f"{row.mean:.3f}", versus, f"{row.seconds:.1f}")
    return table


class _silence:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


class _bar:
    """A progress bar over cells, with the time left."""

    def __init__(self, quiet: bool) -> None:
        self.bar = (
            None
            if quiet
            else Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=err,
                transient=True,
            )
        )

    def __enter__(self) -> Callable[[CellProgress], None] | None:
        if self.bar is None:
            return None
        self.bar.start()
        self.task = self.bar.add_task("comparing", total=None)
        return self._moved

    def _moved(self, progress: CellProgress) -> None:
        assert self.bar is not None
        self.bar.update(
            self.task, total=progress.total, completed=progress.done, description=progress.last or "comparing"
        )
        if not err.is_terminal:
            left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
            err.print(f"{progress.done} of {progress.total}: {progress.last}{left}", markup=False)

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _print(found: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found, default=_jsonable) + "\n")
        return
    for line in lines:
        out.print(line, markup=False)


def _jsonable(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


if __name__ == "__main__":
    main()
