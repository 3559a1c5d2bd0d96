"""All kinds of rows, by name."""

from __future__ import annotations

from metricfit_papers.rows.batch_share_row import in_shares
from metricfit_papers.rows.class_row import of_classes
from metricfit_papers.rows.descent_row import descended
from metricfit_papers.rows.ensemble_row import ensembled
from metricfit_papers.rows.network_row import Kind, networks
from metricfit_papers.rows.path_row import followed
from metricfit_papers.rows.search_row import searched
from metricfit_papers.rows.svm_perf_row import svm_perf
from metricfit_papers.rows.timing_row import timed

#: Kinds that minimise a row's loss as its training says.
TRAINED: dict[str, Kind] = {
    "network": networks,
    "shares": in_shares,
    "searched": searched,
    "descent": descended,
    "timed": timed,
    "ensemble": ensembled,
    "paths": followed,
    "classes": of_classes,
}
KINDS: dict[str, Kind] = {**TRAINED, "svm-perf": svm_perf}
