"""The family ``network`` by itself: nineteen tables, the splits of recipes.py, beside the network of 0.1.0.

    python -m studies.network --data ../shared/data --jobs 8     # finished cells are kept, in runs/network
    python -m studies.network                                    # print the means of what was measured

``logits_of`` trains the family on one table and split and returns its out-of-fold and test logits. The network of
0.1.0 (a blend, 500 epochs at most, on the same splits) was measured by the study of that version; its results are in
estimator.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metricfit.core.counts import Counts
from metricfit.curves import best_threshold
from metricfit.data import folds
from metricfit.metrics import average_precision, f1, get_metric
from metricfit.runs import Cell, Progress, run
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.family import Deadline, Features, TrainingRows
from metricfit.tabular.families.network import Network
from metricfit.tabular.families.network_models import NetworkFamily
from metricfit.train.data.batches import derive_seed
from metricfit_papers.datasets import STUDY, load
from metricfit_papers.folds import stratified_folds

RESULTS = Path(__file__).resolve().parent / "results" / "network.json"
BEFORE = RESULTS.with_name("estimator.json")
FOLDS = 8
KEPT = ("tuned", "average_precision", "out_of_fold_average_precision", "processor_seconds")
WAYS: dict[str, dict[str, Any]] = {"mix": {"recipe": "mix"}, "bce": {"recipe": "bce"}}


def logits_of(name: str, split: int, network: Network, folder: Path, metric: str = "f1") -> dict[str, Any]:
    """Train the family on a split of a table.

    Args:
        name: The table.
        split: The number of the split, as in recipes.py.
        network: The settings of the network.
        folder: The folder of the tables.
        metric: The metric that the network is trained for.

    Returns:
        The out-of-fold logits and labels of the training rows, those of the test rows, and the seconds of training.
    """
    rows = load(name, folder)
    train, test = (
        part.numpy() for part in stratified_folds(torch.as_tensor(rows.y), 5, derive_seed("split", split))[0]
    )
    encoder = TableEncoder()
    x, y = encoder.fit(rows.X.iloc[train]), np.asarray(rows.y[train], dtype=np.int64)
    table = TrainingRows(Features(x), y, None, 2)
    try:
        splits = folds(x, y, FOLDS, seed=split)
    except ValueError:  # too few rows differ to keep copies together
        splits = folds(x, y, FOLDS, seed=split, keep_duplicates_together=False)
    start, processor = time.perf_counter(), time.process_time()
    family = NetworkFamily(network, get_metric(metric))
    models = family.fit_folds(table, splits, seed=split, deadline=Deadline())
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    out_of_fold = np.full(len(y), np.nan)
    for model, (_, held_out) in zip(models, splits, strict=True):
        out_of_fold[held_out] = model.logits(table.features.take(held_out))[:, 0]
    new = Features(encoder.transform(rows.X.iloc[test]))
    return {
        "out_of_fold": out_of_fold,
        "y": y,
        "test": family.combine(models).logits(new)[:, 0],
        "y_test": np.asarray(rows.y[test], dtype=np.int64),
        "seconds": seconds,
        "processor_seconds": processor,
    }


def work(folder: Path, cell: Cell) -> dict[str, float]:
    """Return the test F1 at the best out-of-fold threshold and the average precision of one split."""
    torch.set_num_threads(1)
    name, _, split = cell.name
    found = logits_of(name, int(split), Network(**cell.spec), folder)
    out_of_fold, y, test, y_test = (torch.from_numpy(found[key]) for key in ("out_of_fold", "y", "test", "y_test"))
    threshold = best_threshold(out_of_fold, y, "f1").threshold
    return {
        "tuned": f1(Counts.from_labels((test >= threshold).long(), y_test)).item(),
        "average_precision": float(average_precision(test, y_test)),
        "out_of_fold_average_precision": float(average_precision(out_of_fold, y)),
        "processor_seconds": found["processor_seconds"],
    }


def measure(data: Path, folder: Path, tables: list[str], ways: list[str], splits: range, jobs: int) -> None:
    """Measure every cell that is not finished, and write all results."""
    cells = [Cell((name, way, str(split)), WAYS[way]) for split in splits for name in tables for way in ways]
    found = run(cells, partial(work, data), folder, jobs=jobs, watch=tell)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for (name, way, split), values in found.items():
        kept = {key: round(values[key], 4) for key in KEPT}
        results.setdefault(name, {}).setdefault(way, {})[split] = kept
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def tell(progress: Progress) -> None:
    """Print which cell was finished."""
    print(f"{progress.done} of {progress.total}: {progress.last}", flush=True)


def show() -> None:
    """Print the means of each table over the splits that were measured, beside those of 0.1.0 on the same splits."""
    results, before = json.loads(RESULTS.read_text()), json.loads(BEFORE.read_text())
    rows = []
    for name, ways in results.items():
        splits = [split for split in next(iter(ways.values())) if all(split in way for way in ways.values())]
        old = [
            statistics.fmean(before[name][way][int(s)]["tuned"] for s in splits) for way in ("default", "cross-entropy")
        ]
        new = [statistics.fmean(ways[way][s]["tuned"] for s in splits) if way in ways else float("nan") for way in WAYS]
        seconds = statistics.fmean(ways[next(iter(ways))][s]["processor_seconds"] for s in splits)
        rows.append([*old, *new, seconds])
        print(f"{name:16s} {len(splits):2d} splits", *(f"{value:.3f}" for value in rows[-1]))
    means = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    print(f"{'mean':26s}", *(f"{value:.3f}" for value in means))


def main(arguments: list[str] | None = None) -> None:
    """Measure if there is data, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the tables; without it nothing is measured")
    parser.add_argument("--folder", type=Path, default=Path("runs/network"), help="where finished cells are kept")
    parser.add_argument("--tables", nargs="+", default=list(STUDY))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--splits", type=int, nargs=2, default=(0, 10), metavar=("FIRST", "END"))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.data is not None:
        measure(options.data, options.folder, options.tables, options.ways, range(*options.splits), options.jobs)
    show()


if __name__ == "__main__":
    main()
