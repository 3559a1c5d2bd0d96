"""``metricfit fit``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from metricfit._files import check_new_folder, holds_files, new_folder
from metricfit.cli import options
from metricfit.cli.command_rows import (
    check_binary_options,
    check_metric_options,
    choose_positive_label,
    describe_classes,
    read_rows,
)
from metricfit.cli.exit_codes import NOT_MET, UserError
from metricfit.cli.output_paths import check_folder
from metricfit.cli.terminal import command_line, print_message, print_result, status
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.report.model_decisions import metric_label
from metricfit.report.pages import write_model_page
from metricfit.tabular import MetricClassifier


def fit(
    data: options.Data,
    target: options.Target,
    out: Annotated[Path, typer.Option("--out", help="A new folder for the model and its report.")],
    metric: options.MetricName = "f1",
    subject_to: options.Requirements = None,
    positive: options.Positive = None,
    group: options.Group = None,
    time_budget: options.Budget = 300.0,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a classifier for a metric, choose its threshold, and write the model and a report."""
    check_metric_options(metric, subject_to)
    check_folder(out)
    if holds_files(out):
        raise UserError(f"{out} is not empty; give a new folder.")
    check_new_folder(out)
    X, y, groups = read_rows(data, target, group)
    check_binary_options(y, positive, subject_to)
    positive_label, counts = choose_positive_label(y, positive), y.value_counts()
    model = MetricClassifier(
        metric,
        subject_to=subject_to or None,
        time_budget=time_budget,
        pos_label=positive_label,
        random_state=seed,
    )
    with status("Training ...", quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)  # reported below, together with the model's folder
        model.fit(X, y.to_numpy(), groups=groups)
    with new_folder(out) as unfinished:
        model.save(unfinished / "model")
        write_model_page(model, unfinished / "report.html", data=data.name, target=target, command=command_line())
    model_folder, report = out / "model", out / "report.html"
    result = {
        "metric": metric,
        "out_of_fold": model.value_,
        "threshold": model.threshold_,
        "interval": model.threshold_interval_,
        "model": str(model_folder),
        "report": str(report),
        "positive": positive_label,
        "classes": {str(label): int(rows) for label, rows in counts.items()},
        "requirements_met": model.requirements_met_,
        "requirements": {text: result._asdict() for text, result in model.requirements_.items()},
    }
    threshold = "" if model.threshold_ is None else f" at threshold {model.threshold_:.4g}"
    lines = [
        describe_classes(counts, positive_label),
        f"{metric_label(model)} {model.value_:.3f}{threshold}, on rows held out of training.",
        *_requirement_lines(model),
        f"Model: {model_folder}",
        f"Report: {report}",
    ]
    print_result(result, as_json, lines)
    if not model.requirements_met_:
        print_message(
            f"The requirements are not met: {model.decision_.not_reachable}. The model is kept and decides at the "
            "nearest threshold. To choose again without training, in Python: "
            f"MetricClassifier.load({str(model_folder)!r}).rethreshold(subject_to='...')."
        )
        raise typer.Exit(NOT_MET)


def _requirement_lines(model: MetricClassifier) -> list[str]:
    """Write each requirement's value out of fold, and whether that meets the bound."""
    return [
        f"Requirement {text}: {'met' if result.met else 'NOT met'} ({result.value:.4g})."
        for text, result in model.requirements_.items()
    ]
