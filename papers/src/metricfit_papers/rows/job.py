"""The input and the output of a kind of row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.trial_scores import Values, score_views
from metricfit_papers.specs.table_spec import ProtocolSpec, RowSpec, TrainingSpec


@dataclass(frozen=True)
class RowJob:
    """One cell: the trials of a row on a dataset under a protocol, and what to measure.

    Attributes:
        row: The row.
        protocol: The protocol.
        training: How networks are trained; None for kinds of rows that train none.
        loss: The loss as text; None for kinds of rows without one.
        metrics: The metric of each column.
        views: The ways in which decisions are made.
        device: Where networks are trained; None for a GPU if there is one.
        checkpoints: A folder for checkpoints of a long training; None for a short one.
    """

    row: RowSpec
    protocol: ProtocolSpec
    training: TrainingSpec | None
    loss: str | None
    metrics: dict[str, str]
    views: list[str]
    device: str | None = None
    checkpoints: Path | None = None

    @property
    def cuda_graphs(self) -> bool:
        """Whether a step can be captured; steps with a solver cannot, because it reads values in between."""
        return "AdversarialLoss" not in (self.loss or "")

    def values(self, trial: Trial, test: Tensor, watched: Tensor) -> Values:
        """Return the numbers of a trial.

        Args:
            trial: The trial.
            test: Logits of its test rows.
            watched: Logits of its validation rows.

        Returns:
            For each view the value of each column.
        """
        raw = self.protocol.thresholded == "outputs" and self.row.outputs == "logits"
        logits = [positive_logits(part.detach().cpu().double()) for part in (test, watched)]
        scores = logits if raw else [torch.sigmoid(part) for part in logits]
        labels = trial.y[trial.test], trial.y[trial.validation]
        (on_test, on_watched) = zip(scores, labels, strict=True)
        return score_views(on_test, on_watched, self.metrics, self.views, auroc_of=self.protocol.auroc)


@dataclass(frozen=True)
class TrialResult:
    """The result of one trial of a row.

    Attributes:
        values: For each view the value of each column.
        epochs: Number of epochs of training.
        seconds_per_epoch: Seconds per epoch.
        chosen: What a search chose.
    """

    values: Values
    epochs: int = 0
    seconds_per_epoch: float = 0.0
    chosen: Mapping[str, Any] = field(default_factory=dict)


RowKind = Callable[[RowJob, Sequence[Trial]], list[TrialResult]]


def positive_logits(logits: Tensor) -> Tensor:
    """Return one logit per sample; of two outputs the difference, because its sigmoid is their softmax.

    >>> positive_logits(torch.tensor([[1.0, 3.0]])), positive_logits(torch.tensor([[2.0]]))
    (tensor([2.]), tensor([2.]))
    """
    return logits[:, 1] - logits[:, 0] if logits.dim() == 2 and logits.shape[1] == 2 else logits.reshape(-1)
