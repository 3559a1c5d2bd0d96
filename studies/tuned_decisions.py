"""TunedDecisionClassifier and scikit-learn's TunedThresholdClassifierCV over the same LightGBM, on nineteen tables.

    python -m studies.tuned_decisions --data ../shared/data --folder runs/tuned --jobs 8   # measure; keeps cells
    python -m studies.tuned_decisions --folder runs/tuned --collect                        # cells to results
    python -m studies.tuned_decisions                                                      # results to the page

Stratified 80/20 splits, those of tables.py, with the columns encoded in the same way. Both classes get the same
``LGBMClassifier`` with its defaults and fit it on five folds. TunedDecisionClassifier decides with the mean of the
logits of the five models. "Fitted again on all rows" is ``ensemble=False``, which decides with one model, as
TunedThresholdClassifierCV does. The seconds of these two are compared, because both fit six models.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.metrics import f1_score, make_scorer, matthews_corrcoef
from sklearn.model_selection import TunedThresholdClassifierCV

from metricfit import TunedDecisionClassifier
from metricfit.stats import compare
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.train.data.batches import derive_seed
from metricfit_papers.datasets import STUDY, load
from metricfit_papers.folds import stratified_folds
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "tuned_decisions.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "decisions.md"
SPLITS = 10
METRICS = {"f1": f1_score, "mcc": matthews_corrcoef}
OURS, THEIRS = "TunedDecisionClassifier", "TunedThresholdClassifierCV"
AGAIN, EMPIRICAL = "fitted again on all rows", "empirical, fitted again on all rows"
METHODS = ("at 0.5", THEIRS, OURS, AGAIN, EMPIRICAL)
TIMED = (AGAIN, THEIRS)


def measure(data: Path, folder: Path, cell: tuple[str, int]) -> str:
    """Measure every method on one split of one table."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    name, split = cell
    path = folder / f"{name}-{split}.json"
    if path.exists():
        return f"{name} {split}: kept"
    rows = load(name, data)
    train, test = (
        part.numpy() for part in stratified_folds(torch.as_tensor(rows.y), 5, derive_seed("split", split))[0]
    )
    encoder, start = TableEncoder(), time.perf_counter()
    x, y = encoder.fit(rows.X.iloc[train]), np.asarray(rows.y[train], dtype=np.int64)
    x_test, y_test = encoder.transform(rows.X.iloc[test]), np.asarray(rows.y[test], dtype=np.int64)
    trees = LGBMClassifier(n_jobs=1, verbose=-1, random_state=split)
    values: dict[str, dict[str, float]] = {}
    seconds: dict[str, dict[str, float]] = {}
    for metric, score in METRICS.items():
        ours = TunedDecisionClassifier(clone(trees), metric, cv=5, random_state=split)
        again = clone(ours).set_params(ensemble=False)
        theirs = TunedThresholdClassifierCV(clone(trees), scoring=make_scorer(score), cv=5, random_state=split)
        # Which of the two is timed first alternates, so that neither has the warmer caches.
        pair = [(AGAIN, again), (THEIRS, theirs)][:: 1 if split % 2 else -1]
        seconds[metric] = {method: _seconds_of_fit(model, x, y) for method, model in pair}
        decided = {
            "at 0.5": theirs.estimator_.predict(x_test),
            THEIRS: theirs.predict(x_test),
            OURS: ours.fit(x, y).predict(x_test),
            AGAIN: again.predict(x_test),
        }
        again.decision = "empirical"
        decided[EMPIRICAL] = again.rethreshold().predict(x_test)
        values[metric] = {method: round(float(score(y_test, decided[method])), 6) for method in METHODS}
    path.write_text(json.dumps({"values": values, "seconds": seconds}), encoding="utf-8")
    return f"{name} {split}: {time.perf_counter() - start:.0f} s"


def _seconds_of_fit(model: Any, x: Any, y: Any) -> float:
    start = time.perf_counter()
    model.fit(x, y)
    return round(time.perf_counter() - start, 3)


def collect(folder: Path, splits: int = SPLITS) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in STUDY:
        for split in range(splits):
            path = folder / f"{name}-{split}.json"
            if path.exists():
                results.setdefault(name, {})[str(split)] = json.loads(path.read_text(encoding="utf-8"))
    return results


def mean_by_table(results: dict[str, Any], kind: str, metric: str, method: str) -> dict[str, float]:
    """The method's mean value, or mean seconds, over the splits of each table that have it."""
    return {
        name: statistics.fmean(cell[kind][metric][method] for cell in cells.values() if kind in cell)
        for name, cells in results.items()
    }


def against(results: dict[str, Any], metric: str, method: str, rival: str) -> str:
    """The difference of two methods' means, and wins and losses over tables with Wilcoxon's p."""
    mine, theirs = (mean_by_table(results, "values", metric, each) for each in (method, rival))
    result = compare(list(mine.values()), list(theirs.values()))
    difference = statistics.fmean(mine.values()) - statistics.fmean(theirs.values())
    return f"{difference:+.3f}; {result.wins}-{result.losses}, p = {result.p_value:.2g}"


def methods_table(results: dict[str, Any]) -> str:
    head = ["over the same LightGBM"]
    head += [text for metric in METRICS for text in (metric, f"against {THEIRS}")] + ["seconds of fitting"]
    rows = []
    for method in METHODS:
        cells: list[object] = [f"**{method}**" if method == OURS else method]
        for metric in METRICS:
            cells.append(f"{statistics.fmean(mean_by_table(results, 'values', metric, method).values()):.3f}")
            cells.append("" if method == THEIRS else against(results, metric, method, THEIRS))
        timed = method in TIMED
        means = [mean_by_table(results, "seconds", metric, method).values() for metric in METRICS] if timed else []
        cells.append(f"{statistics.fmean(statistics.fmean(each) for each in means):.2f}" if timed else "")
        rows.append(cells)
    return table(head, rows)


def tables_table(results: dict[str, Any]) -> str:
    head = ["table"]
    head += [f"{metric}, {short}" for metric in METRICS for short in ("ours", "scikit-learn")]
    rows = []
    for name in results:
        cells: list[object] = [name]
        for metric in METRICS:
            mine, theirs = (mean_by_table(results, "values", metric, each)[name] for each in (OURS, THEIRS))
            cells += [f"**{mine:.3f}**" if mine > theirs else f"{mine:.3f}", f"{theirs:.3f}"]
        mine, theirs = (
            statistics.fmean(mean_by_table(results, "seconds", metric, each)[name] for metric in METRICS)
            for each in TIMED
        )
        rows.append([*cells, f"{mine:.2f}", f"{theirs:.2f}"])
    return table([*head, "seconds, fitted again", "seconds, scikit-learn"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: measure what is not yet measured")
    parser.add_argument("--folder", type=Path, default=Path("runs/tuned"), help="where the cells are kept")
    parser.add_argument("--collect", action="store_true", help="write the results from the cells")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--only", nargs="*", default=STUDY)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.data is not None:
        cells = [(name, split) for split in range(options.splits) for name in reversed(options.only)]
        with get_context("spawn" if options.jobs > 1 else "fork").Pool(options.jobs) as pool:
            for line in pool.imap_unordered(partial(measure, options.data, options.folder), cells):
                print(line, flush=True)
    if options.collect:
        text = json.dumps(collect(options.folder, options.splits), separators=(",", ":")) + "\n"
        RESULTS.write_text(text, encoding="utf-8")
    if options.data is None:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        parts = {"methods": methods_table(results), "tables": tables_table(results)}
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
