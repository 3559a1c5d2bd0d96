"""MetricClassifier beside AutoGluon and beside scikit-learn's TunedThresholdClassifierCV over LightGBM, by F1.

    python -m studies.rivals ours --data ../shared/data --jobs 2   # write the rows of each cell, fit two methods
    PYTHON -m studies.rivals autogluon --time equal --jobs 2       # as long as MetricClassifier took on the cell
    PYTHON -m studies.rivals autogluon --time 300 --tables 16 --splits 1 --jobs 2
    python -m studies.rivals                                       # write the page's table from the results

PYTHON is the interpreter of an environment of its own, which does not need metricfit:
``pip install autogluon.tabular==1.6.3 lightgbm catboost xgboost-cpu``. Every method gets one core. AutoGluon has
``eval_metric="f1"`` and the preset "best_quality", with gradient-boosted and other trees, neighbours and linear models
(no networks, no foundation models), and moves its threshold for F1 by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score

RESULTS = Path(__file__).resolve().parent / "results" / "rivals.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
LABEL = "label of the row"
WITHOUT = [
    "NN_TORCH",
    "FASTAI",
    "TABM",
    "REALMLP",
    "TABPFNV2",
    "TABPFN-2.5",
    "TABICL",
    "MITRA",
    "TABDPT",
    "REALTABPFN-V2",
]


def prepare(data: Path, folder: Path, name: str, split: int) -> None:
    """Write the rows of one split, as numbers and categories that every tool reads."""
    import torch

    from metricfit.train.data.batches import derive_seed
    from metricfit_papers.datasets import load
    from metricfit_papers.folds import stratified_folds

    rows = load(name, data)
    labels = np.asarray(rows.y, dtype=np.int64)
    parts = stratified_folds(torch.as_tensor(labels), 5, derive_seed("split", split))[0]
    for part, index in zip(("train", "test"), parts, strict=True):
        kept = index.numpy()
        rows.X.iloc[kept].assign(**{LABEL: labels[kept]}).to_parquet(folder / f"{part}.parquet", index=False)


def fit_ours(X: pd.DataFrame, y: Any, new: pd.DataFrame, split: int) -> Any:
    from metricfit import MetricClassifier

    return MetricClassifier("f1", n_jobs=1, random_state=split).fit(X, y).predict(new)


def fit_tuned_threshold(X: pd.DataFrame, y: Any, new: pd.DataFrame, split: int) -> Any:
    from lightgbm import LGBMClassifier
    from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV

    encoded = pd.get_dummies(pd.concat([X, new], ignore_index=True))
    encoded.columns = [f"column {number}" for number in range(encoded.shape[1])]
    model = TunedThresholdClassifierCV(
        LGBMClassifier(n_jobs=1, verbose=-1, random_state=split),
        scoring="f1",
        cv=StratifiedKFold(5, shuffle=True, random_state=split),
    )
    return model.fit(encoded.iloc[: len(X)], y).predict(encoded.iloc[len(X) :])


def fit_autogluon(train: pd.DataFrame, new: pd.DataFrame, seconds: float) -> Any:
    from autogluon.tabular import TabularPredictor

    folder = tempfile.mkdtemp(prefix="autogluon")
    try:
        predictor = TabularPredictor(LABEL, eval_metric="f1", path=folder, verbosity=0)
        predictor.fit(
            train, time_limit=seconds, presets="best_quality", excluded_model_types=WITHOUT, num_cpus=1, num_gpus=0
        )
        return predictor.predict(new)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_cell(methods: dict[str, str], data: Path | None, folder: Path, cell: tuple[str, int]) -> str:
    """Run methods on one split of one table; ``methods`` gives each name a kind: ours, tuned threshold or seconds."""
    name, split = cell
    here = folder / f"{name}-{split}"
    here.mkdir(parents=True, exist_ok=True)
    if data is not None and not (here / "test.parquet").exists():
        prepare(data, here, name, split)
    train, new = (pd.read_parquet(here / f"{part}.parquet") for part in ("train", "test"))
    X, y, y_new = train.drop(columns=LABEL), train[LABEL].to_numpy(), new.pop(LABEL).to_numpy()
    said = []
    for method, kind in methods.items():
        path = here / f"{method}.json"
        if path.exists():
            continue
        start = time.perf_counter()
        try:
            if kind == "ours":
                predicted = fit_ours(X, y, new, split)
            elif kind == "tuned threshold":
                predicted = fit_tuned_threshold(X, y, new, split)
            else:
                limit = json.loads((here / "metricfit.json").read_text())["seconds"] if kind == "equal" else float(kind)
                predicted = fit_autogluon(train, new, limit)
            result = {"value": round(float(f1_score(y_new, predicted)), 6)}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"[:300]}
        result["seconds"] = round(time.perf_counter() - start, 1)
        path.write_text(json.dumps(result), encoding="utf-8")
        said.append(f"{name} {split} {method}: {result}")
    return "\n".join(said) or f"{name} {split}: kept"


def collect(folder: Path) -> dict[str, Any]:
    """Return the results of all finished cells, by table and split and method."""
    results: dict[str, Any] = {}
    for path in sorted(folder.glob("*/*.json")):
        name, _, split = path.parent.name.rpartition("-")
        cell = results.setdefault(name, {}).setdefault(split, {})
        cell[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    return results


def results_table(results: dict[str, Any]) -> str:
    from metricfit.stats import compare
    from studies.common import table

    rows = []
    for method in ("TunedThresholdClassifierCV over LightGBM", "AutoGluon, equal time", "AutoGluon, 300 s"):
        ours, theirs, seconds = [], [], []
        for cells in results.values():
            both = [cell for cell in cells.values() if "value" in cell.get(method, {})]
            if both:
                ours.append(statistics.fmean(cell["metricfit"]["value"] for cell in both))
                theirs.append(statistics.fmean(cell[method]["value"] for cell in both))
                seconds.append(statistics.fmean(cell[method]["seconds"] for cell in both))
        test, means = compare(ours, theirs), (statistics.fmean(ours), statistics.fmean(theirs))
        against = f"{means[0] - means[1]:+.3f}; {test.wins}-{test.losses}, p = {test.p_value:.2g}"
        shown = [f"{means[1]:.3f}", f"{means[0]:.3f}", against, f"{statistics.fmean(seconds):.0f}"]
        rows.append([method, len(ours), *shown])
    head = ["rival", "tables", "rival's F1", "metricfit's F1", "difference; wins-losses, p", "rival's seconds"]
    return table(head, rows)


def write_page() -> None:
    from studies.common import fill

    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"tools": results_table(results)}), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("who", nargs="?", choices=["ours", "autogluon"])
    parser.add_argument("--data", type=Path, help="the folder with the datasets")
    parser.add_argument(
        "--time", default="equal", help='AutoGluon\'s seconds, or "equal" for those of MetricClassifier'
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/rivals"), help="where rows and results are kept")
    parser.add_argument("--tables", type=int, default=19, help="the number of tables, smallest first")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.who is None:
        write_page()
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.who == "ours":
        from metricfit_papers.datasets import STUDY

        options.folder.mkdir(parents=True, exist_ok=True)
        (options.folder / "tables").write_text("\n".join(STUDY), encoding="utf-8")
        methods = {"metricfit": "ours", "TunedThresholdClassifierCV over LightGBM": "tuned threshold"}
    else:
        shown = "equal time" if options.time == "equal" else f"{options.time} s"
        methods = {f"AutoGluon, {shown}": options.time}
    names = (options.folder / "tables").read_text(encoding="utf-8").split()[: options.tables]
    cells = [(name, split) for split in range(options.splits) for name in reversed(names)]
    with get_context("spawn").Pool(options.jobs) as pool:
        for line in pool.imap_unordered(partial(run_cell, methods, options.data, options.folder), cells):
            print(line, flush=True)
    RESULTS.write_text(json.dumps(collect(options.folder), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
