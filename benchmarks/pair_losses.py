"""Losses over all pairs of a positive and a negative, forward and backward: by sorting, and pair by pair.

The hinge loss is the mean over pairs of max(0, 1 - (x+ - x-))^2. Scores are normal, float32, those of the positives,
half of the samples, one higher: 40,000 samples are 4 * 10^8 pairs, which take seconds and gigabytes per pass. Memory
once used is kept for the next pass: getting gigabytes anew from the system takes longer than the arithmetic, and the
fastest pass of all pairs is one that need not.

glibc's cache of small pieces would keep the freed matrices apart, so that memory grows to four times of what a pass
needs. Tables on the CPU are therefore measured in a process of their own, without that cache; if it is killed, the
other tables go on. LibAUC, which needs 7 matrices of all pairs where the usual form needs 5, has fewer samples there.
It is installed as ``segmentation_loss`` says.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.passes import Loss, one_pass, timed_lines
from benchmarks.tables import Line, NotMeasuredHere, Setting, Table
from benchmarks.timing import interleaved_minima, peak_bytes
from metricfit.losses import PairHingeLoss, PairSquareLoss

SAMPLES, TINY_SAMPLES = 40_000, 1_000
LIBAUC_SAMPLES = 10_000  # on the CPU
WITHOUT_CACHE = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
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


class BesideEachOther(NamedTuple):
    """Times losses over the same pairs, with their values."""

    losses: Callable[[], dict[str, Loss]]
    device: str
    samples: int = SAMPLES

    def __call__(self, setting: Setting) -> list[Line]:
        """Measure, on the CPU in another process."""
        if self.device != "cpu" or setting.tiny:
            return self.measure(setting, torch.get_num_threads())
        spawn = multiprocessing.get_context("spawn")
        with patch.dict(os.environ, WITHOUT_CACHE), ProcessPoolExecutor(1, spawn) as other_process:
            return other_process.submit(self.measure, setting, torch.get_num_threads()).result()

    def measure(self, setting: Setting, threads: int) -> list[Line]:
        """Measure in this process, with so many threads."""
        if self.device == "cpu" and not setting.tiny:
            keep_freed_memory()
            torch.set_num_threads(threads)
        batch = data(setting.size(self.samples, TINY_SAMPLES), self.device)
        every = self.losses()
        values = {name: float(loss(*batch)) for name, loss in every.items()}
        works = {name: one_pass(loss, *batch) for name, loss in every.items()}
        memory = {name: peak_bytes(work, self.device) for name, work in works.items()}
        best, repeats = interleaved_minima(works, self.device, setting, warmup=1)
        return [Line(name, best[name], memory[name], f"loss {values[name]:.6f}", repeats) for name in works]


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


def _title(samples: int) -> str:
    return f"a pass over the pairs of {samples:,} samples"


TABLES = (
    Table("pairs-cpu", f"{_title(SAMPLES)}, CPU", "cpu", BesideEachOther(ours_and_all_pairs, "cpu"), is_long=True),
    Table("pairs-gpu", "a pass of PairHingeLoss, GPU", "cuda", sizes_on_gpu),
    Table("pairs-gpu-all", f"{_title(SAMPLES)}, GPU", "cuda", BesideEachOther(ours_and_all_pairs, "cuda")),
    Table(
        "pairs-cpu-libauc",
        f"{_title(LIBAUC_SAMPLES)}, CPU, beside LibAUC",
        "cpu",
        BesideEachOther(libauc_and_ours, "cpu", LIBAUC_SAMPLES),
        is_long=True,
    ),
    Table(
        "pairs-gpu-libauc", f"{_title(SAMPLES)}, GPU, beside LibAUC", "cuda", BesideEachOther(libauc_and_ours, "cuda")
    ),
)
