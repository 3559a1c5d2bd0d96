"""Rows 1 and 2: a metric as a loss against cross-entropy, forward and backward.

A pass is ``autograd.grad(loss(logits, target), logits)``: the loss, and the gradient handed to the model below it.
Logits are normal, a tenth of the targets is positive, both are float32; 2**20 of them on the CPU, 2**28 on a GPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.rows import Measurement, NotMeasuredHere, Peer, PeerGroup, Row, Setting, at_most
from benchmarks.timing import Work, interleaved_minima, peak_bytes
from metricfit import MetricLoss, steps
from metricfit.losses import FocalLoss

Loss = Callable[[Tensor, Tensor], Tensor]

SMALL_BATCH_REPEATS = 20  # times the setting's: a pass is microseconds there
TABLE_SIZE = 1001


def data(n: int, device: str) -> tuple[Tensor, Tensor]:
    """Normal logits, and a target with a tenth of positives."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(n, generator=generator, device=device)
    target = (torch.rand(n, generator=generator, device=device) < 0.1).float()
    return logits, target


def size(device: str, setting: Setting) -> int:
    """How many logits a pass has on this device."""
    return setting.size(2**28 if device == "cuda" else 2**20, quick=2**12)


def one_pass(loss: Loss, logits: Tensor, target: Tensor) -> Work:
    """Forward and backward, to the gradient of the logits.

    They are new to autograd in each pass, as a model's output is: hooks that a loss leaves on them must not be
    charged to the next candidate.
    """

    def work() -> Tensor:
        fresh = logits.detach().requires_grad_()
        return torch.autograd.grad(loss(fresh, target), fresh)[0]

    return work


def compiled(loss: nn.Module, device: str, setting: Setting) -> Any:
    """The loss under torch.compile; a quick run traces it and leaves out the slow code generation."""
    if setting.quick:
        return torch.compile(loss, backend="aot_eager")
    if device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise NotMeasuredHere("no C++ compiler")
    return torch.compile(loss)


def against_bce(device: str, setting: Setting, ours: Loss, bce: Loss) -> Measurement:
    """Seconds of a pass of ours and of cross-entropy."""
    logits, target = data(size(device, setting), device)
    passes = {"ours": one_pass(ours, logits, target), "bce": one_pass(bce, logits, target)}
    best = interleaved_minima(passes, device=device, repeats=setting.repeats)
    return Measurement(best["ours"], best["bce"])


def eager(device: str) -> Callable[[Setting], Measurement]:
    """Both eager."""
    return lambda setting: against_bce(device, setting, MetricLoss("f1"), nn.BCEWithLogitsLoss())


def both_compiled(setting: Setting) -> Measurement:
    """Both compiled, on the CPU."""
    ours, bce = (compiled(loss, "cpu", setting) for loss in (MetricLoss("f1"), nn.BCEWithLogitsLoss()))
    return against_bce("cpu", setting, ours, bce)


def compiled_against_eager(setting: Setting) -> Measurement:
    """Ours compiled, cross-entropy eager, on a GPU."""
    return against_bce("cuda", setting, compiled(MetricLoss("f1"), "cuda", setting), nn.BCEWithLogitsLoss())


# Peers, each written from its formula in ordinary torch operations.


def btg_f1(logits: Tensor, target: Tensor, delta: float = 0.1) -> Tensor:
    """Bridging the Gap at t = 0.5: 1 - F1 of soft counts by the piecewise linear step (Tsoi et al. 2022, Eq. 5)."""
    p = torch.sigmoid(logits)
    outer, inner = 4 * delta, 2 * (1 - 2 * delta)
    upper = torch.where(p > 0.75, 1 - delta + outer * (p - 0.75), 0.5 + inner * (p - 0.5))
    h = torch.where(p < 0.25, outer * p, upper)
    tp, fp, fn = (target * h).sum(), ((1 - target) * h).sum(), (target * (1 - h)).sum()
    return 1 - 2 * tp / (2 * tp + fp + fn)


def focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """Focal loss as usually written: cross-entropy times (1 - p of the true class)^gamma (Lin et al. 2017)."""
    bce = binary_cross_entropy_with_logits(logits, target, reduction="none")
    return ((1 - torch.exp(-bce)) ** gamma * bce).mean()


def soft_dice(logits: Tensor, target: Tensor) -> Tensor:
    """Soft Dice: 1 - 2 sum(p y) / (sum(p) + sum(y))."""
    p = torch.sigmoid(logits)
    return 1 - 2 * (p * target).sum() / (p.sum() + target.sum())


def peer_losses() -> dict[str, Loss]:
    """What is timed beside each other, cross-entropy first."""
    return {
        "BCEWithLogitsLoss": nn.BCEWithLogitsLoss(),
        'MetricLoss("f1"), Linear': MetricLoss("f1"),
        'MetricLoss("f1"), Sigmoid': MetricLoss("f1", step=steps.Sigmoid()),
        'MetricLoss("f1"), RaisedCosine': MetricLoss("f1", step=steps.RaisedCosine()),
        'MetricLoss("f1"), Identity': MetricLoss("f1", step=steps.Identity()),
        "metricfit FocalLoss(2)": FocalLoss(2.0),
        "Bridging the Gap, F1, plain torch": btg_f1,
        "focal loss, plain torch": focal,
        "soft Dice, plain torch": soft_dice,
    }


def passes_of_losses(device: str) -> Callable[[Setting], list[Peer]]:
    """Eager passes of all peers, and the memory each needs beyond logits and target."""

    def measure(setting: Setting) -> list[Peer]:
        logits, target = data(size(device, setting), device)
        passes = {name: one_pass(loss, logits, target) for name, loss in peer_losses().items()}
        return _peers(passes, device, setting.repeats)

    return measure


def small_batches(n: int) -> Callable[[Setting], list[Peer]]:
    """Eager passes of a batch so small that calls cost more than arithmetic."""

    def measure(setting: Setting) -> list[Peer]:
        logits, target = data(n, "cpu")
        losses: dict[str, Loss] = {
            "BCEWithLogitsLoss": nn.BCEWithLogitsLoss(),
            'MetricLoss("f1")': MetricLoss("f1"),
            'MetricLoss("f1", validate=False)': MetricLoss("f1", validate=False),
            "Bridging the Gap, F1, plain torch": btg_f1,
            "soft Dice, plain torch": soft_dice,
        }
        passes = {name: one_pass(loss, logits, target) for name, loss in losses.items()}
        return _peers(passes, "cpu", setting.repeats * SMALL_BATCH_REPEATS)

    return measure


def step_or_table(setting: Setting) -> list[Peer]:
    """The Linear step by its formula and by the lookup table that its authors suggest, forward only."""
    p = torch.rand(size("cpu", setting), generator=torch.Generator().manual_seed(0))
    step = steps.Linear()
    table = step(torch.linspace(0, 1, TABLE_SIZE))
    works = {
        "formula": lambda: step(p),
        f"table of {TABLE_SIZE}": lambda: table[(p * (TABLE_SIZE - 1)).round_().long()],
    }
    return _peers(works, "cpu", setting.repeats)


def _peers(works: Mapping[str, Work], device: str, repeats: int) -> list[Peer]:
    memory = {name: peak_bytes(work, device) for name, work in works.items()}
    best = interleaved_minima(works, device=device, repeats=repeats)
    return [Peer(name, best[name], memory[name]) for name in works]


WORK = 'MetricLoss("f1") forward+backward v BCEWithLogitsLoss'

ROWS = (
    Row("binary-loss-cpu-eager", f"{WORK}, 2^20 logits, CPU, both eager", "cpu", at_most(2.0), eager("cpu")),
    Row("binary-loss-cpu-compiled", f"{WORK}, 2^20 logits, CPU, both compiled", "cpu", at_most(1.2), both_compiled),
    Row("binary-loss-gpu-eager", f"{WORK}, 2^28 logits, GPU, both eager", "cuda", at_most(1.5), eager("cuda")),
    Row(
        "binary-loss-gpu-compiled",
        f"{WORK}, 2^28 logits, GPU, ours compiled, BCE eager",
        "cuda",
        at_most(0.5),
        compiled_against_eager,
    ),
)

PEERS = (
    PeerGroup("binary-loss-cpu-peers", "a pass of 2^20 logits, CPU, eager", "cpu", passes_of_losses("cpu")),
    PeerGroup("binary-loss-gpu-peers", "a pass of 2^28 logits, GPU, eager", "cuda", passes_of_losses("cuda")),
    PeerGroup("binary-loss-batch-32", "a pass of a batch of 32, CPU, eager", "cpu", small_batches(32)),
    PeerGroup("binary-loss-batch-1024", "a pass of a batch of 1024, CPU, eager", "cpu", small_batches(1024)),
    PeerGroup("step-or-table", "the Linear step of 2^20 probabilities, CPU, forward", "cpu", step_or_table),
)
