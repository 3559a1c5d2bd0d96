"""Thresholds of several labels on four tables: at 0.5, tuned on the labels, and by calibrated probabilities.

    python -m studies.label_thresholds --data ../shared/data   # half a minute on one core; fills in the page

Logistic regression per label, random splits (two thirds of the rows, at most 1,200, to train on), out-of-fold logits of
five folds. Labels with fewer than two positives among the training rows are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from torch import Tensor

from metricfit.decide import calibration as label_calibration
from metricfit.decide.calibration import fit_label_calibration
from metricfit.decide.labels import choose_label_thresholds, label_value
from metricfit.metrics import f1
from metricfit.tabular.estimator_scores import Scores, to_logits
from studies.common import fill, table
from studies.mulan import MOST_DENSE_COLUMNS, read

RESULTS = Path(__file__).resolve().parent / "results" / "label_thresholds.json"
PAGE = RESULTS.parents[2] / "docs" / "evidence" / "decisions.md"
SPLITS = {"birds": 4, "emotions": 4, "enron": 2, "medical": 2}
AVERAGES = ("macro", "micro", "samples")
#: Each method: its rule, and how many positives the calibration of all labels counts for; None decides at 0.5.
METHODS: dict[str, tuple[str, float] | None] = {
    "at 0.5": None,
    "empirical": ("empirical", 10.0),
    "plugin, each alone": ("plugin", 0.0),
    "**plugin**": ("plugin", 10.0),
}


def logits_of(x: Any, y: NDArray[np.int64], new: Any, seed: int) -> tuple[Tensor, Tensor]:
    """Return the out-of-fold logits of training rows, and the logits of new rows by a model of all of them."""

    def fit(rows: Any) -> OneVsRestClassifier:
        return OneVsRestClassifier(LogisticRegression(C=0.3, solver="liblinear")).fit(x[rows], y[rows])

    held_out = np.zeros(y.shape)
    for rest, fold in KFold(5, shuffle=True, random_state=seed).split(x):
        held_out[fold] = fit(rest).predict_proba(x[fold])
    parts = (held_out, fit(np.arange(len(y))).predict_proba(new))
    return tuple(to_logits(Scores(part, True), 1e-9, labels=True) for part in parts)


def measure(data: Path, name: str, split: int) -> dict[str, dict[str, float]]:
    x, y = read(data, name)
    rows = np.random.default_rng(split).permutation(len(x))
    number = min(len(x) * 2 // 3, 1200)
    train, test = rows[:number], rows[number:]
    kept = y[train].sum(0) >= 2
    dense = x.shape[1] < MOST_DENSE_COLUMNS
    scaled = StandardScaler().fit_transform(x) if dense else sparse.csr_matrix(MaxAbsScaler().fit_transform(x))
    held_out, new = logits_of(scaled[train], y[train][:, kept], scaled[test], split)
    labels, true = torch.from_numpy(y[train][:, kept]), torch.from_numpy(y[test][:, kept])
    values: dict[str, dict[str, float]] = {average: {} for average in AVERAGES}
    for method, settings in METHODS.items():
        for average in AVERAGES:
            decided = new >= 0
            if settings is not None:
                rule, label_calibration.POSITIVES_OF_ALL = settings
                calibration = fit_label_calibration(held_out, labels, None)
                thresholds = choose_label_thresholds(calibration(held_out), labels, None, f1, average, rule=rule)
                decided = calibration(new) >= torch.from_numpy(thresholds)
            values[average][method] = round(label_value(decided, true, None, f1, average), 6)
    return values


def labels_table(results: dict[str, Any]) -> str:
    """The mean of each method over the tables, and for the macro average on each table."""

    def mean(name: str, average: str, method: str) -> float:
        return statistics.fmean(cell[average][method] for cell in results[name].values())

    rows = [
        [
            method,
            *(f"{statistics.fmean(mean(name, average, method) for name in SPLITS):.3f}" for average in AVERAGES),
            *(f"{mean(name, 'macro', method):.3f}" for name in SPLITS),
        ]
        for method in METHODS
    ]
    return table(["thresholds", *AVERAGES, *(f"macro, {name}" for name in SPLITS)], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: measure")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message="Label .* is present in all training examples")
    torch.set_num_threads(1)
    if options.data is not None:
        results = {
            name: {str(split): measure(options.data, name, split) for split in range(splits)}
            for name, splits in SPLITS.items()
        }
        RESULTS.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"labels": labels_table(results)}), encoding="utf-8")


if __name__ == "__main__":
    main()
