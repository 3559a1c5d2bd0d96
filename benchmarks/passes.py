"""Parts that the tables about losses have in common: a pass, a compiled loss, and passes timed together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.tables import Line, NotMeasuredHere, Setting
from benchmarks.timing import Work, interleaved_minima, peak_bytes

Loss = Callable[[Tensor, Tensor], Tensor]

#: torch.compile(mode="max-autotune-no-cudagraphs"), which tries several versions of each kernel when it compiles.
AUTOTUNED = "compiled and autotuned"


def one_pass(loss: Loss, logits: Tensor, target: Tensor) -> Work:
    """Return a function that runs forward and backward, to the gradient of the logits.

    They are new to autograd in each pass, as a model's output is: hooks that a loss leaves on them must not be
    charged to the next candidate.
    """

    def work() -> Tensor:
        fresh = logits.detach().requires_grad_()
        return torch.autograd.grad(loss(fresh, target), fresh)[0]

    return work


def compiled(loss: Any, device: str, setting: Setting, *, autotuned: bool = False) -> Any:
    """Return the loss under torch.compile; a tiny run, which measures nothing, does not compile."""
    if setting.tiny:
        return loss
    if device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise NotMeasuredHere("no C++ compiler")
    return torch.compile(loss, mode="max-autotune-no-cudagraphs" if autotuned else None)


def timed_lines(
    works: Mapping[str, Work], device: str, setting: Setting, *, times: int = 1, warmup: int | None = None
) -> list[Line]:
    """Measure the seconds of each work, over ``times`` the setting's repeats, and its memory beyond its inputs."""
    memory = {name: peak_bytes(work, device) for name, work in works.items()}
    best, repeats = interleaved_minima(works, device, setting, times=times, warmup=warmup)
    return [Line(name, best[name], memory[name], repeats=repeats) for name in works]


def timed_losses(
    losses: Mapping[str, Loss], data: tuple[Tensor, Tensor], setting: Setting, *, times: int = 1
) -> list[Line]:
    """Measure one pass of each loss on the same logits and target."""
    works = {name: one_pass(loss, *data) for name, loss in losses.items()}
    return timed_lines(works, data[0].device.type, setting, times=times)
