"""Class weights of a row: they are for training; a metric that is watched is that of the rows as they are."""

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob
from metricfit_papers.rows.trial_fitting import compute_logits, fit_trials
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.table_spec import ProtocolSpec, RowSpec, TrainingSpec

ROWS, WATCHED = 600, 200


def job(monitor: str) -> RowJob:
    training = TrainingSpec(
        network="line", optimizer="Adam", lr=0.05, batch_size=100, epochs=8, patience=0, monitor=monitor
    )
    row = RowSpec("BCE", "BCE", class_weight="balanced")
    return RowJob(row, ProtocolSpec("paper", "says"), training, "WeightedBCELoss", {}, [], "cpu")


@pytest.fixture
def trials(monkeypatch) -> list[Trial]:
    """Two trials on the same tensors, cut apart differently; few positives, hard to tell."""
    monkeypatch.setitem(vocabulary.NETWORKS, "line", lambda in_features: nn.Linear(in_features, 1))
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 3, generator=drawn)
    y = (x[:, 0] + torch.randn(ROWS, generator=drawn) > 2).long()
    orders = [torch.randperm(ROWS, generator=drawn) for _ in range(2)]
    return [Trial(at, x, y, order[WATCHED:], order[:WATCHED], order[:WATCHED]) for at, order in enumerate(orders)]


def test_a_watched_metric_is_not_weighted(trials):
    for trial, result in zip(trials, fit_trials(job("f1"), trials), strict=True):
        x, y = trial.validation_rows()
        logits = compute_logits(result.model, x).reshape(-1)
        assert result.best == pytest.approx(f1_score(y, logits >= 0), abs=1e-6)
        assert int((logits >= 0).sum()) > 2 * int(y.sum())  # weighted training calls many positive


def test_a_watched_loss_is_weighted_as_the_trained_one(trials):
    for trial, result in zip(trials, fit_trials(job("loss"), trials), strict=True):
        x, y = trial.validation_rows()
        counts = y.new_tensor([int((trial.y[trial.train] == label).sum()) for label in (0, 1)])
        weight = (len(trial.train) / (2 * counts))[y]
        each = nn.functional.binary_cross_entropy_with_logits(
            compute_logits(result.model, x).reshape(-1), y.float(), reduction="none"
        )
        assert result.best == pytest.approx(float((weight * each).sum() / weight.sum()), rel=1e-5)
