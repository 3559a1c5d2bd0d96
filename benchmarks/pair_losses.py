"""Losses over all pairs of a positive and a negative, forward and backward: by sorting, and pair by pair.

The hinge loss is the mean over pairs of max(0, 1 - (x+ - x-))^2. Scores are normal, float32, those of the positives,
half of the samples, one higher: 40,000 samples are 4 * 10^8 pairs, which take seconds and gigabytes per pass. Memory
once used is kept for the next pass: getting gigabytes anew from the system takes longer than the arithmetic, and the
fastest pass of all pairs is one that need not. LibAUC is installed as ``segmentation_loss`` says.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.passes import Loss, one_pass, timed_lines
from benchmarks.tables import Line, NotMeasuredHere, Setting, Table
from benchmarks.timing import interleaved_minima, peak_bytes
from metricfit.losses import PairHingeLoss, PairSquareLoss

SAMPLES, TINY_SAMPLES = 40_000, 1_000
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


def beside_each_other(
    losses: Callable[[], dict[str, Loss]], device: str, fewest: int | None = None
) -> Callable[[Setting], list[Line]]:
    """Time losses over the same pairs, with their values."""

    def measure(setting: Setting) -> list[Line]:
        keep_freed_memory()
        batch = data(setting.size(SAMPLES, TINY_SAMPLES), device)
        every = losses()
        values = {name: float(loss(*batch)) for name, loss in every.items()}
        works = {name: one_pass(loss, *batch) for name, loss in every.items()}
        memory = {name: peak_bytes(work, device) for name, work in works.items()}
        best, repeats = interleaved_minima(works, device, setting, warmup=1, fewest=fewest)
        return [Line(name, best[name], memory[name], f"loss {values[name]:.6f}", repeats) for name in works]

    return measure


def ours_and_all_pairs() -> dict[str, Loss]:
    """Return the squared hinge in the usual way and ours."""
    return {"all pairs, plain torch": all_pairs, "PairHingeLoss": PairHingeLoss()}


def libauc_and_ours() -> dict[str, Loss]:
    """Return LibAUC's losses over pairs and ours: the squared hinge, then the square loss."""
    theirs = _libauc()
    return {
        "LibAUC PairwiseAUCLoss, squared hinge": theirs.PairwiseAUCLoss(surr_loss="squared_hinge"),
        "PairHingeLoss": PairHingeLoss(),
        "LibAUC PairwiseAUCLoss, square": theirs.PairwiseAUCLoss(surr_loss="squared"),
        "PairSquareLoss": PairSquareLoss(),
    }


def _libauc() -> Any:
    try:
        return importlib.import_module("libauc.losses.auc")
    except ImportError as lack:
        raise NotMeasuredHere(f"no LibAUC ({lack}): see `make bench`") from None


def sizes_on_gpu(setting: Setting) -> list[Line]:
    """Time one pass of each number of samples on a GPU, with its memory."""
    sizes = tuple(n // 1000 for n in GPU_SIZES) if setting.tiny else GPU_SIZES
    lines = timed_lines({f"{n:,} samples": one_pass(PairHingeLoss(), *data(n, "cuda")) for n in sizes}, "cuda", setting)
    return [
        replace(line, note=f"{(line.bytes or 0) / n:.0f} B per sample") for line, n in zip(lines, sizes, strict=True)
    ]


TITLE = "a pass over the pairs of 40,000 samples"

TABLES = (
    Table("pairs-cpu", f"{TITLE}, CPU", "cpu", beside_each_other(ours_and_all_pairs, "cpu"), is_long=True),
    Table("pairs-gpu", "a pass of PairHingeLoss, GPU", "cuda", sizes_on_gpu),
    Table("pairs-gpu-all", f"{TITLE}, GPU", "cuda", beside_each_other(ours_and_all_pairs, "cuda")),
    Table(
        "pairs-cpu-libauc",
        f"{TITLE}, CPU, beside LibAUC",
        "cpu",
        beside_each_other(libauc_and_ours, "cpu", fewest=3),
        why_fewer="LibAUC takes several seconds per pass",
        is_long=True,
    ),
    Table("pairs-gpu-libauc", f"{TITLE}, GPU, beside LibAUC", "cuda", beside_each_other(libauc_and_ours, "cuda")),
)
