"""All kinds of rows, by name."""

from __future__ import annotations

from functools import partial

from metricfit_papers.rows.batch_share_row import train_with_batch_shares
from metricfit_papers.rows.class_row import train_classifiers
from metricfit_papers.rows.descent_row import train_by_descent
from metricfit_papers.rows.ensemble_row import train_ensemble
from metricfit_papers.rows.job import RowKind
from metricfit_papers.rows.network_row import train_networks
from metricfit_papers.rows.path_row import train_recording_paths
from metricfit_papers.rows.search_row import train_after_search
from metricfit_papers.rows.svm_perf_row import train_svm_perf
from metricfit_papers.rows.timing_row import time_steps

#: Kinds of rows that have a loss and a training.
TRAINED: dict[str, RowKind] = {
    "network": train_networks,
    "shares": train_with_batch_shares,
    "searched": train_after_search,
    "descent": train_by_descent,
    "timed": time_steps,
    "ensemble": train_ensemble,
    "paths": train_recording_paths,
    "classes": train_classifiers,
    "searched classes": partial(train_after_search, train=train_classifiers),
}
KINDS: dict[str, RowKind] = {**TRAINED, "svm-perf": train_svm_perf}
