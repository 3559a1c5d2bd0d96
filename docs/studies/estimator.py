"""The estimator as it comes: nineteen tables, the splits of recipes.py, beside tuned cross-entropy and boosted trees.

    python docs/studies/estimator.py --data ../shared/data --jobs 2     # finished cells are kept, in runs/estimator
    python docs/studies/estimator.py                                    # write the page's tables from what was measured

``MetricClassifier("f1")`` with no time limit and nothing else said; the same with ``recipe="bce"``: the same network,
the same folds, a threshold tuned on the same out-of-fold scores. LightGBM and the plain MLP with cross-entropy, both
tuned, are recipes.py's, on the same splits.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import DOCS, fill, table
from recipes import RESULTS as RECIPES
from recipes import splits_of, study_names

from metricfit.metrics import f1
from metricfit.runs import Cell, Progress, run
from metricfit.stats import SplitComparison, compare, compare_splits

RESULTS = RECIPES.with_name("estimator.json")
PAGE = DOCS / "estimator-study.md"
SPLITS = 10
WAYS: dict[str, dict[str, Any]] = {"default": {}, "cross-entropy": {"recipe": "bce"}}


def work(folder: Path, device: str | None, cell: Cell) -> dict[str, Any]:
    """One fit: the test F1 at the model's own threshold and at 0.5, and what training came to."""
    from metricfit.core.counts import Counts
    from metricfit.data import load
    from metricfit.tabular import MetricClassifier

    name, _, at = cell.name
    rows = load(name, folder)
    y = torch.as_tensor(rows.y)
    train, test = splits_of(y, 0)[int(at)]
    model = MetricClassifier("f1", random_state=int(at), device=device, **cell.spec)
    model.fit(rows.X.iloc[train.numpy()], rows.y[train.numpy()])
    scores = torch.as_tensor(model.predict_proba(rows.X.iloc[test.numpy()])[:, 1])
    found = {
        key: f1(Counts.from_labels((scores >= threshold).long(), y[test])).item()
        for key, threshold in (("tuned", model.threshold_), ("half", 0.5))
    }
    return found | {
        "network": model.network_.name,
        "members": len(model.members_),
        "epochs": max(row["epoch"] for row in model.history_),
    }


def measure(data: Path, folder: Path, results: Path, only: list[str], jobs: int, device: str | None) -> None:
    cells = [
        Cell((name, way, str(at)), {"time_budget": None} | WAYS[way])
        for at in range(SPLITS)
        for name in only
        for way in WAYS
    ]
    found = run(cells, partial(work, data, device), folder, jobs=jobs, watch=tell)
    by_table: dict[str, dict[str, list[Any]]] = {}
    for name, way, at in found:
        by_table.setdefault(name, {}).setdefault(way, []).append(found[name, way, at])
    results.write_text(json.dumps(by_table, indent=1) + "\n", encoding="utf-8")


def tell(progress: Progress) -> None:
    left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
    print(f"{progress.done} of {progress.total}: {progress.last}{left}", flush=True)


def values() -> dict[str, dict[str, list[float]]]:
    """Each table's tuned F1, split by split: the estimator's two ways, and recipes.py's two."""
    mine, before = (json.loads(path.read_text()) for path in (RESULTS, RECIPES))
    found = {}
    for name in sorted(mine):
        of = {way: [cell["tuned"] for cell in mine[name][way]] for way in WAYS}
        for way, called in (("bce", "plain"), ("trees", "trees")):
            of[called] = [cell["tuned"] for cell in before[name][way]][: len(of["default"])]
        found[name] = of
    return found


NAMES = {
    "default": "MetricClassifier",
    "cross-entropy": 'with recipe="bce"',
    "plain": "plain MLP, cross-entropy",
    "trees": "LightGBM",
}


def means(found: dict[str, dict[str, list[float]]]) -> str:
    """The mean over tables, and the default against each other way, table by table."""
    of_table = {way: [statistics.fmean(of[way]) for of in found.values()] for way in NAMES}
    rows = []
    for way, name in NAMES.items():
        versus = ""
        if way != "default":
            result = compare(of_table["default"], of_table[way])
            difference = statistics.fmean(of_table["default"]) - statistics.fmean(of_table[way])
            versus = f"{difference:+.3f}; {result.wins} wins, {result.losses} losses, p = {result.p_value:.2g}"
        rows.append([name, f"{statistics.fmean(of_table[way]):.3f}", versus])
    return table(["", "mean F1, tuned threshold", "MetricClassifier against it"], rows)


def tables(found: dict[str, dict[str, list[float]]]) -> str:
    """Each table's means, and the default's difference to the trees and to cross-entropy with its interval."""
    rows = []
    for name, of in found.items():
        cells = [f"{statistics.fmean(of[way]):.3f}" for way in NAMES]
        rows.append([name, *cells, *(_difference(of["default"], of[way]) for way in ("trees", "cross-entropy"))])
    head = ["table", *NAMES.values(), "difference to LightGBM", 'difference to recipe="bce"']
    return table(head, rows)


def _difference(a: list[float], b: list[float]) -> str:
    if a == b:
        return "0"
    found: SplitComparison = compare_splits(a, b, test_fraction=0.2)
    return f"{found.difference:+.3f} ({found.interval.low:+.3f} to {found.interval.high:+.3f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets")
    parser.add_argument("--folder", type=Path, default=Path("runs/estimator"), help="where cells are kept")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="*", help="these tables alone")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device")
    given = parser.parse_args(arguments)
    if given.data is not None:
        only = given.only or study_names()
        measure(given.data, given.folder, given.results, only, given.jobs, given.device)
    if given.results == RESULTS:
        parts = {"means": means(values()), "tables": tables(values())}
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
