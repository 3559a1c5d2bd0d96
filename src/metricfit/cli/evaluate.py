"""``metricfit evaluate``."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from metricfit.cli.command_rows import check_named, title_data
from metricfit.cli.options import Evaluate
from metricfit.cli.output_paths import check_file
from metricfit.cli.scored_data import check_threshold, load_model, read_weights, scored_rows
from metricfit.cli.terminal import UserError, command_line, print_message, print_result, status, table_of_periods
from metricfit.data.columns import order_by_time, quote_label
from metricfit.report import formatting
from metricfit.report.evaluation_result import EvaluationResult, evaluation_result
from metricfit.report.todays_rule import read_today
from metricfit.tabular import MetricClassifier

#: What ``evaluate --json`` prints.
Result = EvaluationResult
MAX_COLUMNS = 12  # classes side by side on a terminal
#: The first six of these are printed after the model's metric; ``--all`` prints all metrics.
USUAL = ("auroc", "average_precision", "f1", "precision", "recall", "accuracy", "balanced_accuracy", "mcc")
SHOWN = 6


def run(options: Evaluate) -> None:
    """Compute the metrics of a saved model; ``options.Evaluate`` lists the options."""
    report, threshold = options.report, options.threshold
    check_named(options)
    if report is not None:
        check_file(report, "--report", options.overwrite)
    elif options.group is not None:
        raise UserError("--group is for the values by group in the report: give --report too.")
    classifier = load_model(options.model)
    check_threshold(classifier, threshold)
    names = [options.group, options.today, options.time, options.weight]
    X, y, columns = scored_rows(classifier, options, names, doing="Evaluating")
    times = columns.get(options.time or "")
    if times is not None:
        order = order_by_time(pd.Series(times, name=options.time))
        X, y, columns = X.take(order), y.iloc[order], {name: each[order] for name, each in columns.items()}
        times = times[order]
    groups = columns.get(options.group or "")
    weight = None if options.weight is None else read_weights(columns[options.weight], options.weight)
    classes = classifier.chosen_.names.in_order.tolist()
    today = None if options.today is None else read_today(columns[options.today], options.today, classes)
    _warn_of_absent_classes(classifier, y)
    with status("Evaluating ...", options.quiet):
        result = evaluation_result(classifier, X, y, threshold, today, times, weight) | {"report": None}
        if report is not None:
            from metricfit.report.model_page import write_evaluation_page  # loads what draws

            page = write_evaluation_page(
                classifier,
                X,
                y,
                report,
                threshold=threshold,
                data=title_data(options.data),
                command=command_line(),
                groups=groups,
                group=options.group,
                today=today,
                times=times,
                weight=weight,
            )
            result["report"] = str(page)
    print_result(result, options.as_json, _lines(result, all_metrics=options.all_metrics))


def _warn_of_absent_classes(model: MetricClassifier, y: pd.Series) -> None:
    """Report classes without rows."""
    absent = [quote_label(label) for label in model.classes_.tolist() if not (y == label).any()]
    if absent:
        print_message(
            f"Warning: no row has the class {' or '.join(absent)}; metrics that divide by its rows are not known here."
        )


def _lines(result: dict[str, Any], *, all_metrics: bool = False) -> list[str | Table]:
    """Write the result as text: the decisions by class, the comparison with training, then the metrics."""
    lines: list[str | Table] = []
    if result["classes"] is None:
        lines += _decision_lines(result)
    else:
        lines.append(f"{result['rows']:,} rows of {len(result['classes'])} classes.")
    if result["weighted"]:
        lines.append("Rows count by their weights, in all counts of decisions and in all values.")
    lines.append(f"{result['training']['sentence']}")
    if result["periods"]:
        lines.append(table_of_periods(result["periods"], result["metric"], "rows"))
    if result["today"] is not None:
        lines.append(f"{result['today']['name']}: {result['metric']} {_short(result['today']['value'])} on these rows.")
    if result["better_without_model"] is not None:
        lines.append(f"Warning: {result['better_without_model']}")
    for text, requirement in result["requirements"].items():
        held = "held" if requirement["held"] else "NOT held"
        unknown = requirement["value"] is None
        ready = "" if requirement["readiness"] is None else f" On these rows: {requirement['readiness']}."
        lines.append(
            f"Requirement {text}: {'not known' if unknown else f'{held} ({_with_interval(requirement)})'}.{ready}"
        )
    shown = list(result["metrics"]) if all_metrics else _usual(result)
    lines += [f"{name}: {_measured(result['metrics'][name])}" for name in shown]
    if len(shown) < len(result["metrics"]):
        lines.append(f"{len(result['metrics']) - len(shown)} more metrics with --all.")
    if result["ranking_rows"] < result["rows"]:
        lines.append(
            f"auroc and average_precision are measured on a random sample of {result['ranking_rows']:,} of the "
            f"{result['rows']:,} rows; all other values are of all rows."
        )
    if result["classes"] is not None:
        lines += _class_tables(result["classes"], result["confusion"])
    return lines + ([] if result["report"] is None else [f"Report: {result['report']}"])


def _usual(result: dict[str, Any]) -> list[str]:
    """Return the names of the model's metric and of six more."""
    by_metric = {name.rpartition(" ")[2]: name for name in result["metrics"] if name != result["metric"]}
    return [result["metric"], *[by_metric[name] for name in USUAL if name in by_metric][:SHOWN]]


def _class_tables(classes: dict[str, Any], confusion: dict[str, dict[str, int]]) -> list[str | Table]:
    """Make the table of classes, each value with its interval below it, and the confusion matrix."""
    names = [name for name in next(iter(classes.values()))["metrics"] if name != "average_precision"]  # --json has it
    table = Table("class", "rows", "predicted", *map(escape, names))
    for label, of_class in classes.items():
        cells = [_cell(of_class["metrics"][name]) for name in names]
        table.add_row(escape(label), _counted(of_class["rows"]), _counted(of_class["predicted"]), *cells)
    if len(confusion) > MAX_COLUMNS:
        return [table, f"The confusion matrix of {len(confusion)} classes is too wide to print; --json has it."]
    matrix = Table("true / predicted", *map(escape, confusion))
    for label, row in confusion.items():
        matrix.add_row(escape(label), *map(_counted, row.values()))
    return [table, matrix]


def _decision_lines(result: dict[str, Any]) -> list[str | Table]:
    """Write the rows of the two classes, the threshold and the confusion matrix."""
    positive, negative = quote_label(result["positive"]), quote_label(result["negative"])
    cells = [result[name] for name in ("tp", "fp", "fn", "tn")]
    tp, fp, fn, tn = (_counted(cell) for cell in cells)
    matrix = Table("", escape(f"predicted {positive}"), escape(f"predicted {negative}"))
    matrix.add_row(escape(f"is {positive}"), tp, fn)
    matrix.add_row(escape(f"is {negative}"), fp, tn)
    of_class = [_counted(cells[0] + cells[2]), _counted(cells[1] + cells[3])]
    rows = f"{result['rows']} rows: {of_class[0]} are {positive} (the positive class), {of_class[1]} are {negative}."
    if result["referred"] is not None:
        share = 100 * result["referred"] / result["rows"]
        referred = f", and {result['referred']} ({share:.3g} %) are referred to a person and do not count."
        rows = rows.removesuffix(".") + referred
    threshold = result["threshold"]
    at = "of its own for each row, by its costs" if threshold is None else formatting.threshold(threshold)
    return [rows, f"Threshold on the probability of {positive}: {at}", matrix]


def _measured(measured: dict[str, Any]) -> str:
    """Write a value and its interval as the end of a line."""
    if measured["interval"] is None:
        return "not known" if measured["value"] is None else _short(measured["value"])
    return f"{_short(measured['value'])} (95 % interval {_ends(measured['interval'])})"


def _with_interval(measured: dict[str, Any]) -> str:
    interval = measured["interval"]
    return _short(measured["value"]) + ("" if interval is None else f", 95 % interval {_ends(interval)}")


def _cell(measured: dict[str, Any]) -> str:
    """Write a value as a cell of a narrow table, its interval in a second line."""
    if measured["value"] is None:
        return ""
    value, interval = f"{measured['value']:.3f}", measured["interval"]
    return value if interval is None else f"{value}\n{interval[0]:.2f}–{interval[1]:.2f}"


def _ends(interval: tuple[float, float]) -> str:
    return f"{_short(interval[0])} to {_short(interval[1])}"


def _counted(count: float) -> str:
    """Write a count, which is a sum of weights if rows have weights."""
    return str(count) if isinstance(count, int) else formatting.count(count)


def _short(value: Any) -> str:
    """Write a number with four digits; --json has all of them."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
