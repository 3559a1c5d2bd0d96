"""Row 5: the best of all thresholds against the sort alone, and against scikit-learn's search.

Scores are normal, float32, shifted for the tenth that is positive; nearly all are distinct, so that a million scores
are nearly a million candidate thresholds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.rows import Measurement, NotMeasuredHere, Peer, PeerGroup, Row, Setting, at_most
from benchmarks.timing import Work, interleaved_minima
from metricfit.curves import best_threshold


def data(n: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Make scores and a target that is correlated with them."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(n, generator=generator) < 0.1).long()
    scores = torch.randn(n, generator=generator) + target
    return scores.to(device), target.to(device)


def against_sort(setting: Setting) -> Measurement:
    """Measure the seconds of best_threshold and of torch.sort on the CPU."""
    search, sort = _search_and_sort("cpu", setting)
    best, repeats = interleaved_minima({"ours": search, "sort": sort}, "cpu", setting)
    return Measurement(best["ours"], best["sort"], repeats=repeats)


def search_beside_sort(device: str) -> Callable[[Setting], list[Peer]]:
    """Time the same as peers, for devices without a bar."""

    def measure(setting: Setting) -> list[Peer]:
        search, sort = _search_and_sort(device, setting)
        works = {"torch.sort": sort, "best_threshold": search}
        best, repeats = interleaved_minima(works, device, setting)
        return [Peer(name, seconds, repeats=repeats) for name, seconds in best.items()]

    return measure


def _search_and_sort(device: str, setting: Setting) -> tuple[Work, Work]:
    scores, target = data(setting.size(10**6, quick=10**3), device)
    return lambda: best_threshold(scores, target, "f1"), lambda: torch.sort(scores, descending=True)


def beside_scikit_learn(setting: Setting) -> list[Peer]:
    """Time the search of TunedThresholdClassifierCV(cv="prefit"), which evaluates the metric for every threshold.

    The two take turns, with no warm-up: theirs takes so long that the budget allows a few turns only.
    """
    try:
        from benchmarks.scikit_learn_search import tuned_threshold
    except ImportError:
        raise NotMeasuredHere("no scikit-learn") from None
    scores, target = data(setting.size(200_000, quick=500))
    thresholds = setting.size(1000, quick=10)
    probabilities = torch.sigmoid(scores)

    values: dict[str, float] = {}

    def ours() -> None:
        values[our_name] = best_threshold(probabilities, target, "f1").value

    def theirs() -> None:
        values[their_name] = tuned_threshold(probabilities.numpy(), target.numpy(), thresholds)

    our_name, their_name = "best_threshold, all thresholds", f"scikit-learn, {thresholds} thresholds"
    best, repeats = interleaved_minima({their_name: theirs, our_name: ours}, "cpu", setting, warmup=0)
    return [
        Peer(name, seconds, note=f"finds F1 = {values[name]:.6f}", repeats=repeats) for name, seconds in best.items()
    ]


ROWS = (
    Row(
        "best-threshold",
        "best_threshold over all thresholds v torch.sort, 10^6 float32 scores, CPU",
        "cpu",
        at_most(3.0),
        against_sort,
    ),
)

PEERS = (
    PeerGroup("best-threshold-gpu", "all thresholds of 10^6 scores, GPU", "cuda", search_beside_sort("cuda")),
    PeerGroup("best-threshold-scikit-learn", "best F1 threshold of 200,000 scores, CPU", "cpu", beside_scikit_learn),
)
