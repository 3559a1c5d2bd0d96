"""The state of every random number generator that training draws from, on every rank."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from metricfit.core.distributed import number_of_ranks

Generators = tuple[Tensor, Any, Any]


class Stream:
    """Random numbers of their own for what is done inside a with block, going on at each from where the last ended."""

    def __init__(self, seed: int) -> None:
        with seeded(seed):
            self.inside = _now()

    def __enter__(self) -> None:
        self.outside = _now()
        _set(self.inside)

    def __exit__(self, *error: object) -> None:
        self.inside = _now()
        _set(self.outside)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's, Python's and NumPy's random numbers from a seed, and after the block as if nothing had been drawn."""
    before = _now()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    try:
        yield
    finally:
        _set(before)


@contextmanager
def of_run(seed: int, device: torch.device) -> Iterator[None]:
    """The random numbers of a run, those of its device included."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), seeded(seed):
        torch.manual_seed(seed)
        yield


def _now() -> Generators:
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), None if numpy is None else numpy.random.get_state()


def _set(generators: Generators) -> None:
    torch.set_rng_state(generators[0])
    random.setstate(generators[1])
    if generators[2] is not None:
        sys.modules["numpy"].random.set_state(generators[2])


def capture() -> list[dict[str, Any]]:
    """The states of all ranks, in order."""
    version, words, gauss = random.getstate()
    mine: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() and torch.cuda.is_initialized() else None,  # type: ignore[no-untyped-call]
        "python": [version, torch.tensor(words), gauss],
        "numpy": None,
    }
    if "numpy" in sys.modules:
        kind, keys, position, has_gauss, cached = sys.modules["numpy"].random.get_state()
        mine["numpy"] = [kind, torch.tensor(keys.astype("int64")), position, has_gauss, cached]
    ranks = number_of_ranks()
    if ranks == 1:
        return [mine]
    every: list[Any] = [None] * ranks
    dist.all_gather_object(every, mine)
    return every


def restore(states: list[dict[str, Any]]) -> None:
    """Take up this rank's state; with another number of ranks than then, the numbers go on as they are."""
    if len(states) != number_of_ranks():
        return
    mine = states[dist.get_rank() if number_of_ranks() > 1 else 0]
    torch.set_rng_state(mine["torch"])
    if mine["cuda"] is not None:
        torch.cuda.set_rng_state(mine["cuda"])
    version, words, gauss = mine["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    if mine["numpy"] is not None:
        kind, keys, position, has_gauss, cached = mine["numpy"]
        legacy = importlib.import_module("numpy").random  # what users' datasets may draw from
        legacy.set_state((kind, keys.numpy().astype("uint32"), position, has_gauss, cached))
