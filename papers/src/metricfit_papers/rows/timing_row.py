"""Rows of the kind "timed": the time of a step on all training rows, compared with the same step with cross-entropy."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.descent_row import Stack
from metricfit_papers.rows.job import RowJob, TrialResult
from metricfit_papers.specs.column_names import TIMES_BCE

BCE = "WeightedBCELoss"


def time_steps(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """For each trial, measure the shortest time of a step, and its ratio to the shortest with cross-entropy.

    The number of steps is the number of epochs of the training, and the two losses take turns. Machines throttle and
    are shared: only minima of interleaved steps can be compared.
    """
    return [_time_trial(job, trial) for trial in trials]


def _time_trial(job: RowJob, trial: Trial) -> TrialResult:
    assert job.training is not None
    stacks = {name: Stack(job.training, loss, [trial], job.device) for name, loss in (("row", job.loss), ("BCE", BCE))}
    least = dict.fromkeys(stacks, float("inf"))
    for _ in range(job.training.epochs):
        for name, stack in stacks.items():
            least[name] = min(least[name], _seconds(stack))
    columns = {column: least["row"] / least["BCE"] for column, metric in job.metrics.items() if metric == TIMES_BCE}
    return TrialResult({view: dict(columns) for view in job.views}, job.training.epochs, least["row"])


def _seconds(stack: Stack) -> float:
    _wait(stack)
    began = time.perf_counter()
    stack.step()
    _wait(stack)
    return time.perf_counter() - began


def _wait(stack: Stack) -> None:
    if stack.x.is_cuda:
        torch.cuda.synchronize()
