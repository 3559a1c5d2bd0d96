"""The states of all random number generators that training uses, on every rank."""

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
    """A separate stream of random numbers for with blocks; each block continues where the previous one ended.

    Args:
        seed: The seed of the random numbers of torch, Python and NumPy inside the blocks.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.inside: Generators | None = None

    def __enter__(self) -> None:
        self.outside = _get_states()
        if self.inside is None:
            seed_all(self.seed)
        else:
            _set_states(self.inside)

    def __exit__(self, *error: object) -> None:
        self.inside = _get_states()
        _set_states(self.outside)


def seed_all(seed: int) -> None:
    """Seed the random numbers of torch, Python and NumPy on the CPU."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


@contextmanager
def seeded_run(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the random numbers of a run, on its device too."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), Stream(seed):
        if device.type != "cpu":
            torch.manual_seed(seed)
        yield


def _get_states() -> Generators:
    numpy = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), None if numpy is None else numpy.random.get_state()


def _set_states(generators: Generators) -> None:
    torch.set_rng_state(generators[0])
    random.setstate(generators[1])
    if generators[2] is not None:
        sys.modules["numpy"].random.set_state(generators[2])


def capture() -> list[dict[str, Any]]:
    """Return the states of all ranks, in order."""
    on_cpu, python, numpy = _get_states()
    state: dict[str, Any] = {
        "torch": on_cpu,
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() and torch.cuda.is_initialized() else None,  # type: ignore[no-untyped-call]
        "python": python,
        "numpy": None if numpy is None else [*numpy[:1], torch.tensor(numpy[1].astype("int64")), *numpy[2:]],
    }
    ranks = number_of_ranks()
    if ranks == 1:
        return [state]
    states: list[Any] = [None] * ranks
    dist.all_gather_object(states, state)
    return states


def restore(states: list[dict[str, Any]]) -> None:
    """Restore the state of this rank."""
    state = states[dist.get_rank() if number_of_ranks() > 1 else 0]
    numpy = state["numpy"]
    if numpy is not None:
        importlib.import_module("numpy")  # users' datasets may use it
        numpy = (numpy[0], numpy[1].numpy().astype("uint32"), *numpy[2:])
    _set_states((state["torch"], state["python"], numpy))
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])
