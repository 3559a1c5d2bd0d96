"""The best of all thresholds beside the sort alone, and beside scikit-learn's search.

Scores are normal, float32, shifted for the tenth that is positive; nearly all are distinct, so that a million scores
are nearly a million candidate thresholds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.tables import Line, NotMeasuredHere, Setting, Table
from benchmarks.timing import Work, interleaved_minima, peak_bytes
from metricfit.curves import best_threshold, best_thresholds


def data(n: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Make scores and a target that is correlated with them."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(n, generator=generator) < 0.1).long()
    scores = torch.randn(n, generator=generator) + target
    return scores.to(device), target.to(device)


def search_and_sort(device: str, scores: int = 10**6, fewest: int | None = None) -> Callable[[Setting], list[Line]]:
    """Time the sort alone and the search."""

    def measure(setting: Setting) -> list[Line]:
        x, y = data(setting.size(scores, 10**3), device)
        works: dict[str, Work] = {
            "torch.sort": lambda: torch.sort(x, descending=True),
            "best_threshold": lambda: best_threshold(x, y, "f1"),
        }
        memory = {name: peak_bytes(work, device) for name, work in works.items()}
        best, repeats = interleaved_minima(works, device, setting, fewest=fewest)
        return [Line(name, best[name], memory[name], repeats=repeats) for name in works]

    return measure


def search_and_sort_arrays(setting: Setting) -> list[Line]:
    """Time the order of NumPy scores alone, and the search in them, which needs no torch."""
    x, y = (tensor.numpy() for tensor in data(setting.size(10**6, 10**3)))
    works: dict[str, Work] = {
        "numpy.argsort": lambda: np.argsort(x),
        "best_threshold": lambda: best_threshold(x, y, "f1"),
    }
    memory = {name: peak_bytes(work, "cpu") for name, work in works.items()}
    best, repeats = interleaved_minima(works, "cpu", setting)
    return [Line(name, best[name], memory[name], repeats=repeats) for name in works]


def many_labels(device: str, rows: int = 20_000, labels: int = 1000) -> Callable[[Setting], list[Line]]:
    """Time the sorts of all columns alone, the thresholds of all labels at once, and one label after the other."""

    def measure(setting: Setting) -> list[Line]:
        n, c = setting.size(rows, 50), setting.size(labels, 4)
        x, y = (tensor.reshape(n, c) for tensor in data(n * c, device))
        works: dict[str, Work] = {
            "torch.sort": lambda: torch.sort(x, dim=0, descending=True),
            "best_thresholds": lambda: best_thresholds(x, y, "f1"),
            "best_threshold in a loop": lambda: [best_threshold(x[:, j], y[:, j], "f1") for j in range(c)],
        }
        memory = {name: peak_bytes(work, device) for name, work in works.items()}
        best, repeats = interleaved_minima(works, device, setting, warmup=0, fewest=3)
        return [Line(name, best[name], memory[name], repeats=repeats) for name in works]

    return measure


def beside_scikit_learn(setting: Setting) -> list[Line]:
    """Time the search of TunedThresholdClassifierCV(cv="prefit"), which evaluates the metric for every threshold.

    The two take turns, with no warm-up: theirs takes so long that there are a few turns only.
    """
    try:
        from benchmarks.scikit_learn_search import tuned_threshold
    except ImportError:
        raise NotMeasuredHere("no scikit-learn") from None
    scores, target = data(setting.size(20_000, 500))
    thresholds = setting.size(1000, 10)
    probabilities = torch.sigmoid(scores)

    values: dict[str, float] = {}

    def ours() -> None:
        values[our_name] = best_threshold(probabilities, target, "f1").value

    def theirs() -> None:
        values[their_name] = tuned_threshold(probabilities.numpy(), target.numpy(), thresholds)

    our_name, their_name = "best_threshold, all thresholds", f"scikit-learn, {thresholds} thresholds"
    best, repeats = interleaved_minima({their_name: theirs, our_name: ours}, "cpu", setting, warmup=0, fewest=3)
    return [
        Line(name, seconds, note=f"finds F1 = {values[name]:.6f}", repeats=repeats) for name, seconds in best.items()
    ]


TABLES = (
    Table("threshold-cpu", "all thresholds of 10^6 scores, CPU", "cpu", search_and_sort("cpu")),
    Table("threshold-gpu", "all thresholds of 10^6 scores, GPU", "cuda", search_and_sort("cuda")),
    Table("threshold-gpu-large", "all thresholds of 10^8 scores, GPU", "cuda", search_and_sort("cuda", 10**8)),
    Table(
        "threshold-labels-cpu",
        "thresholds of 200 labels, 20,000 rows, CPU",
        "cpu",
        many_labels("cpu", labels=200),
        why_fewer="a pass takes a second",
        is_long=True,
    ),
    Table("threshold-arrays", "best F1 threshold of 10^6 scores in NumPy, CPU", "cpu", search_and_sort_arrays),
    Table(
        "threshold-labels-gpu",
        "thresholds of 1,000 labels, 20,000 rows, GPU",
        "cuda",
        many_labels("cuda"),
        why_fewer="a loop over the labels takes seconds",
    ),
    Table(
        "threshold-scikit-learn",
        "best F1 threshold of 20,000 scores, CPU",
        "cpu",
        beside_scikit_learn,
        why_fewer="scikit-learn takes seconds",
    ),
)
