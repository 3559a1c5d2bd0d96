"""Rows of the kind "network": the trials' networks, trained as one population."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metricfit.train import Callback, Plan
from metricfit.train.result import Row
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, TrialResult
from metricfit_papers.rows.trial_fitting import compute_logits, fit_trials, group_by_width
from metricfit_papers.rows.trial_scores import Values, keep_better


def train_networks(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Train all trials as one population, or as several if their inputs differ in width."""
    results_by_trial: dict[int, TrialResult] = {}
    for group in group_by_width(trials):
        for trial, trained in zip(group, _population(job, group), strict=True):
            results_by_trial[trial.number] = trained
    return [results_by_trial[trial.number] for trial in trials]


def _population(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    checkpoints = Checkpoints(job, trials)
    watching = job.protocol.checkpoint == "best test"
    results = fit_trials(job, trials, callbacks=[checkpoints]) if watching else fit_trials(job, trials, resumes=True)
    epochs = [len(result.history) for result in results]
    seconds = results[0].seconds / sum(epochs)
    if not watching:
        for member, result in enumerate(results):
            checkpoints.look(member, *(compute_logits(result.model, rows) for rows in checkpoints.inputs[member]))
    return [TrialResult(checkpoints.values[member], count, seconds) for member, count in enumerate(epochs)]


class Checkpoints(Callback):
    """Keeps the best value of each number over all weights that were the best on the validation rows at some point."""

    def __init__(self, job: RowJob, trials: Sequence[Trial]) -> None:
        self.job, self.trials = job, trials
        self.inputs = [(trial.test_rows()[0], trial.validation_rows()[0]) for trial in trials]
        self.values: dict[int, Values] = {}
        self.best: dict[int, float] = {}

    def started(self, plan: Plan, step: int) -> None:
        """Keep what computes logits."""
        self.outputs = plan.outputs

    def epoch_ended(self, rows: Sequence[Row]) -> None:
        """Score the members that have improved on their test rows."""
        for row in rows:
            member = row.get("member", 0)
            if row["value"] == row["best"] != self.best.get(member):
                self.best[member] = row["best"]
                inputs = self.inputs[member]
                logits = self.outputs(member, torch.cat(inputs))
                self.look(member, logits[: len(inputs[0])], logits[len(inputs[0]) :])

    def look(self, member: int, test: Tensor, watched: Tensor) -> None:
        """Score one member, and keep each value that is better than before."""
        self.values[member] = keep_better(self.values.get(member), self.job.values(self.trials[member], test, watched))
