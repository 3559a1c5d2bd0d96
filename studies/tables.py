"""MetricClassifier's default on nineteen tables: beside its families alone, LightGBM, and variants of its parts.

    python -m studies.tables --data ../shared/data --jobs 8   # fit; finished cells are kept in runs/tables
    python -m studies.tables --judge --jobs 8                 # judge all methods by five metrics
    python -m studies.tables                                  # write the page's tables from the results

Ten stratified 80/20 splits, those of recipes.py. A cell fits every family once on the folds of one split, as
``MetricClassifier.fit`` does, and keeps out-of-fold and test logits. All methods are then judged from these logits with
the library's own functions, so that nothing is trained twice. "LightGBM" is the family "boosting": 31 leaves, rate
0.05, stopped on the held-out fold, eight folds averaged.
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

from metricfit.core.arrays import Floats
from metricfit.core.counts import Counts
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.rules import choose_threshold
from metricfit.metrics import get_metric
from metricfit.metrics.metric import Metric
from metricfit.stats import compare
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import SMALLEST_WEIGHT, Selection
from metricfit.tabular.families.choice import DEFAULT, make_families
from metricfit.tabular.families.family import Deadline, Family, Features, TrainingRows
from metricfit.tabular.out_of_fold import fit_families
from metricfit.tabular.row_folds import stratified_folds as row_folds
from metricfit.train.data.batches import derive_seed
from metricfit_papers.datasets import STUDY, load
from metricfit_papers.folds import stratified_folds
from studies.common import fill, table

RESULTS = Path(__file__).resolve().parent / "results" / "tables.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "tables.md"
SPLITS = 10
METRICS = ("f1", "fbeta(beta=2)", "mcc", "gmean", "cost(fp=1, fn=10)")
#: Metrics for which trees are trained on the metric itself.
METRICS_OF_TREES = ("f1", "mcc")
FAMILIES = DEFAULT


def families() -> list[Family]:
    def named(models: Any, metric: str = "f1") -> list[Family]:
        settings = {"average": "macro", "requirements": (), "device": torch.device("cpu")}
        return make_families(models, metric=get_metric(metric), **settings)

    on_metric = [named([(f"boosting_metric {metric}", "boosting_metric")], metric)[0] for metric in METRICS_OF_TREES]
    return [*named([*FAMILIES, "network"]), *on_metric]


def fit(data: Path, folder: Path, cell: tuple[str, int]) -> str:
    """Fit every family on one split of one table, and keep its logits."""
    torch.set_num_threads(1)
    name, split = cell
    path = folder / f"{name}-{split}.npz"
    if path.exists():
        return f"{name} {split}: kept"
    rows = load(name, data)
    train, test = (
        part.numpy() for part in stratified_folds(torch.as_tensor(rows.y), 5, derive_seed("split", split))[0]
    )
    encoder, start = TableEncoder(), time.perf_counter()
    x, y = encoder.fit(rows.X.iloc[train]), np.asarray(rows.y[train], dtype=np.int64)
    training_rows = TrainingRows(Features(x), y, None, 2)
    splits = row_folds(training_rows, 8, None, split)
    results, _ = fit_families(families(), training_rows, splits, seed=split, jobs=1, deadline=Deadline())
    new = Features(encoder.transform(rows.X.iloc[test]))
    arrays = {"y": y, "y_test": np.asarray(rows.y[test], dtype=np.int64)}
    for result in results:
        arrays[f"{result.name}|held_out"] = result.logits[:, 0].astype(np.float32)
        arrays[f"{result.name}|test"] = result.model.logits(new)[:, 0].astype(np.float32)
        arrays[f"{result.name}|seconds"] = np.array(result.seconds)
    np.savez_compressed(path, **arrays)
    return f"{name} {split}: {time.perf_counter() - start:.0f} s"


#: Metrics by which the variants of the ensemble are judged; all methods would take long.
METRICS_OF_VARIANTS = ("f1", "mcc")
#: Each method: the families, what their weights are chosen for, and the rule of the decision.
METHODS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "default": (FAMILIES, "both", "plugin"),
    **{name: ((name,), "equal", "plugin") for name in (*FAMILIES, "boosting_metric", "network")},
    "LightGBM, tuned threshold": (("boosting",), "equal", "empirical"),
    "network, tuned threshold": (("network",), "equal", "empirical"),
    "empirical threshold": (FAMILIES, "both", "empirical"),
    "weights by the metric alone": (FAMILIES, "metric", "plugin"),
    "weights by cross-entropy alone": (FAMILIES, "cross-entropy", "plugin"),
    "equal weights": (FAMILIES, "equal", "plugin"),
    "with boosting_metric": ((*FAMILIES, "boosting_metric"), "both", "plugin"),
    "with the network": ((*FAMILIES, "network"), "both", "plugin"),
    **{f"without {name}": (tuple(other for other in FAMILIES if other != name), "both", "plugin") for name in FAMILIES},
}


class Judge:
    """Judges methods from the logits of one split of one table, by one metric."""

    def __init__(self, arrays: Any, metric: Metric) -> None:
        self.arrays, self.metric = arrays, metric
        self.y, self.y_test = arrays["y"], arrays["y_test"]
        self.selection = Selection(self.y, None, metric, "macro")
        self.held_out: dict[str, Floats] = {}
        self.test: dict[str, Floats] = {}
        self.chosen: dict[Any, Any] = {}

    def value(self, names: tuple[str, ...], weights: str, rule: str) -> float:
        """Calibrate, weight, calibrate again, decide on the same rows, and count on the test rows."""
        mixture, new = self.mixture(names, weights)
        calibration = fit_calibration(mixture, self.y, None)
        threshold = choose_threshold(calibration(mixture).squeeze(1), self.y, None, self.metric, rule=rule).threshold
        decided = (calibration(new).squeeze(1) >= threshold).astype(np.int64)
        return round(self.metric(Counts.from_labels(decided, self.y_test)).item(), 6)

    def mixture(self, names: tuple[str, ...], weights: str) -> tuple[Floats, Floats]:
        """Return the weighted mean of calibrated logits, of the held-out rows and of the test rows."""
        for name in names:
            self._calibrate(name)
        shares = self._weights(names, weights)
        held_out, test = (
            sum(share * logits[name] for share, name in zip(shares, names, strict=True))
            for logits in (self.held_out, self.test)
        )
        return np.asarray(held_out), np.asarray(test)

    def _calibrate(self, name: str) -> None:
        if name not in self.held_out:
            raw = self.arrays[f"{name}|held_out"].astype(np.float64)[:, None]
            calibration = fit_calibration(raw, self.y, None)
            self.held_out[name] = calibration(raw)
            self.test[name] = calibration(self.arrays[f"{name}|test"].astype(np.float64)[:, None])

    def _weights(self, names: tuple[str, ...], kind: str) -> Any:
        logits = np.stack([self.held_out[name] for name in names])
        if kind == "equal":
            return np.full(len(names), 1 / len(names))
        if kind == "both":
            shares = (self._weights(names, "metric") + self._weights(names, "cross-entropy")) / 2
            shares = shares * (shares >= SMALLEST_WEIGHT)
            return shares / shares.sum()
        if (names, kind) not in self.chosen:
            choose = self.selection.weights_for_metric if kind == "metric" else self.selection.weights_for_log_loss
            self.chosen[names, kind] = choose(logits)
        return self.chosen[names, kind]


def judge(folder: Path, cell: tuple[str, int]) -> dict[str, Any]:
    """Judge every method by every metric on one split of one table."""
    torch.set_num_threads(1)
    name, split = cell
    arrays = dict(np.load(folder / f"{name}-{split}.npz"))
    values: dict[str, dict[str, float]] = {}
    for metric in METRICS:
        judged_by = Judge(arrays, get_metric(metric))
        values[metric] = {}
        for method, (members, weights, rule) in METHODS.items():
            if method.startswith("with") and metric not in METRICS_OF_VARIANTS:
                continue
            names = tuple(f"{one} {metric}" if one == "boosting_metric" else one for one in members)
            fitted = tuple(one for one in names if f"{one}|test" in arrays)  # the kernel is left out of large tables
            if fitted and len(fitted) >= len(names) - ("kernel" in names) and fitted[-1] == names[-1]:
                values[metric][method] = judged_by.value(fitted, weights, rule)
    seconds = {key.split("|")[0]: round(float(arrays[key]), 2) for key in arrays if key.endswith("|seconds")}
    return {"values": values, "seconds": seconds}


def write_results(folder: Path, jobs: int) -> None:
    cells = [(name, split) for name in STUDY for split in range(SPLITS) if (folder / f"{name}-{split}.npz").exists()]
    with get_context("fork").Pool(jobs) as pool:
        judged = pool.map(partial(judge, folder), cells, chunksize=1)
    results: dict[str, Any] = {}
    for (name, split), result in zip(cells, judged, strict=True):
        results.setdefault(name, {})[str(split)] = result
    RESULTS.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")


def mean_values(results: dict[str, Any], metric: str, method: str) -> dict[str, float]:
    """The method's mean over splits, for each table where it was judged."""
    return {
        name: statistics.fmean(cell["values"][metric][method] for cell in cells.values())
        for name, cells in results.items()
        if all(method in cell["values"][metric] for cell in cells.values())
    }


def against(results: dict[str, Any], metric: str, method: str, rival: str) -> str:
    """The difference of two methods' means, and wins and losses over tables with Wilcoxon's p."""
    mine, theirs = mean_values(results, metric, method), mean_values(results, metric, rival)
    names = [name for name in mine if name in theirs]
    sign = -1 if get_metric(metric).minimize else 1
    result = compare([sign * mine[name] for name in names], [sign * theirs[name] for name in names])
    difference = statistics.fmean(sign * (mine[name] - theirs[name]) for name in names)
    return f"{difference:+.3f}; {result.wins}-{result.losses}, p = {result.p_value:.2g}"


def methods_table(results: dict[str, Any]) -> str:
    rows = []
    for method in METHODS:
        cells: list[object] = [f"**{method}**" if method == "default" else method]
        for metric in METRICS:
            means = mean_values(results, metric, method)
            shown = f"{statistics.fmean(means.values()):.3f}" if means else ""
            cells.append(shown + (" (16 tables)" if means and len(means) < len(results) else ""))
        cells.append("" if method == "default" else against(results, "f1", "default", method))
        rows.append(cells)
    return table(["", *METRICS, "default against it, F1"], rows)


def rivals_table(results: dict[str, Any]) -> str:
    rival = "LightGBM, tuned threshold"
    return table(
        ["metric", "default", rival, "difference; wins-losses, p"],
        [
            [
                metric,
                *(
                    f"{statistics.fmean(mean_values(results, metric, method).values()):.3f}"
                    for method in ("default", rival)
                ),
                against(results, metric, "default", rival),
            ]
            for metric in METRICS
        ],
    )


def tables_table(results: dict[str, Any]) -> str:
    shown = ("default", "LightGBM, tuned threshold", *FAMILIES, "network")
    means = {method: mean_values(results, "f1", method) for method in shown}
    rows = []
    for name, cells in results.items():
        seconds = {
            family: statistics.fmean(cell["seconds"].get(family, 0.0) for cell in cells.values()) for family in FAMILIES
        }
        default = sum(seconds[family] for family in FAMILIES)
        values = [f"{means[method][name]:.3f}" if name in means[method] else "" for method in shown]
        rows.append([name, *values, f"{default:.1f}", f"{seconds['boosting']:.1f}"])
    return table(["table", *shown, "seconds of the default", "of LightGBM"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: fit what is not yet fitted")
    parser.add_argument("--folder", type=Path, default=Path("runs/tables"), help="where logits are kept")
    parser.add_argument("--judge", action="store_true", help="judge the methods from the logits")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--only", nargs="*", default=STUDY)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.data is not None:
        cells = [(name, split) for split in range(options.splits) for name in reversed(options.only)]
        with get_context("fork").Pool(options.jobs) as pool:
            for line in pool.imap_unordered(partial(fit, options.data, options.folder), cells):
                print(line, flush=True)
    if options.judge:
        write_results(options.folder, options.jobs)
    if options.data is None:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        parts = {"rivals": rivals_table, "methods": methods_table, "tables": tables_table}
        page = fill(PAGE.read_text(encoding="utf-8"), {name: make(results) for name, make in parts.items()})
        PAGE.write_text(page, encoding="utf-8")
        print(rivals_table(results))


if __name__ == "__main__":
    main()
