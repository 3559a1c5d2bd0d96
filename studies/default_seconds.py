"""Where the seconds of MetricClassifier go: families, and everything else.

    python -m studies.default_seconds        # measure with one thread, write the results and the page's table
    python -m studies.default_seconds page   # write the page's table from the results

Seconds are CPU seconds of this process, so a busy machine changes them little. "Other" is what ``fit`` does besides
fitting and predicting folds: checks, encoding, weights, calibrations and the decision with its intervals.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_wine

from metricfit import MetricClassifier
from metricfit.tabular import out_of_fold
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "default_seconds.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
SHAPES = ((178, 13, 3), (1500, 8, 2), (10_000, 50, 2))


def rows_of(rows: int, columns: int, classes: int) -> tuple[Any, Any]:
    """The 178 wines, or made-up rows with a rare positive class."""
    if classes == 3:
        return load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=rows) > 2).astype(int)


def measure(shape: tuple[int, int, int], quality: Any) -> dict[str, Any]:
    """Fit once, after a small fit that imports everything."""
    MetricClassifier("f1", quality=quality, members=2, n_jobs=1).fit(np.eye(40)[:, :3], np.arange(40) % 2)
    spent: list[float] = []
    fit_family = out_of_fold.fit_family

    def timed(*arguments: Any, **keywords: Any) -> Any:
        start = time.process_time()
        result = fit_family(*arguments, **keywords)
        spent.append(time.process_time() - start)
        return result

    out_of_fold.fit_family = timed
    try:
        X, y = rows_of(*shape)
        start = time.process_time()
        MetricClassifier("f1", quality=quality, n_jobs=1, random_state=0, time_budget=None).fit(X, y)
        total = time.process_time() - start
    finally:
        out_of_fold.fit_family = fit_family
    return {"shape": list(shape), "quality": quality, "seconds": round(total, 2), "families": round(sum(spent), 2)}


def seconds_table(results: list[dict[str, Any]]) -> str:
    rows = []
    for result in results:
        rows_, columns, classes = result["shape"]
        other = 1 - result["families"] / result["seconds"]
        shown = [f"{rows_:,} x {columns}, {classes} classes", result["quality"], f"{result['seconds']:.1f}"]
        rows.append([*shown, f"{other:.0%}"])
    return table(["table", "quality", "CPU seconds", "other than families"], rows)


def main(arguments: list[str] | None = None) -> None:
    if not arguments:
        qualities = ("fast", "default")
        results = [measure(shape, quality) for shape in SHAPES for quality in qualities]
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    parts = {"default seconds": seconds_table(json.loads(RESULTS.read_text(encoding="utf-8")))}
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
