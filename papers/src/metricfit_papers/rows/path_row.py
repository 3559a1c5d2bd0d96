"""Rows of the kind "paths": how a loss and a metric change together during training, as in Lee et al. 2021.

The row's setting ``metric`` is the metric that the loss is compared with, such as "fbeta(beta=2)". A cell's report has
the loss and the metric of the first trial's training batches, epoch by epoch. For all trials it has F1 of the training
batches, the monitored value, and the metric and the accuracy on the test rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, get_metric
from metricfit.train import Callback, Plan
from metricfit.train.result import Row
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, TrialResult, positive_logits
from metricfit_papers.rows.trial_fitting import compute_logits, fit_trials
from metricfit_papers.specs import column_names, vocabulary
from metricfit_papers.specs.expressions import build_object

LOSS, TP, FP, FN, TN, SEEN = range(6)
#: Columns of the history: the row's metric and the accuracy on the test rows.
TEST_METRIC, TEST_ACCURACY = "test metric", "test accuracy"


class Recorded(nn.Module):
    """A loss that records its mean and the counts of decisions at 0.5 on its batches, per epoch.

    The record is in buffers, so that each member of a population has its own, and a run that resumes continues it.
    Training calls ``update`` after each epoch, which starts the record of the next one.

    >>> from metricfit.losses import WeightedBCELoss
    >>> loss = Recorded(WeightedBCELoss(), epochs=2)
    >>> _ = loss(torch.tensor([1.0, -1.0, 1.0]), torch.tensor([1, 0, 0]))
    >>> loss.update()
    >>> loss.counts.tp.tolist(), loss.counts.fp.tolist(), round(loss.losses.item(), 4)
    ([[1.0]], [[1.0]], 0.6466)
    """

    now: Tensor
    pages: Tensor
    epoch: Tensor

    def __init__(self, loss: nn.Module, epochs: int) -> None:
        super().__init__()
        self.loss = loss
        self.register_buffer("now", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("pages", torch.zeros(epochs, 6, dtype=torch.float64))
        self.register_buffer("epoch", torch.zeros(1, dtype=torch.long))

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the value of the loss, unchanged."""
        value: Tensor = self.loss(logits, target, weight=weight)
        if self.training and torch.is_grad_enabled():
            yes, positive = logits.detach().reshape(-1) >= 0, target.reshape(-1) > 0
            parts = [yes & positive, yes & ~positive, ~yes & positive, ~yes & ~positive, yes | ~yes]
            counts = torch.stack([part.sum() for part in parts]).to(self.now.dtype)
            mean = value.detach().to(self.now.dtype)
            self.now.add_(torch.cat([(mean * counts[-1]).reshape(1), counts]))
        return value

    @torch.no_grad()
    def update(self) -> None:
        """Finish the record of an epoch."""
        self.pages.index_add_(0, self.epoch, self.now.unsqueeze(0))
        self.now.zero_()
        self.epoch.add_(1)

    @property
    def losses(self) -> Tensor:
        """The mean loss of each epoch."""
        pages = self._written()
        return pages[:, LOSS] / pages[:, SEEN]

    @property
    def counts(self) -> Counts:
        """The counts of each epoch, ``(epochs, 1)``."""
        pages = self._written()
        return Counts(*(pages[:, cell : cell + 1] for cell in (TP, FP, FN, TN)))

    def _written(self) -> Tensor:
        return self.pages[: int(self.epoch)]


class MetricsOnTest(Callback):
    """Adds metrics of decisions at 0.5 on the test rows to the history, which checkpoints keep."""

    def __init__(self, trials: Sequence[Trial], metrics: Mapping[str, Metric]) -> None:
        self.metrics = metrics
        self.test = [trial.test_rows() for trial in trials]

    def started(self, plan: Plan, step: int) -> None:
        """Keep what computes logits."""
        self.outputs = plan.outputs

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """Add the values of each member to its row."""
        for row in rows:
            member = row.get("member", 0)
            x, y = self.test[member]
            counts = Counts.hard(positive_logits(self.outputs(member, x).cpu()), y)
            row |= {name: metric(counts).item() for name, metric in self.metrics.items()}


def train_recording_paths(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Train all trials as one population, and record the loss and the metric of each trial by epoch."""
    assert job.training is not None
    assert job.loss is not None
    if "metric" not in job.row.settings:
        raise InvalidValueError('a row of kind paths needs settings.metric, such as "fbeta(beta=2)"')
    metric = get_metric(job.row.settings["metric"])
    recorded = Recorded(build_object(job.loss, vocabulary.LOSSES), job.training.epochs)
    on_test = {TEST_METRIC: metric, TEST_ACCURACY: get_metric("accuracy")}
    callbacks = [MetricsOnTest(trials, on_test)]
    results = fit_trials(job, trials, objective=recorded, callbacks=callbacks, resumes=True)
    seconds = results[0].seconds / sum(len(result.history) for result in results)
    trained = []
    for trial, result in zip(trials, results, strict=True):
        record = result.objective
        assert isinstance(record, Recorded)
        losses, scores = record.losses.cpu(), metric(record.counts).reshape(-1).cpu()
        values = job.values(
            trial,
            compute_logits(result.model, trial.test_rows()[0]),
            compute_logits(result.model, trial.validation_rows()[0]),
        )
        path_metrics = {column_names.PEARSON: pearson(losses, scores), column_names.BEST_WATCHED: result.best}
        path_values = {column: path_metrics[name] for column, name in job.metrics.items() if name in path_metrics}
        path = {"loss": losses.tolist(), "metric": scores.tolist()}
        path |= {name: get_metric(name)(record.counts).reshape(-1).tolist() for name in ("f1", "accuracy")}
        watched = {job.training.monitor: result.history["value"]}
        all_values = {view: columns | path_values for view, columns in values.items()}
        trained.append(TrialResult(all_values, len(result.history), seconds, {"path": path, "watched": watched}))
    by_epoch = {name: [result.history[name] for result in results] for name in on_test}
    monitor = job.training.monitor
    curves = {
        "f1": [each.chosen["path"]["f1"] for each in trained],
        f"validation {monitor}": [each.chosen["watched"][monitor] for each in trained],
    }
    first = replace(trained[0], chosen={**trained[0].chosen, "tests": by_epoch, "curves": curves})
    return [first, *(replace(result, chosen={}) for result in trained[1:])]


def pearson(a: Tensor, b: Tensor) -> float:
    """Return the correlation of two lists of numbers; 0 if one of them is constant.

    >>> round(pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.0, -2.0])), 6)
    -1.0
    """
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    size = a.norm() * b.norm()
    return float(((a @ b) / size).clamp(-1, 1)) if float(size) > 0 else 0.0
