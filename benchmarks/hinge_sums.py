"""Row 4: a loss over all pairs by sorting against all pairs, forward and backward; its memory on a GPU.

The loss is the mean over pairs of max(0, 1 - (x+ - x-))^2. Scores are normal, float32, those of the positives, half of
the samples, one higher: 40,000 samples are 4 * 10^8 pairs. All pairs take seconds and gigabytes per pass, so that the
budget of seconds ends that row after fewer repeats than others; the table says how many there were. Memory once used
is kept for the next pass: getting gigabytes anew from the system takes longer than the arithmetic, and the fastest pass
of all pairs is one that need not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.passes import Loss, one_pass, timed_peers
from benchmarks.rows import Measurement, Peer, PeerGroup, Row, Setting, at_least, at_most
from benchmarks.timing import Work, interleaved_minima, peak_bytes
from metricfit.losses import PairHingeLoss

SAMPLES, QUICK_SAMPLES = 40_000, 1_000
GPU_SIZES = (10**4, 10**5, 10**6, 10**7)


def data(n: int, device: str) -> tuple[Tensor, Tensor]:
    """Make scores, and a target of which half is positive."""
    generator = torch.Generator(device).manual_seed(0)
    target = (torch.rand(n, generator=generator, device=device) < 0.5).float()
    return torch.randn(n, generator=generator, device=device) + target, target


def all_pairs(logits: Tensor, target: Tensor) -> Tensor:
    """Compute the loss as it is usually written, over all pairs of a positive and a negative."""
    gaps = logits[target == 1].unsqueeze(1) - logits[target == 0].unsqueeze(0)
    return torch.relu(1 - gaps).square().mean()


def keep_freed_memory() -> None:
    """Make the C library keep freed memory from now on, if it is glibc."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        trim_threshold, mmap_max = -1, -4  # their numbers in malloc.h
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, -1)


def against_all_pairs(setting: Setting) -> Measurement:
    """Measure the seconds of a pass by sorting and of a pass over all pairs."""
    keep_freed_memory()
    logits, target = data(setting.size(SAMPLES, QUICK_SAMPLES), "cpu")
    passes = {"ours": one_pass(PairHingeLoss(), logits, target), "pairs": one_pass(all_pairs, logits, target)}
    best, repeats = interleaved_minima(passes, "cpu", setting, warmup=1)
    return Measurement(best["ours"], best["pairs"], repeats=repeats)


def memory_a_sample(setting: Setting) -> Measurement:
    """Measure the peak memory in bytes per sample, for the largest and for the smallest number of samples."""
    sizes = _sizes(setting)
    few, many = (peak_bytes(_pass(n), "cuda") / n for n in (sizes[0], sizes[-1]))
    return Measurement(many, few, unit="bytes", repeats=1)


def passes_of_sizes(setting: Setting) -> list[Peer]:
    """Time one pass of each size on a GPU, with its memory."""
    return timed_peers({f"{n:,} samples": _pass(n) for n in _sizes(setting)}, "cuda", setting)


def beside_all_pairs(losses: Callable[[], dict[str, Loss]], device: str) -> Callable[[Setting], list[Peer]]:
    """Time losses over the same pairs, with their values."""

    def measure(setting: Setting) -> list[Peer]:
        keep_freed_memory()
        logits, target = data(setting.size(SAMPLES, QUICK_SAMPLES), device)
        every = losses()
        values = {name: float(loss(logits, target)) for name, loss in every.items()}
        works = {name: one_pass(loss, logits, target) for name, loss in every.items()}
        memory = {name: peak_bytes(work, device) for name, work in works.items()}
        best, repeats = interleaved_minima(works, device, setting, warmup=1)
        return [Peer(name, best[name], memory[name], f"loss {values[name]:.6f}", repeats) for name in works]

    return measure


def ours_and_all_pairs() -> dict[str, Loss]:
    """Return the losses; the usual way is first."""
    return {"all pairs, plain torch": all_pairs, "PairHingeLoss": PairHingeLoss()}


def _sizes(setting: Setting) -> tuple[int, ...]:
    return tuple(n // 1000 for n in GPU_SIZES) if setting.quick else GPU_SIZES


def _pass(n: int) -> Work:
    return one_pass(PairHingeLoss(), *data(n, "cuda"))


ROWS = (
    Row(
        "hinge-sums-cpu",
        "PairHingeLoss() forward+backward, sorted, v all pairs, 40,000 samples, CPU",
        "cpu",
        at_least(100.0),
        against_all_pairs,
    ),
    Row(
        "hinge-sums-gpu-memory",
        "PairHingeLoss() forward+backward, peak memory a sample, 10^7 samples v 10^4, GPU",
        "cuda",
        at_most(1.1),
        memory_a_sample,
    ),
)

PEERS = (
    PeerGroup("hinge-sums-gpu-sizes", "a pass of PairHingeLoss, GPU", "cuda", passes_of_sizes),
    PeerGroup(
        "hinge-sums-gpu-pairs",
        "a pass over the pairs of 40,000 samples, GPU",
        "cuda",
        beside_all_pairs(ours_and_all_pairs, "cuda"),
    ),
)
