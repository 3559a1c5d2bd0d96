"""Arrays give what tensors give, also where torch is not installed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from metricfit import decide

WITHOUT_TORCH = f"""
import json, sys

class NoTorch:
    def find_spec(self, name, *args):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name, name="torch")

sys.meta_path.insert(0, NoTorch())
sys.path.insert(0, {__file__.rpartition("/")[0]!r})
from test_arrays_and_tensors import choices, np
print(json.dumps(choices(np.asarray)))
"""


def rows(n=300):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 3))
    return z, (z + 0.5 * rng.normal(size=(n, 3))).argmax(1)


def choices(kind):
    """What is decided by each function, in plain numbers; ``kind`` makes arrays or tensors of NumPy arrays."""
    z, y = rows()
    new, labels, positive = z[:100] + 0.2, (z > 0).astype(int), (y == 0).astype(int)
    z, y, new, labels, positive, group = map(kind, (z, y, new, labels, positive, np.arange(len(z)) % 2))
    several = ["recall[1] >= 0.6", "accuracy >= 0.5"]
    share = 1 / (1 + np.exp(-np.random.default_rng(1).normal(size=(2, 3, 5, 5))))
    chosen = {
        "threshold": decide.best_decision(z[:, 0], positive, "f1"),
        "certified": decide.best_decision(z[:, 0], positive, "f1", subject_to="precision >= 0.5", confidence=0.8),
        "offsets": decide.best_decision(z, y, "f1", subject_to=several, rule="empirical"),
        "certified offsets": decide.best_decision(z, y, "f1", subject_to="recall[1] >= 0.5", confidence=0.8),
        "costs": decide.best_decision(z, y, "weighted_kappa(power=2)"),
        "labels": decide.best_decision(z, labels, "f1", average="macro", subject_to="recall[2] >= 0.7"),
        "referral": decide.best_referral(z[:, 0], positive, "f1", max_share=0.1),
    }
    found = {name: decision.state() for name, decision in chosen.items()}
    by_group = decide.best_group_thresholds(z[:, 0], positive, group, "f1", "recall >= 0.5", confidence=0.8)
    found["groups"] = [by_group.thresholds[0], by_group.thresholds[1], by_group.decide(z[:, 0], group).tolist()]
    found["shares"] = decide.estimate_prevalence(z, y, new).shares.tolist()
    images, exclusive, chances = kind(share[:, 0]), kind(share / share.sum(1, keepdims=True)), kind(share[0, 0])
    masks = [
        decide.per_image(images),
        decide.per_image(exclusive, task="multiclass"),
        decide.per_image(exclusive, task="multilabel", zero_division=1.0),
        decide.per_row(chances),
    ]
    return found | {"masks": [mask.tolist() for mask in masks]}


def same(found, expected):
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], value) for name, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == pytest.approx(expected) if isinstance(expected, float) else found == expected


def test_tensors_give_what_arrays_give():
    torch = pytest.importorskip("torch")
    of_arrays, of_tensors = choices(np.asarray), choices(torch.from_numpy)
    assert of_arrays.keys() == of_tensors.keys()
    for name, expected in of_arrays.items():
        assert same(of_tensors[name], expected), name


def test_decisions_need_no_torch():
    run = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert same(json.loads(run.stdout), json.loads(json.dumps(choices(np.asarray))))
