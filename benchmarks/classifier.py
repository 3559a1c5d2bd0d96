"""The time of MetricClassifier's default and of compare's default, on tables of the sizes that the bars name.

The tables are made here: their shapes are those of Yeast (1,484 x 8), Adult (48,842 x 14), Credit card (284,807 x 30)
and two in between, one label in ten is positive, and it depends on three columns and noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.tables import FULL, Line, Setting, Table
from benchmarks.timing import Work

SIZES = ((1_500, 8, 3), (3_000, 14, 2), (48_842, 14, 1), (284_807, 30, 1))  # rows, columns, repeats
JOBS = 2


def table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a table with one label in ten positive, which depends on three columns and noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns))
    scores = x[:, 0] + x[:, 1] ** 2 + x[:, 2] * (x[:, 3] > 0) + 0.7 * rng.normal(size=rows)
    return x, (scores > np.quantile(scores, 0.9)).astype(int)


def fastest(name: str, work: Work, repeats: int) -> list[Line]:
    """Time a work that takes long, the fastest of a few repeats."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return [Line(name, min(seconds), repeats=repeats)]


def fit_default(rows: int, columns: int, repeats: int) -> Callable[[Setting], list[Line]]:
    """Return a function that times ``MetricClassifier("f1").fit``, within its default budget of 300 seconds."""

    def measure(setting: Setting) -> list[Line]:
        from metricfit import MetricClassifier  # slow to import, and most runs measure other tables

        x, y = table(setting.size(rows, 200), columns)
        rounds = repeats if setting.fewest >= FULL.fewest else 1
        return fastest("fit", lambda: MetricClassifier("f1", random_state=0).fit(x, y), rounds)

    return measure


def compare_default(setting: Setting) -> list[Line]:
    """Time ``compare`` with all its methods and folds, two trainings at a time."""
    from metricfit import compare

    x, y = table(setting.size(1_484, 200), 8)
    return fastest("compare", lambda: compare(x, y, "f1", jobs=JOBS), 1)


TABLES = (
    *(
        Table(
            f"classifier-{rows}",
            f"MetricClassifier's default, {rows:,} x {columns}",
            "cpu",
            fit_default(rows, columns, repeats),
            why_fewer="a fit takes seconds to minutes",
            is_long=rows > 3_000,
        )
        for rows, columns, repeats in SIZES
    ),
    Table(
        "compare",
        "compare's default, 1,484 x 8",
        "cpu",
        compare_default,
        why_fewer="a comparison takes minutes",
        is_long=True,
    ),
)
