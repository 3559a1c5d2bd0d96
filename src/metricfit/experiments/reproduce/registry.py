"""All kinds of rows, by name."""

from __future__ import annotations

from metricfit.experiments.reproduce.classes import of_classes
from metricfit.experiments.reproduce.descent import descended
from metricfit.experiments.reproduce.ensembles import ensembled
from metricfit.experiments.reproduce.kinds import Kind, networks
from metricfit.experiments.reproduce.paths import followed
from metricfit.experiments.reproduce.searching import searched
from metricfit.experiments.reproduce.shares import in_shares
from metricfit.experiments.reproduce.svm import svm_perf
from metricfit.experiments.reproduce.timing import timed

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
