"""Recall at least 0.9 on Mammography, with and without confidence=: the example of guarantees.py.

Twenty halves of the table, copies of a row on one side. MetricClassifier (linear, boosting_small, extra_trees) is
fitted on one half, chooses the highest precision with recall at least 0.9, and is judged by the other half.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

HALVES, REQUIREMENT, CONFIDENCE = 20, "recall >= 0.9", 0.95


def judge_half(data: Path, half: int, folder: Path) -> None:
    """Recall and precision on the other half: met on the rows, and at a confidence."""
    from metricfit import MetricClassifier
    from metricfit.data import load

    path = folder / f"half-{half}.json"
    if path.exists():
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = load("mammography", data)
    y = np.asarray(rows.y, dtype=np.int64)
    copies = np.unique(rows.X.to_numpy(), axis=0, return_inverse=True)[1]
    there = np.random.default_rng(half).random(copies.max() + 1) < 0.5
    train, test = np.flatnonzero(there[copies]), np.flatnonzero(~there[copies])
    model = MetricClassifier(
        "precision",
        subject_to=REQUIREMENT,
        models=["linear", "boosting_small", "extra_trees"],
        n_jobs=1,
        random_state=half,
    )
    model.fit(rows.X.iloc[train], y[train])
    found: dict[str, Any] = {}
    for name, confidence in (("met on held-out rows", None), (f"confidence {CONFIDENCE}", CONFIDENCE)):
        decided = model.rethreshold(confidence=confidence).predict(rows.X.iloc[test]) == 1
        tp, positive = int((decided & (y[test] == 1)).sum()), int((y[test] == 1).sum())
        found[name] = {"recall": tp / positive, "precision": tp / max(int(decided.sum()), 1), "positives": positive}
    path.write_text(json.dumps(found))


def judge_halves(data: Path, folder: Path, jobs: int) -> None:
    """Judge all halves."""
    Parallel(jobs)(delayed(judge_half)(data, half, folder) for half in range(HALVES))


def gather_halves(folder: Path) -> dict[str, Any]:
    """Mean recall and precision, and in how many halves the recall was below the bound."""
    halves = [json.loads(path.read_text()) for path in sorted(folder.glob("half-*.json"))]
    return {
        name: {
            "halves": len(halves),
            "below": sum(half[name]["recall"] < 0.9 for half in halves),
            **{key: float(np.mean([half[name][key] for half in halves])) for key in ("recall", "precision")},
            "lowest": min(half[name]["recall"] for half in halves),
        }
        for name in (halves or [{}])[0]
    }
