"""The numbers of one trial: each column, for each way of making decisions that the table shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit.metrics.curves import auroc, average_precision, best_threshold
from metricfit_papers.baselines.as_coded import TENTHS
from metricfit_papers.specs.column_names import OTHERS, RANKINGS
from metricfit_papers.specs.table_spec import HALF, MEAN, TUNED

Values = dict[str, dict[str, float]]


def score_views(
    test: tuple[Tensor, Tensor],
    watched: tuple[Tensor, Tensor],
    metrics: Mapping[str, str],
    views: Sequence[str],
    *,
    auroc_of: str = "scores",
) -> Values:
    """Score the test rows in every view; thresholds are tuned on the validation rows.

    Args:
        test: Scores and labels of the test rows.
        watched: Scores and labels of the validation rows.
        metrics: The metric of each column.
        views: "mean" over the thresholds 0.1 to 0.9, "half" for 0.5, or "tuned METRIC".
        auroc_of: "scores", or thresholded "labels", whose AUROC is the mean of TPR and TNR.

    Returns:
        For each view the value of each column.

    >>> import torch
    >>> both = torch.tensor([0.2, 0.3, 0.35, 0.9]), torch.tensor([0, 0, 1, 1])
    >>> score_views(both, both, {"accuracy": "accuracy"}, ["half", "tuned f1"])
    {'half': {'accuracy': 0.75}, 'tuned f1': {'accuracy': 1.0}}
    """
    scores, labels = test[0].double(), test[1]
    rankings = _rankings(scores, labels, metrics, auroc_of)
    values: Values = {}
    for view in views:
        counts = counts_at(scores, labels, _thresholds(view, watched))
        values[view] = dict(rankings)
        for column, metric in metrics.items():
            if column not in rankings and (metric == "auroc" or metric not in OTHERS):
                label_metric = "balanced_accuracy" if metric == "auroc" else metric
                values[view][column] = get_metric(label_metric)(counts).mean().item()
    return values


def counts_at(scores: Tensor, labels: Tensor, thresholds: Sequence[float]) -> Counts:
    """Return the counts at several thresholds, of shape ``(thresholds, 1)``."""
    yes = scores >= scores.new_tensor(thresholds).unsqueeze(1)
    positive = labels > 0
    tp, fp = (yes & positive).sum(1, keepdim=True).double(), (yes & ~positive).sum(1, keepdim=True).double()
    return Counts(tp=tp, fp=fp, fn=positive.sum() - tp, tn=(~positive).sum() - fp)


def _thresholds(view: str, watched: tuple[Tensor, Tensor]) -> Sequence[float]:
    if view == MEAN:
        return TENTHS
    if view == HALF:
        return (0.5,)
    return (best_threshold(watched[0].double(), watched[1], view.removeprefix(TUNED)).threshold,)


def _rankings(scores: Tensor, labels: Tensor, metrics: Mapping[str, str], auroc_of: str) -> dict[str, float]:
    areas: dict[str, Callable[[Tensor, Tensor], float]] = {"auroc": auroc, "average_precision": average_precision}
    return {
        column: areas[metric](scores, labels)
        for column, metric in metrics.items()
        if metric in RANKINGS and not (metric == "auroc" and auroc_of == "labels")
    }


def keep_better(best: Values | None, new: Values) -> Values:
    """Return the larger of the two values of each view and column."""
    if best is None:
        return new
    return {
        view: {column: max(value, best[view][column]) for column, value in columns.items()}
        for view, columns in new.items()
    }
