"""Rows of the kind "searched": networks whose settings are searched first, as in the multiclass F-beta paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from metricfit.errors import InvalidValueError
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, RowKind, TrialResult
from metricfit_papers.rows.network_row import train_networks
from metricfit_papers.rows.trial_fitting import fit_trials

SEARCHED = ("network", "optimizer", "lr", "batch_size")


def train_after_search(job: RowJob, trials: Sequence[Trial], train: RowKind = train_networks) -> list[TrialResult]:
    """Train all trials with the settings whose validation loss was the lowest in the first trial.

    The row's ``settings`` list the values to try, ``{ lr = [0.01, 0.001], network = ["mlp", "study_mlp"] }``, in all
    combinations. Learning rates are tried together, as one population.
    """
    assert job.training is not None
    grid = _grid(job.row.settings)
    chosen = min(_search(job, trials[0], grid), key=lambda result: result[0])[1]
    best = replace(job, training=replace(job.training, **chosen))
    return [replace(result, chosen=chosen) for result in train(best, trials)]


def _search(job: RowJob, trial: Trial, grid: Mapping[str, Sequence[Any]]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the lowest validation loss of each combination of settings, and the combination."""
    assert job.training is not None
    rates = list(grid.get("lr", [job.training.lr]))
    others = {key: values for key, values in grid.items() if key != "lr"}
    for values in product(*others.values()):
        setting = dict(zip(others, values, strict=True))
        candidate = replace(job, training=replace(job.training, **setting))
        for rate, result in zip(rates, fit_trials(candidate, [trial] * len(rates), lr=rates), strict=True):
            yield result.best, {**setting, "lr": rate}


def _grid(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    unknown = [key for key in settings if key not in SEARCHED]
    if unknown or not all(isinstance(values, list) and values for values in settings.values()):
        raise InvalidValueError(
            f"the settings of a searched row are lists of {', '.join(SEARCHED)} to try, got {dict(settings)}"
        )
    return dict(settings)
