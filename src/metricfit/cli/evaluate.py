"""``metricfit evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.markup import escape
from rich.table import Table

from metricfit.cli import options
from metricfit.cli.command_rows import title_data
from metricfit.cli.output_paths import check_file
from metricfit.cli.saved_model import check_threshold, load_model
from metricfit.cli.scored_data import scored_rows
from metricfit.cli.terminal import command_line, print_message, print_result, status
from metricfit.core.counts import Counts
from metricfit.data.labels import quote_label
from metricfit.data.text_format import TextOptions
from metricfit.metrics import Metric, averaged, get_metric
from metricfit.report.findings import requirements_on
from metricfit.report.model_decisions import (
    decision_counts,
    metric_intervals,
    metric_label,
    metric_values,
    metrics_without_parameters,
)
from metricfit.report.pages import write_evaluation_page
from metricfit.tabular import MetricClassifier
from metricfit.tabular.scored_rows import ScoredRows

MAX_COLUMNS = 12  # classes side by side on a terminal


def evaluate(
    model: options.ModelFolder,
    data: options.Data,
    target: Annotated[str, typer.Option("--target", help="Name of the column with the labels.")],
    threshold: options.Threshold = None,
    report: Annotated[Path | None, typer.Option("--report", help="A new HTML file for a report.")] = None,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Compute the metrics of a saved model on labelled rows."""
    if report is not None:
        check_file(report, "--report")
    classifier = load_model(model)
    check_threshold(classifier, threshold)
    written = TextOptions(sep, decimal, encoding)
    X, y = scored_rows(classifier, data, written, target, doing="Evaluating", quiet=quiet)
    _warn_of_absent_classes(classifier, y)
    with status("Evaluating ...", quiet):
        result = _evaluate(classifier, X, y, threshold)
        if report is not None:
            page = write_evaluation_page(
                classifier, X, y, report, threshold=threshold, data=title_data(data), command=command_line()
            )
            result["report"] = str(page)
    print_result(result, as_json, _lines(result))


def _warn_of_absent_classes(model: MetricClassifier, y: pd.Series) -> None:
    """Report classes without rows."""
    absent = [quote_label(label) for label in model.classes_.tolist() if not (y == label).any()]
    if absent:
        print_message(
            f"Warning: no row has the class {' or '.join(absent)}; metrics that divide by its rows are 0 here, and say "
            "nothing about the model."
        )


def _evaluate(model: MetricClassifier, X: ScoredRows, y: pd.Series, threshold: float | None) -> dict[str, Any]:
    """Compute the counts and all metrics with intervals, the model's metric first."""
    counts = decision_counts(model, X, y, threshold)
    metrics = list(dict.fromkeys([get_metric(model.metric), *metrics_without_parameters()]))
    intervals = metric_intervals(model, X, y, threshold, metrics)
    if len(model.classes_) > 2:
        return _several_classes(model, X, y, counts, metrics, intervals)
    result: dict[str, Any] = {"rows": len(y), "threshold": model.threshold_ if threshold is None else threshold}
    if threshold is None and model.refer_region_ is not None:
        result["referred"] = len(y) - int(counts.n)
    result |= {name: int(count) for name, count in zip(("tp", "fp", "fn", "tn"), counts, strict=True)}
    result |= metric_values(model, X, y, counts, metrics)
    negative = next(label for label in model.classes_ if label != model.pos_label_)
    requirements = {
        text: {"value": requirement.value, "held": requirement.met}
        for text, requirement in requirements_on(model, counts).items()
    }
    return result | {
        "positive": model.pos_label_,
        "negative": negative,
        "requirements": requirements,
        "intervals": intervals,
    }


def _several_classes(
    model: MetricClassifier,
    X: ScoredRows,
    y: pd.Series,
    counts: Counts,
    metrics: list[Metric],
    intervals: dict[str, tuple[float, float] | None],
) -> dict[str, Any]:
    """Return averaged metrics, the metrics of each class, and the confusion matrix."""
    result: dict[str, Any] = {"rows": len(y)}
    result |= {metric_label(model, metric): float(averaged(metric, counts, model.average)) for metric in metrics}
    result["intervals"] = {metric_label(model, metric): intervals[metric.name] for metric in metrics}
    labels = [str(label) for label in model.classes_]
    shown = dict.fromkeys([metrics[0], *map(get_metric, ("precision", "recall", "f1"))])
    values = {metric.name: metric(counts).tolist() for metric in shown if not metric.whole_matrix}
    result["classes"] = {
        label: {"rows": int(counts.positives[index]), "predicted": int(counts.predicted[index])}
        | {name: by_class[index] for name, by_class in values.items()}
        for index, label in enumerate(labels)
    }
    matrix = pd.crosstab(y.to_numpy(), model.predict(X)).reindex(
        index=model.classes_, columns=model.classes_, fill_value=0
    )
    rows = matrix.to_numpy().tolist()
    result["confusion"] = {label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, rows, strict=True)}
    return result


def _lines(result: dict[str, Any]) -> list[str | Table]:
    """Write the result as text: the decisions by class, the requirements, then every metric with its interval."""
    lines: list[str | Table] = []
    if "positive" in result:
        lines += _decision_lines(result)
    else:
        lines.append(f"{result['rows']} rows of {len(result['classes'])} classes.")
    for text, requirement in result.get("requirements", {}).items():
        held = "held" if requirement["held"] else "NOT held"
        lines.append(f"Requirement {text}: {held} ({_short(requirement['value'])}).")
    for name, interval in result["intervals"].items():
        ends = "" if interval is None else f" (95 % interval {_short(interval[0])} to {_short(interval[1])})"
        lines.append(f"{name}: {_short(result[name])}{ends}")
    for name, corner in (("classes", "class"), ("confusion", "true / predicted")):
        by_class = result.get(name, {})
        if name == "confusion" and len(by_class) > MAX_COLUMNS:
            lines.append(f"The confusion matrix of {len(by_class)} classes is too wide to print; --json has it.")
        elif by_class:
            table = Table(corner, *map(escape, next(iter(by_class.values()))))
            for label, values in by_class.items():
                table.add_row(escape(label), *map(_short, values.values()))
            lines.append(table)
    return lines + ([f"Report: {result['report']}"] if "report" in result else [])


def _decision_lines(result: dict[str, Any]) -> list[str | Table]:
    """Write the rows of the two classes, the threshold and the confusion matrix."""
    positive, negative = quote_label(result["positive"]), quote_label(result["negative"])
    tp, fp, fn, tn = (result[name] for name in ("tp", "fp", "fn", "tn"))
    matrix = Table("", escape(f"called {positive}"), escape(f"called {negative}"))
    matrix.add_row(escape(f"is {positive}"), str(tp), str(fn))
    matrix.add_row(escape(f"is {negative}"), str(fp), str(tn))
    rows = f"{result['rows']} rows: {tp + fn} are {positive} (the positive class), {fp + tn} are {negative}."
    if "referred" in result:
        rows = rows.removesuffix(".") + f", and {result['referred']} are referred to a person and do not count."
    threshold = result["threshold"]
    at = "of its own for each row, by its costs" if threshold is None else _short(threshold)
    return [rows, f"Threshold on the probability of {positive}: {at}", matrix]


def _short(value: Any) -> str:
    """Write a number with four digits; --json has all of them."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
