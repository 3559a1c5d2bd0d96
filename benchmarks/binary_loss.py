"""Rows 1 and 2: a metric as a loss against cross-entropy, forward and backward.

A pass is ``autograd.grad(loss(logits, target), logits)``: the loss, and the gradient handed to the model below it.
Logits are normal, a tenth of the targets is positive, both are float32; 2**20 of them on the CPU, 2**28 on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.passes import Loss, compiled, one_pass, timed_peers
from benchmarks.rows import Measurement, Peer, PeerGroup, Row, Setting, at_most
from benchmarks.timing import interleaved_minima
from metricfit import MetricLoss, steps
from metricfit.losses import FocalLoss

SMALL_BATCH_REPEATS = 20  # times the setting's: a pass is microseconds there
TABLE_SIZE = 1001


def data(n: int, device: str) -> tuple[Tensor, Tensor]:
    """Make normal logits, and a target with a tenth of positives."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(n, generator=generator, device=device)
    target = (torch.rand(n, generator=generator, device=device) < 0.1).float()
    return logits, target


def size(device: str, setting: Setting) -> int:
    """Return the number of logits per pass on this device."""
    return setting.size(2**28 if device == "cuda" else 2**20, quick=2**12)


def against_bce(device: str, setting: Setting, ours: Loss, bce: Loss) -> Measurement:
    """Measure the seconds per pass of our loss and of cross-entropy."""
    logits, target = data(size(device, setting), device)
    passes = {"ours": one_pass(ours, logits, target), "bce": one_pass(bce, logits, target)}
    best, repeats = interleaved_minima(passes, device, setting)
    return Measurement(best["ours"], best["bce"], repeats=repeats)


def eager(device: str) -> Callable[[Setting], Measurement]:
    """Measure both in eager mode."""
    return lambda setting: against_bce(device, setting, MetricLoss("f1"), nn.BCEWithLogitsLoss())


def both_compiled(setting: Setting) -> Measurement:
    """Measure both compiled, on the CPU."""
    ours, bce = (compiled(loss, "cpu", setting) for loss in (MetricLoss("f1"), nn.BCEWithLogitsLoss()))
    return against_bce("cpu", setting, ours, bce)


def compiled_against_eager(setting: Setting) -> Measurement:
    """Measure our loss compiled and cross-entropy in eager mode, on a GPU."""
    return against_bce("cuda", setting, compiled(MetricLoss("f1"), "cuda", setting), nn.BCEWithLogitsLoss())


# Peers, written from their formulas in ordinary torch operations.


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
    """Return the losses that are timed together, cross-entropy first."""
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
    """Time eager passes of all peers, and measure their memory beyond logits and target."""

    def measure(setting: Setting) -> list[Peer]:
        logits, target = data(size(device, setting), device)
        passes = {name: one_pass(loss, logits, target) for name, loss in peer_losses().items()}
        return timed_peers(passes, device, setting)

    return measure


def small_batches(n: int) -> Callable[[Setting], list[Peer]]:
    """Time eager passes of a batch so small that calls cost more than arithmetic."""

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
        return timed_peers(passes, "cpu", setting, times=SMALL_BATCH_REPEATS)

    return measure


def step_or_table(setting: Setting) -> list[Peer]:
    """Time the Linear step by its formula and by the lookup table that its authors suggest, forward only."""
    p = torch.rand(size("cpu", setting), generator=torch.Generator().manual_seed(0))
    step = steps.Linear()
    table = step(torch.linspace(0, 1, TABLE_SIZE))
    works = {
        "formula": lambda: step(p),
        f"table of {TABLE_SIZE}": lambda: table.index_select(0, (p * (TABLE_SIZE - 1)).round_().int()),
    }
    return timed_peers(works, "cpu", setting)


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
