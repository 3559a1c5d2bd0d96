"""Networks trained on batches that are a share of the training rows, as AnyLoss's are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.network_row import Job, Trained, networks


def in_shares(job: Job, trials: Sequence[Trial]) -> list[Trained]:
    """As the kind "network", the batch size the ``share`` of the row's settings times the number of training rows."""
    assert job.training is not None
    share = job.row.settings.get("share")
    if not isinstance(share, float) or not 0 < share <= 1:
        raise ValueError(f"a row of this kind needs settings.share, above 0 and at most 1, got {share!r}")
    size = max(1, int(share * len(trials[0].train)))
    return networks(replace(job, training=replace(job.training, batch_size=size)), trials)
