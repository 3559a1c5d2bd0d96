"""The time of MetricClassifier's default on tables of three sizes; the baseline is a second, so ratios are seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.rows import Measurement, Row, Setting, at_most
from metricfit import MetricClassifier


def table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a table with one label in ten positive, which depends on three columns and noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    scores = x[:, 0] + x[:, 1] ** 2 + x[:, 2] * (x[:, 3] > 0) + 0.7 * rng.normal(size=rows)
    return x, (scores > np.quantile(scores, 0.9)).astype(int)


def seconds_of_fit(rows: int, columns: int, most_repeats: int) -> Callable[[Setting], Measurement]:
    """Return a function that times ``fit``, the fastest of a few repeats."""

    def measure(setting: Setting) -> Measurement:
        x, y = table(setting.size(rows, 200), columns)
        repeats = 1 if setting.quick else most_repeats
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            MetricClassifier("f1", time_budget=None, random_state=0).fit(x, y)
            seconds.append(time.perf_counter() - start)
        return Measurement(min(seconds), 1.0, repeats=repeats)

    return measure


WORK = "MetricClassifier's default, against one second"
ROWS = (
    Row("classifier-small", f"{WORK}: 1,500 x 8", "cpu", at_most(12.0), seconds_of_fit(1_500, 8, 3)),
    Row("classifier-medium", f"{WORK}: 3,000 x 14", "cpu", at_most(20.0), seconds_of_fit(3_000, 14, 2)),
    Row("classifier-large", f"{WORK}: 48,842 x 14", "cpu", at_most(150.0), seconds_of_fit(48_842, 14, 1)),
)
PEERS = ()
