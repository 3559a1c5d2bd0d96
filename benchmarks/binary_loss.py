"""A metric as a loss beside cross-entropy, forward and backward: 2**20 logits on the CPU, 2**28 on a GPU.

A pass is ``autograd.grad(loss(logits, target), logits)``: the loss, and the gradient handed to the model below it.
Logits are normal, a tenth of the targets is positive, both are float32 unless a line says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.bars import BCE, METRIC_LOSS
from benchmarks.passes import AUTOTUNED, Loss, compiled, one_pass, timed_lines, timed_losses
from benchmarks.tables import Line, Setting, Table
from metricfit import MetricLoss, steps

TABLE_SIZE = 1001


def data(n: int, device: str) -> tuple[Tensor, Tensor]:
    """Make normal logits, and a target with a tenth of positives."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(n, generator=generator, device=device)
    target = (torch.rand(n, generator=generator, device=device) < 0.1).float()
    return logits, target


def trained_data(n: int, device: str) -> tuple[Tensor, Tensor]:
    """Make the same, with the logits of a network that separates the classes: few counts are left to sum."""
    logits, target = data(n, device)
    return logits + 12 * target - 6, target


def size(device: str, setting: Setting) -> int:
    """Return the number of logits per pass on this device."""
    return setting.size(2**28 if device == "cuda" else 2**20, 2**12)


# Peers, written from their formulas in ordinary torch operations.


def soft_f1(logits: Tensor, target: Tensor, delta: float = 0.1) -> Tensor:
    """Bridging the Gap at t = 0.5: 1 - F1 of soft counts by the piecewise linear step (Tsoi et al. 2022, Eq. 5)."""
    p = torch.sigmoid(logits)
    outer, inner = 4 * delta, 2 * (1 - 2 * delta)
    upper = torch.where(p > 0.75, 1 - delta + outer * (p - 0.75), 0.5 + inner * (p - 0.5))
    h = torch.where(p < 0.25, outer * p, upper)
    tp, fp, fn = (target * h).sum(), ((1 - target) * h).sum(), (target * (1 - h)).sum()
    return 1 - 2 * tp / (2 * tp + fp + fn)


def soft_dice(logits: Tensor, target: Tensor) -> Tensor:
    """Soft Dice: 1 - 2 sum(p y) / (sum(p) + sum(y))."""
    p = torch.sigmoid(logits)
    return 1 - 2 * (p * target).sum() / (p.sum() + target.sum())


def against_bce(device: str) -> Callable[[Setting], list[Line]]:
    """Time our loss and cross-entropy, eager and compiled; nothing else, so that caches are theirs alone."""

    def measure(setting: Setting) -> list[Line]:
        losses: dict[str, Loss] = {BCE: nn.BCEWithLogitsLoss(), METRIC_LOSS: MetricLoss("f1")}
        losses |= {f"{name}, compiled": compiled(loss, device, setting) for name, loss in losses.items()}
        return timed_losses(losses, data(size(device, setting), device), setting)

    return measure


def autotuned(setting: Setting) -> list[Line]:
    """Time our loss compiled with autotuning beside cross-entropy; alone, because graphs of one loss are in the way."""
    loss = compiled(MetricLoss("f1"), "cuda", setting, autotuned=True)
    losses: dict[str, Loss] = {BCE: nn.BCEWithLogitsLoss(), f"{METRIC_LOSS}, {AUTOTUNED}": loss}
    return timed_losses(losses, data(size("cuda", setting), "cuda"), setting)


def steps_and_peers(device: str) -> Callable[[Setting], list[Line]]:
    """Time our loss with every step beside soft losses in plain torch."""

    def measure(setting: Setting) -> list[Line]:
        losses: dict[str, Loss] = {
            BCE: nn.BCEWithLogitsLoss(),
            'MetricLoss("f1"), Linear': MetricLoss("f1"),
            'MetricLoss("f1"), Sigmoid': MetricLoss("f1", step=steps.Sigmoid()),
            'MetricLoss("f1"), RaisedCosine': MetricLoss("f1", step=steps.RaisedCosine()),
            'MetricLoss("f1"), Identity': MetricLoss("f1", step=steps.Identity()),
            "Bridging the Gap, F1, plain torch": soft_f1,
            "soft Dice, plain torch": soft_dice,
        }
        return timed_losses(losses, data(size(device, setting), device), setting)

    return measure


def trained(device: str) -> Callable[[Setting], list[Line]]:
    """Time our loss and cross-entropy on the logits of a network that separates the classes."""

    def measure(setting: Setting) -> list[Line]:
        losses: dict[str, Loss] = {BCE: nn.BCEWithLogitsLoss(), METRIC_LOSS: MetricLoss("f1")}
        return timed_losses(losses, trained_data(size(device, setting), device), setting)

    return measure


def narrow_types(setting: Setting) -> list[Line]:
    """Time our loss with logits in bfloat16 and targets in 8 bits beside float32, on a GPU."""
    logits, target = data(size("cuda", setting), "cuda")
    inputs = {
        "float32 logits, float32 target": (logits, target),
        "float32 logits, uint8 target": (logits, target.to(torch.uint8)),
        "bfloat16 logits, float32 target": (logits.bfloat16(), target),
        "bfloat16 logits, uint8 target": (logits.bfloat16(), target.to(torch.uint8)),
    }
    works = {name: one_pass(MetricLoss("f1"), *batch) for name, batch in inputs.items()}
    works[f"{BCE}, bfloat16"] = one_pass(nn.BCEWithLogitsLoss(), logits.bfloat16(), target.bfloat16())
    return timed_lines(works, "cuda", setting)


def step_or_table(setting: Setting) -> list[Line]:
    """Time the Linear step by its formula and by the lookup table that its authors suggest, forward only."""
    p = torch.rand(size("cpu", setting), generator=torch.Generator().manual_seed(0))
    step = steps.Linear()
    table = step(torch.linspace(0, 1, TABLE_SIZE))
    works = {
        "formula": lambda: step(p),
        f"table of {TABLE_SIZE}": lambda: table.index_select(0, (p * (TABLE_SIZE - 1)).round_().int()),
    }
    return timed_lines(works, "cpu", setting)


TABLES = (
    Table("binary-cpu", "a pass of 2^20 logits, CPU", "cpu", against_bce("cpu")),
    Table("binary-gpu", "a pass of 2^28 logits, GPU", "cuda", against_bce("cuda")),
    Table("binary-autotuned-gpu", "a pass of 2^28 logits, GPU, compiled with autotuning", "cuda", autotuned),
    Table("binary-trained-cpu", "a pass of 2^20 logits of separated classes, CPU, eager", "cpu", trained("cpu")),
    Table("binary-trained-gpu", "a pass of 2^28 logits of separated classes, GPU, eager", "cuda", trained("cuda")),
    Table("binary-steps-cpu", "a pass of 2^20 logits, CPU, eager", "cpu", steps_and_peers("cpu")),
    Table("binary-steps-gpu", "a pass of 2^28 logits, GPU, eager", "cuda", steps_and_peers("cuda")),
    Table("binary-types-gpu", 'a pass of MetricLoss("f1") on 2^28 logits, GPU, eager', "cuda", narrow_types),
    Table("step-or-table", "the Linear step of 2^20 probabilities, CPU, forward", "cpu", step_or_table),
)
