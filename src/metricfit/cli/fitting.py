"""``metricfit fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli import options, pages
from metricfit.cli.errors import UserError
from metricfit.cli.printing import show, working
from metricfit.cli.rows import check_folder, check_several, check_words, in_words, positive_of, rows_of
from metricfit.estimators import MetricClassifier


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
    if to.exists() and any(to.iterdir()):
        raise UserError(f"{to} is not empty; give a new folder.")
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
    with working("Training ...", quiet):
        model.fit(X, y.to_numpy(), groups=groups)
    model.save(to / "model")
    report = pages.of_model(model, data.name, target, to / "report.html")
    found = {"metric": metric, "out_of_fold": model.value_, "threshold": model.threshold_}
    found |= {"interval": model.threshold_interval_, "model": str(to / "model"), "report": str(report)}
    found |= {"positive": chosen, "classes": {str(label): int(rows) for label, rows in counts.items()}}
    at = "" if model.threshold_ is None else f" at threshold {model.threshold_:.4g}"
    headline = f"{pages.called(model)} {model.value_:.3f}{at}, on rows each model had not seen."
    show(found, as_json, [in_words(counts, chosen), headline, f"Model: {to / 'model'}", f"Report: {report}"])
