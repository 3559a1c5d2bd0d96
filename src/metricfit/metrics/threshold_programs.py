"""Threshold searches on a CUDA device by a Triton program of the metric's recorded formula."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.formula_recording import CannotRecordError, record
from metricfit.core.kernels import thresholds_triton
from metricfit.metrics.metric import Metric
from metricfit.metrics.sweep import one_class

#: Searches of a metric with plain operations before its program is made: compiling it takes a second or two, which is
#: as long as thousands of searches.
SEARCHES_BEFORE = 4

_searches: Counter[Hashable] = Counter()
_programs: dict[Hashable, Any] = {}


def find_program(scores: Tensor, metric: Metric) -> Any:
    """Return the program that evaluates a metric at all thresholds, or None if plain operations have to.

    Args:
        scores: The scores that are searched.
        metric: The metric. A function of a user has no program, because it may compute something else in its next call.
    """
    if not (thresholds_triton.handles(scores) and metric.found_by_name):
        return None
    key = type(metric), metric.name
    if key in _programs:
        return _programs[key]
    _searches[key] += 1
    if _searches[key] <= SEARCHES_BEFORE:
        return None
    _programs[key] = _make_program(metric)
    return _programs[key]


def _make_program(metric: Metric) -> Any:
    """Return the program, or None if the formula of the metric cannot be recorded."""
    examples = torch.linspace(1, 2, 4, dtype=torch.float64, device="cpu").view(4, 1)
    try:
        return thresholds_triton.make_program(
            record(lambda *cells: one_class(metric, Counts(*cells)), [*examples], differentiated=0)
        )
    except CannotRecordError:
        return None


def search_by_program(scores: Tensor, target: Tensor, metric: Metric, program: Any) -> tuple[float, float] | None:
    """Find the best threshold of one column.

    Args:
        scores: Scores ``(n,)`` of a floating type on a CUDA device.
        target: One label per sample, on the same device.
        metric: The metric.
        program: What ``find_program`` returned.

    Returns:
        The threshold and the value, or None if the input needs a closer look.
    """
    threshold, value, first, last, invalid = thresholds_triton.search(
        scores.contiguous(), target.contiguous(), program, minimize=metric.minimize
    )
    if invalid or math.isnan(value) or not (math.isfinite(first) and math.isfinite(last)):
        return None
    return threshold, -value if metric.minimize else value
