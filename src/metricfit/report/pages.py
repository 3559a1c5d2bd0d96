"""The reports of the commands: what goes on each page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit import metrics, report, stats
from metricfit.core.counts import Counts
from metricfit.metrics import averaged, get_metric, names
from metricfit.report import formatting as words
from metricfit.report.findings import verdict_of_evaluation, verdict_of_fit
from metricfit.report.made_by import made_by
from metricfit.stats.multinomial import percentile_interval, resampled_counts
from metricfit.tabular import MetricClassifier
from metricfit.tabular.compare.comparison import Comparison
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE
from metricfit.tabular.compare.verdict import headline


def plain_metrics() -> list[str]:
    """The names of metrics that need no parameters."""
    return [name for name in names() if isinstance(getattr(metrics, name, None), metrics.Metric)]


def called(model: MetricClassifier, metric: metrics.Metric | None = None) -> str:
    """The judged metric's name, or another's, of several classes with its average where it has one."""
    metric = get_metric(model.metric if metric is None else metric)
    return metric.name if len(model.classes_) == 2 or metric.whole_matrix else f"{model.average} {metric.name}"


def counts_of(model: MetricClassifier, X: pd.DataFrame, y: pd.Series, threshold: float | None) -> Counts:
    """The counts of a model's decisions: of two classes at a threshold, its own by default."""
    if len(model.classes_) > 2:
        return Counts.from_labels(
            torch.from_numpy(_numbers(model, model.predict(X))),
            torch.from_numpy(_numbers(model, y)),
            num_classes=len(model.classes_),
        )
    scores, labels = scores_of(model, X), labels_of(model, y)
    at = model.threshold_ if threshold is None else threshold
    return Counts.from_labels(torch.from_numpy((scores >= at).astype(int)), torch.from_numpy(labels))


def scores_of(model: MetricClassifier, X: pd.DataFrame) -> Any:
    """The positive class's probabilities."""
    return model.predict_proba(X)[:, _positive_column(model)]


def labels_of(model: MetricClassifier, y: pd.Series) -> Any:
    """1 for the positive class."""
    return (y.to_numpy() == model.classes_[_positive_column(model)]).astype(np.int64)


def intervals_of(
    model: MetricClassifier, X: pd.DataFrame, y: pd.Series, threshold: float | None, of: Sequence[metrics.Metric]
) -> dict[str, tuple[float, float] | None]:
    """95 % bootstrap intervals of metrics on labelled rows, by the metric's name; None for rows of one class."""
    if y.nunique() < 2:
        return {metric.name: None for metric in of}
    if len(model.classes_) > 2:
        called_as, truth = _numbers(model, model.predict(X)), _numbers(model, y)
        drawn = resampled_counts(called_as, truth, len(model.classes_))
        return {metric.name: percentile_interval(averaged(metric, drawn, model.average)) for metric in of}
    scores, labels = scores_of(model, X), labels_of(model, y)
    at = model.threshold_ if threshold is None else threshold
    assert at is not None
    return {metric.name: stats.bootstrap(scores, labels, metric, threshold=at).interval for metric in of}


def of_comparison(
    found: Comparison,
    data: str,
    target: str,
    subject_to: Sequence[str],
    path: Path,
    *,
    group: str | None = None,
    classes: tuple[str, str] = ("negative", "positive"),
) -> Path:
    """The page of ``compare``.

    Args:
        found: what was found.
        data: the table's name.
        target: the column that was predicted.
        subject_to: requirements.
        path: where to write.
        group: the column whose rows stayed together.
        classes: what the two classes are called, the positive one last.
    """
    folds = len(found.rows[0].values)
    rows = [
        report.Method(
            row.name,
            row.mean,
            interval=None if row.interval is None else (row.interval.low, row.interval.high),
            difference=row.difference,
            difference_interval=row.difference_interval,
            p_value=row.p_value,
            seconds=row.seconds,
            held=row.held if subject_to else None,
        )
        for row in found.rows
    ]
    not_reached = "".join(
        f" With {row.name} no threshold met the requirements on the training rows of {len(row.unreached)} of {folds} "
        f"folds; there the nearest threshold decided ({row.unreached[0]})."
        for row in found.rows
        if row.unreached
    )
    positives = int(found.labels.sum())
    curves = f"The losses of “{DEFAULT}”: a line for each member of each fold."
    together = "" if group is None else f", and so do rows of one “{group}”"
    page = report.Report(
        f"{data}: {target}",
        headline(found.rows, found.metric, required=bool(subject_to)),
        found.verdict,
        [
            report.comparison(
                rows,
                found.metric,
                reference=REFERENCE,
                folds=folds,
                simultaneous=True,
                lead=f"Every method was trained on the same rows and judged on the same {folds} folds, on rows it had "
                "not seen. Each chose its threshold on its training rows, except the one at 0.5." + not_reached,
            ),
            *_explorer(found, subject_to, classes),
            *([report.learning_curves(found.histories, lead=curves)] if found.histories else []),
        ],
        {
            "Data": f"{data}, column “{target}”",
            "Rows": f"{len(found.labels):,}, of them {positives:,} “{classes[1]}” "
            f"({words.percent(positives / len(found.labels))})",
            **_positive_class(classes),
            "Folds": f"{folds}, each with the same share of “{classes[1]}”; copies of a row stay together{together}",
            "Differences": "paired by fold; Nadeau and Bengio's corrected t-test, because the folds' training rows "
            f"overlap; corrected for {len(rows) - 1} comparisons: p-values by Holm's method, intervals by Bonferroni's",
        }
        | ({"Networks": _effort(found.effort)} if found.effort else {})
        | _required(subject_to)
        | made_by(),
    )
    return report.write(page, path)


def _explorer(found: Comparison, subject_to: Sequence[str], classes: tuple[str, str]) -> list[report.Section]:
    """The default method's scores; nothing where it called no row positive on any fold."""
    if found.threshold is None:
        return []
    lead = (
        f"The scores of “{DEFAULT}”, each row's by the model that had not seen it. The chosen threshold is the mean of "
        "the folds' thresholds, so the value here differs slightly from the mean in the table."
    )
    return [
        report.scores(
            found.scores,
            found.labels,
            threshold=found.threshold,
            metric=found.metric,
            requirements=list(subject_to) or None,
            classes=classes,
            lead=lead,
        )
    ]


def of_model(model: MetricClassifier, data: str, target: str, path: Path) -> Path:
    """The page of ``fit``: out-of-fold decisions, and how training went."""
    members = _by_member(model.history_)
    lead = "Out of fold: each row scored by the member that did not train on it."
    page = report.Report(
        f"{data}: {target}",
        f"{called(model)} is {words.value(model.value_)}{_interval(model.value_interval_)}{_at(model)}, on rows held "
        "out of training.",
        verdict_of_fit(model),
        [_held_out(model, lead), report.learning_curves(members)],
        {
            "Data": f"{data}, column “{target}”",
            "Rows": f"{len(model.held_out_.y):,}, in {len(members)} folds; copies of a row stay together",
            **_positive_class_of(model),
            "Model": f"{len(members)} members, network {model.network_.name}, recipe {model.recipe}",
        }
        | _how_firm(model)
        | _required(_listed(model.subject_to))
        | made_by(),
    )
    return report.write(page, path)


def of_evaluation(
    model: MetricClassifier, X: pd.DataFrame, y: pd.Series, data: str, threshold: float | None, path: Path
) -> Path:
    """The page of ``evaluate``, at a threshold or at the model's own."""
    metric, counts = get_metric(model.metric), counts_of(model, X, y, threshold)
    value = float(averaged(metric, counts, model.average))
    interval = intervals_of(model, X, y, threshold, [metric])[metric.name]
    at = "" if model.threshold_ is None else f" at threshold {model.threshold_ if threshold is None else threshold:.4g}"
    headline = f"{called(model)} is {words.value(value)}{_interval(interval)}{at}, on {len(y):,} rows."
    verdict = verdict_of_evaluation(model, counts, value, interval, threshold=threshold)
    if model.threshold_ is None:
        section = report.multiclass(
            _numbers(model, model.predict(X)),
            _numbers(model, y),
            classes=[str(each) for each in model.classes_],
            metric=metric,
            average=model.average,
        )
    else:
        section = report.scores(
            scores_of(model, X),
            labels_of(model, y),
            threshold=model.threshold_ if threshold is None else threshold,
            metric=metric,
            requirements=model.subject_to,
            classes=_names(model),
        )
    facts = {"Data": f"{data}, column “{y.name}”", "Rows": f"{len(y):,}"} | _positive_class_of(model)
    facts |= _required(_listed(model.subject_to))
    return report.write(report.Report(data, headline, verdict, [section], facts | made_by()), path)


def _held_out(model: MetricClassifier, lead: str) -> report.Section:
    """The decisions on the rows that members held out."""
    held_out = model.held_out_
    if model.threshold_ is None:
        return report.multiclass(
            model.decision_.margins(held_out.logits).argmax(1),
            held_out.y,
            classes=[str(each) for each in model.classes_],
            metric=get_metric(model.metric),
            average=model.average,
            weight=held_out.weight,
            lead=lead,
        )
    return report.scores(
        torch.sigmoid(held_out.logits.reshape(-1)).numpy(),
        held_out.y.numpy(),
        threshold=model.threshold_,
        metric=get_metric(model.metric),
        requirements=model.subject_to,
        weight=held_out.weight,
        classes=_names(model),
        lead=lead,
    )


def _at(model: MetricClassifier) -> str:
    if model.threshold_ is None:
        return ""
    return f" at threshold {model.threshold_:.4g}"


def _how_firm(model: MetricClassifier) -> dict[str, str]:
    if model.threshold_interval_ is None:
        return {}
    ends = words.between(model.threshold_interval_)
    return {"Threshold": f"{model.threshold_:.4g}, with a 95 % bootstrap interval of {ends}"}


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" (95 % interval {words.between(ends)})"


def _positive_class(classes: tuple[str, str]) -> dict[str, str]:
    """Which class is the positive one; ``classes`` has it last."""
    return {"Positive class": f"“{classes[1]}”; the other class is “{classes[0]}”"}


def _positive_class_of(model: MetricClassifier) -> dict[str, str]:
    return {} if model.pos_label_ is None else _positive_class(_names(model))


def _required(subject_to: Sequence[str]) -> dict[str, str]:
    return {"Required": " and ".join(map(str, subject_to))} if subject_to else {}


def _effort(effort: Mapping[str, Any]) -> str:
    """What every network of a comparison was given."""
    return "all alike: " + ", ".join(f"{name} {value}" for name, value in effort.items())


def _listed(subject_to: Any) -> list[Any]:
    return [] if subject_to is None else [subject_to] if isinstance(subject_to, str) else list(subject_to)


def _numbers(model: MetricClassifier, labels: Any) -> NDArray[np.int64]:
    """The labels' places in ``classes_``."""
    return np.searchsorted(model.classes_, np.asarray(labels))


def _positive_column(model: MetricClassifier) -> int:
    return int(model.classes_.tolist().index(model.pos_label_))


def _names(model: MetricClassifier) -> tuple[str, str]:
    """What the two classes are called, the positive one last."""
    column = _positive_column(model)
    return str(model.classes_[1 - column]), str(model.classes_[column])


def _by_member(history: Any) -> list[list[dict[str, Any]]]:
    members: dict[int, list[dict[str, Any]]] = {}
    for row in history:
        members.setdefault(row.get("member", 0), []).append(row)
    return list(members.values())
