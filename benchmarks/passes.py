"""Parts that the rows about losses have in common: a pass, a compiled loss, and passes timed together."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.rows import NotMeasuredHere, Peer, Setting
from benchmarks.timing import Work, interleaved_minima, peak_bytes

Loss = Callable[[Tensor, Tensor], Tensor]


def one_pass(loss: Loss, logits: Tensor, target: Tensor) -> Work:
    """Return a function that runs forward and backward, to the gradient of the logits.

    They are new to autograd in each pass, as a model's output is: hooks that a loss leaves on them must not be
    charged to the next candidate.
    """

    def work() -> Tensor:
        fresh = logits.detach().requires_grad_()
        return torch.autograd.grad(loss(fresh, target), fresh)[0]

    return work


def compiled(loss: Any, device: str, setting: Setting) -> Any:
    """Return the loss under torch.compile; a quick run, which measures nothing, does not compile."""
    if setting.quick:
        return loss
    if device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise NotMeasuredHere("no C++ compiler")
    return torch.compile(loss)


def timed_peers(works: Mapping[str, Work], device: str, setting: Setting, *, times: int = 1) -> list[Peer]:
    """Measure the seconds of each work, over ``times`` the setting's repeats, and its memory beyond its inputs."""
    memory = {name: peak_bytes(work, device) for name, work in works.items()}
    best, repeats = interleaved_minima(works, device, setting, times=times)
    return [Peer(name, best[name], memory[name], repeats=repeats) for name in works]
