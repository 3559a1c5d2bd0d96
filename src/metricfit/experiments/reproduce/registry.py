"""All kinds of rows, by name."""

from __future__ import annotations

from metricfit.experiments.reproduce.descent import descended
from metricfit.experiments.reproduce.kinds import Kind, networks
from metricfit.experiments.reproduce.svm import svm_perf

#: Kinds that minimise a row's loss as its training says.
TRAINED: dict[str, Kind] = {"network": networks, "descent": descended}
KINDS: dict[str, Kind] = {**TRAINED, "svm-perf": svm_perf}
