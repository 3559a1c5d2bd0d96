"""Recall at least 0.9 on Mammography, with and without confidence=: the example of guarantees.py.

Twenty halves of the table, copies of a row on one side. MetricClassifier (boosting_small) is fitted on one half,
chooses the highest precision with recall at least 0.9, and is judged by the other half, and by all rows: out of fold on
its own half, as a model on the other.
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
    from metricfit_papers.datasets import load

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
        models=["boosting_small"],
        n_jobs=1,
        random_state=half,
    )
    model.fit(rows.X.iloc[train], y[train])
    found: dict[str, Any] = {}
    for name, confidence in (("met on held-out rows", None), (f"confidence {CONFIDENCE}", CONFIDENCE)):
        decided = model.rethreshold(confidence=confidence).predict(rows.X.iloc[test]) == 1
        tp, positives = int((decided & (y[test] == 1)).sum()), int((y[test] == 1).sum())
        own = model.requirements_[REQUIREMENT].value * int((y[train] == 1).sum())
        found[name] = {
            "recall": tp / positives,
            "precision": tp / max(int(decided.sum()), 1),
            "of_all": (tp + own) / int((y == 1).sum()),
        }
    path.write_text(json.dumps(found))


def judge_halves(data: Path, folder: Path, jobs: int) -> None:
    """Judge all halves."""
    Parallel(jobs)(delayed(judge_half)(data, half, folder) for half in range(HALVES))


def gather_halves(folder: Path) -> dict[str, Any]:
    """Mean recall and precision, and in how many halves the recall was below the bound."""
    halves = [json.loads(path.read_text()) for path in sorted(folder.glob("half-*.json"))]
    found = {}
    for name in (halves or [{}])[0]:
        recalls, of_all = ([half[name][key] for half in halves] for key in ("recall", "of_all"))
        found[name] = {
            "halves": len(halves),
            "recall": float(np.mean(recalls)),
            "lowest": min(recalls),
            "below": sum(recall < 0.9 for recall in recalls),
            "of_all": float(np.mean(of_all)),
            "below_of_all": sum(recall < 0.9 for recall in of_all),
            "precision": float(np.mean([half[name]["precision"] for half in halves])),
        }
    return found
