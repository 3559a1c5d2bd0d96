"""``metricfit fit``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from metricfit._files import check_new_folder, holds_files, new_folder
from metricfit.cli import options
from metricfit.cli.errors import NOT_MET, UserError
from metricfit.cli.printing import command_line, say, show, working
from metricfit.cli.rows import check_folder, check_several, check_words, in_words, positive_of, rows_of
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.report.model_decisions import metric_label
from metricfit.report.pages import write_model_page
from metricfit.tabular import MetricClassifier


def fit(
    data: options.Data,
    target: options.Target,
    to: Annotated[Path, typer.Option("--out", help="A new folder, for the model and its report.")],
    metric: options.MetricName = "f1",
    subject_to: options.Requirements = None,
    positive: options.Positive = None,
    group: options.Group = None,
    network: options.Network = "auto",
    members: options.Members = 8,
    time_budget: options.Budget = 300.0,
    epochs: options.Epochs = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a classifier for the metric, choose its threshold, write the model and a report."""
    check_words(metric, subject_to)
    check_folder(to)
    if holds_files(to):
        raise UserError(f"{to} is not empty; give a new folder.")
    check_new_folder(to)
    X, y, groups = rows_of(data, target, group)
    check_several(y, positive, subject_to)
    chosen, counts = positive_of(y, positive), y.value_counts()
    model = MetricClassifier(
        metric,
        subject_to=subject_to or None,
        network=network,
        members=members,
        epochs=epochs,
        time_budget=time_budget if epochs is None else None,
        pos_label=chosen,
        random_state=seed,
    )
    with working("Training ...", quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)  # said below, with where the model is
        model.fit(X, y.to_numpy(), groups=groups)
    with new_folder(to) as unfinished:
        model.save(unfinished / "model")
        write_model_page(model, unfinished / "report.html", data=data.name, target=target, command=command_line())
    report = to / "report.html"
    found = {"metric": metric, "out_of_fold": model.value_, "threshold": model.threshold_}
    found |= {"interval": model.threshold_interval_, "model": str(to / "model"), "report": str(report)}
    found |= {"positive": chosen, "classes": {str(label): int(rows) for label, rows in counts.items()}}
    found |= {"requirements_met": model.requirements_met_}
    found |= {"requirements": {text: result._asdict() for text, result in model.requirements_.items()}}
    at = "" if model.threshold_ is None else f" at threshold {model.threshold_:.4g}"
    headline = f"{metric_label(model)} {model.value_:.3f}{at}, on rows each model had not seen."
    lines = [in_words(counts, chosen), headline, *requirement_lines(model), f"Model: {to / 'model'}"]
    show(found, as_json, [*lines, f"Report: {report}"])
    if not model.requirements_met_:
        loaded = f"MetricClassifier.load({str(to / 'model')!r})"
        say(
            f"The requirements are not met: {model.decision_.not_reachable}. The model is kept and decides at the "
            f"nearest threshold. To choose again without training, in Python: {loaded}.rethreshold(subject_to='...')."
        )
        raise typer.Exit(NOT_MET)


def requirement_lines(model: MetricClassifier) -> list[str]:
    """For each requirement, its value out of fold and whether that meets the bound."""
    return [
        f"Requirement {text}: {'met' if result.met else 'NOT met'} ({result.value:.4g})."
        for text, result in model.requirements_.items()
    ]
