"""Rows of the kind "shares": networks whose batches are a share of the training rows, as in AnyLoss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from metricfit.errors import InvalidValueError
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, TrialResult
from metricfit_papers.rows.network_row import train_networks


def train_with_batch_shares(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Train as the kind "network" does, with batches of ``settings.share`` times the number of training rows."""
    assert job.training is not None
    share = job.row.settings.get("share")
    if not isinstance(share, float) or not 0 < share <= 1:
        raise InvalidValueError(f"a row of this kind needs settings.share, above 0 and at most 1, got {share!r}")
    size = max(1, int(share * len(trials[0].train)))
    return train_networks(replace(job, training=replace(job.training, batch_size=size)), trials)
