"""MetricClassifier's default on two large tables, Adult and Credit card, beside LightGBM with a tuned threshold.

    python -m studies.large_tables --data ../shared/data --jobs 2   # five splits of each; keeps finished cells
    python -m studies.large_tables                                  # write the page's table from the results

Five stratified 80/20 splits, F1. LightGBM is the family "boosting" alone: 31 leaves, rate 0.05, stopped on the held-out
fold, eight folds averaged, and the best threshold on the out-of-fold scores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metricfit import MetricClassifier
from metricfit.train.data.batches import derive_seed
from metricfit_papers.datasets import load
from metricfit_papers.folds import stratified_folds
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "large_tables.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
TABLES = ("creditcard", "adult")
SPLITS = 5
METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "LightGBM, tuned threshold": {"models": ["boosting"], "decision": "empirical", "members": 8, "time_budget": None},
}


def fit(data: Path, folder: Path, jobs_per_fit: int, cell: tuple[str, int]) -> str:
    """Fit both methods on one split of one table, and keep their test values."""
    name, split = cell
    path = folder / f"{name}-{split}.json"
    if path.exists():
        return f"{name} {split}: kept"
    torch.set_num_threads(1)
    rows = load(name, data)
    labels = np.asarray(rows.y, dtype=np.int64)
    parts = stratified_folds(torch.as_tensor(labels), 5, derive_seed("split", split))[0]
    train, test = (part.numpy() for part in parts)
    results: dict[str, dict[str, float]] = {}
    for method, settings in METHODS.items():
        model = MetricClassifier("f1", random_state=split, n_jobs=jobs_per_fit, **settings)
        start = time.perf_counter()
        model.fit(rows.X.iloc[train], labels[train])
        seconds = time.perf_counter() - start
        value = model.score(rows.X.iloc[test], labels[test])
        results[method] = {"value": round(value, 6), "seconds": round(seconds, 1), "expected": round(model.value_, 6)}
    path.write_text(json.dumps(results), encoding="utf-8")
    return f"{name} {split}: {results}"


def results_table(results: dict[str, Any]) -> str:
    rows = []
    for name, cells in results.items():
        means = {method: statistics.fmean(cell[method]["value"] for cell in cells.values()) for method in METHODS}
        differences = [cell["default"]["value"] - cell[list(METHODS)[1]]["value"] for cell in cells.values()]
        shown = [f"{means[method]:.3f}" for method in METHODS]
        rows.append(
            [
                name,
                *shown,
                f"{statistics.fmean(differences):+.4f}",
                f"{sum(d > 0 for d in differences)} of {len(differences)}",
            ]
        )
    return table(["table", *METHODS, "difference", "splits won"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: fit what is not yet fitted")
    parser.add_argument("--folder", type=Path, default=Path("runs/large_tables"), help="where finished cells are kept")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--jobs-per-fit", type=int, default=1)
    options = parser.parse_args(arguments)
    cells = [(name, split) for name in TABLES for split in range(SPLITS)]
    if options.data is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        work = partial(fit, options.data, options.folder, options.jobs_per_fit)
        with get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
            for line in pool.imap_unordered(work, cells):
                print(line, flush=True)
        results: dict[str, Any] = {name: {} for name in TABLES}
        for name, split in cells:
            path = options.folder / f"{name}-{split}.json"
            results[name][str(split)] = json.loads(path.read_text(encoding="utf-8"))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    else:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        page = fill(PAGE.read_text(encoding="utf-8"), {"large": results_table(results)})
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
