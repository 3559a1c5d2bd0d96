"""``metricfit evaluate`` and ``metricfit predict``: a saved model on other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.markup import escape
from rich.table import Table

from metricfit._files import new_file
from metricfit.cli import options
from metricfit.cli.errors import UserError
from metricfit.cli.printing import command_line, say, show, working
from metricfit.cli.rows import check_file
from metricfit.cli.tables import read_table, shown, split_target
from metricfit.errors import QUOTED, quote, shorten
from metricfit.metrics import averaged, get_metric
from metricfit.report.findings import requirements_on
from metricfit.report.model_decisions import (
    decision_counts,
    metric_intervals,
    metric_label,
    metrics_without_parameters,
)
from metricfit.report.pages import write_evaluation_page
from metricfit.tabular import MetricClassifier

WIDEST = 12  # classes side by side
WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False, write_page_checksum=True),
}


def evaluate(
    model: options.ModelFolder,
    data: options.Data,
    target: Annotated[str, typer.Option("--target", help="The column with the labels.")],
    threshold: Annotated[
        float | None, typer.Option("--threshold", min=0, max=1, help="A probability, in place of the model's own.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="A new HTML file for a report.")] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """A model's metrics on labelled rows."""
    if report is not None:
        check_file(report, "--report")
    loaded = _model(model)
    features, y = split_target(read_table(data, target), target, str(data))
    X = _known_columns(loaded, features, data)
    with working("Judging ...", quiet):
        _check_labels(loaded, y)
        found = _metrics(loaded, X, y, threshold)
        if report is not None:
            page = write_evaluation_page(
                loaded, X, y, report, threshold=threshold, data=data.name, command=command_line()
            )
            found["report"] = str(page)
    show(found, as_json, _lines(found))


def predict(
    model: options.ModelFolder,
    data: options.Data,
    to: Annotated[Path, typer.Option("--out", help="A new file for the predictions, .csv or .parquet.")],
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Labels and probabilities for new rows."""
    check_file(to, "--out")
    if to.suffix.lower() not in WRITERS:
        raise UserError(f"Predictions are written as {' or '.join(WRITERS)}; {to.name!r} ends in neither.")
    loaded = _model(model)
    X = _known_columns(loaded, read_table(data), data)
    with working("Predicting ...", quiet):
        probabilities = loaded.predict_proba(X)
        frame = pd.DataFrame({"predicted": loaded.predict(X)})
    for label, column in zip(loaded.classes_, probabilities.T, strict=True):
        frame[f"probability of {label}"] = column
    with new_file(to) as unfinished:
        WRITERS[to.suffix.lower()](frame, unfinished)
    show({"rows": len(frame), "file": str(to)}, as_json, [f"{len(frame)} rows: {to}"])


def _model(path: Path) -> MetricClassifier:
    if not path.exists():
        raise UserError(f"There is no model {path}.")
    inside = path / "model"  # where fit puts it in the folder that it was given
    return MetricClassifier.load(inside if inside.is_dir() else path)


def _known_columns(model: MetricClassifier, frame: pd.DataFrame, data: Path) -> pd.DataFrame:
    """The columns the model was trained on; others are left aside."""
    wanted = list(getattr(model, "feature_names_in_", frame.columns))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        shown = ", ".join(quote(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UserError(f"{data} lacks {len(missing)} of the columns the model was trained on: {shown}.")
    return frame[wanted]


def _check_labels(model: MetricClassifier, y: pd.Series) -> None:
    """Labels that the model knows; of those, a class without a row is told."""
    unknown = sorted(set(y.unique()) - set(model.classes_), key=str)
    if unknown:
        listed, known = (
            ", ".join(shorten(label, QUOTED) for label in several[:5]) for several in (unknown, list(model.classes_))
        )
        raise UserError(f"Labels that the model does not know: {listed}. It was trained on {known}.")
    absent = [shown(each) for each in model.classes_.tolist() if not (y == each).any()]
    if absent:
        say(
            f"Warning: no row has the class {' or '.join(absent)}; metrics that divide by its rows are 0 here, and say "
            "nothing about the model."
        )


def _metrics(model: MetricClassifier, X: pd.DataFrame, y: pd.Series, threshold: float | None) -> dict[str, Any]:
    """The counts and every metric, the judged one first, with intervals; of several classes also class by class."""
    if threshold is not None and len(model.classes_) > 2:
        raise UserError(
            "--threshold is for two classes; of several, the largest sum of a class's log-probability and its tuned "
            "offset decides."
        )
    judged, counts = get_metric(model.metric), decision_counts(model, X, y, threshold)
    every = list(dict.fromkeys([judged, *metrics_without_parameters()]))
    found: dict[str, Any] = {"rows": len(y)}
    intervals = metric_intervals(model, X, y, threshold, every)
    if len(model.classes_) == 2:
        at = model.threshold_ if threshold is None else threshold
        found |= {"threshold": at} | {
            key: int(value) for key, value in zip(("tp", "fp", "fn", "tn"), counts, strict=True)
        }
        found |= {each.name: float(each(counts)) for each in every}
        found |= {"positive": model.pos_label_, "negative": next(c for c in model.classes_ if c != model.pos_label_)}
        results = requirements_on(model, counts)
        found["requirements"] = {text: {"value": each.value, "held": each.met} for text, each in results.items()}
        return found | {"intervals": intervals}
    found |= {metric_label(model, each): float(averaged(each, counts, model.average)) for each in every}
    found["intervals"] = {metric_label(model, each): intervals[each.name] for each in every}
    labels, predicted = [str(each) for each in model.classes_], model.predict(X)
    of_class = dict.fromkeys([judged, *map(get_metric, ("precision", "recall", "f1"))])
    values = {each.name: each(counts).tolist() for each in of_class if not each.whole_matrix}
    found["classes"] = {
        label: {"rows": int(counts.positives[at]), "predicted": int(counts.predicted[at])}
        | {name: each[at] for name, each in values.items()}
        for at, label in enumerate(labels)
    }
    crossed = pd.crosstab(y.to_numpy(), predicted).reindex(index=model.classes_, columns=model.classes_, fill_value=0)
    found["confusion"] = {
        true: dict(zip(labels, row, strict=True)) for true, row in zip(labels, crossed.to_numpy().tolist(), strict=True)
    }
    return found


def _lines(found: dict[str, Any]) -> list[str | Table]:
    """What a person reads: the decisions by class, requirements, then every metric with its interval."""
    lines: list[str | Table] = []
    if "positive" in found:
        lines += _decisions(found)
    else:
        lines.append(f"{found['rows']} rows of {len(found['classes'])} classes.")
    for text, result in found.get("requirements", {}).items():
        lines.append(f"Requirement {text}: {'held' if result['held'] else 'NOT held'} ({_short(result['value'])}).")
    for name, interval in found["intervals"].items():
        ends = "" if interval is None else f" (95 % interval {_short(interval[0])} to {_short(interval[1])})"
        lines.append(f"{name}: {_short(found[name])}{ends}")
    for name, corner in (("classes", "class"), ("confusion", "true / predicted")):
        by_class = found.get(name, {})
        if name == "confusion" and len(by_class) > WIDEST:
            lines.append(f"The confusion matrix of {len(by_class)} classes is too wide to print; --json has it.")
        elif by_class:
            table = Table(corner, *map(escape, next(iter(by_class.values()))))
            for label, values in by_class.items():
                table.add_row(escape(label), *map(_short, values.values()))
            lines.append(table)
    return lines + ([f"Report: {found['report']}"] if "report" in found else [])


def _decisions(found: dict[str, Any]) -> list[str | Table]:
    """The rows of the two classes, the threshold and the confusion matrix, by the classes' names."""
    positive, negative = shown(found["positive"]), shown(found["negative"])
    tp, fp, fn, tn = (found[key] for key in ("tp", "fp", "fn", "tn"))
    matrix = Table("", escape(f"called {positive}"), escape(f"called {negative}"))
    matrix.add_row(escape(f"is {positive}"), str(tp), str(fn))
    matrix.add_row(escape(f"is {negative}"), str(fp), str(tn))
    rows = f"{found['rows']} rows: {tp + fn} are {positive} (the positive class), {fp + tn} are {negative}."
    return [rows, f"Threshold on the probability of {positive}: {_short(found['threshold'])}", matrix]


def _short(value: Any) -> str:
    """As people read it; --json has all digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
