"""Losses that are means over samples against the same losses in plain torch, forward and backward: time and memory.

The twins are written as a user would write them, from torch's own losses where there is one. Logits are normal and a
tenth of the targets is positive, both float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss, logsigmoid

from benchmarks.binary_loss import data
from benchmarks.passes import Loss, timed_losses
from benchmarks.pointwise import focal
from benchmarks.tables import Line, Setting, Table
from metricfit import SurrogateFBetaLoss
from metricfit.losses import FocalLoss, MAELoss, MarginLoss, MSFELoss, WeightedBCELoss
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss

SIZES = {32: "32", 1024: "1,024", 2**20: "2^20", 2**26: "2^26"}
CLASSES = 10
PRIOR = 0.1


def asymmetric_focal(logits: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """Focal loss with the factor on negatives alone."""
    bce = binary_cross_entropy_with_logits(logits, target, reduction="none")
    return (torch.where(target > 0, 1.0, torch.sigmoid(logits) ** gamma) * bce).mean()


def margin(logits: Tensor, target: Tensor, m: float = 0.5) -> Tensor:
    """Cross-entropy of logits that are moved by the margin to the wrong side."""
    return binary_cross_entropy_with_logits(logits - m * (2 * target - 1), target)


def absolute_error(logits: Tensor, target: Tensor) -> Tensor:
    """The absolute errors of the probabilities of both classes."""
    return 2 * l1_loss(torch.sigmoid(logits), target)


def surrogate_f1(logits: Tensor, target: Tensor) -> Tensor:
    """The surrogate of F1 of Lee et al. 2021, Eq. 20, with balanced classes."""
    c = PRIOR / (1 - PRIOR)
    of_negative = torch.log(c + torch.sigmoid(logits))
    return ((1 - target) * of_negative / (1 - PRIOR) - target * logsigmoid(logits) / PRIOR).mean()


def squared_false_error(logits: Tensor, target: Tensor) -> Tensor:
    """The squared mean errors of the two classes, added."""
    errors, positives = (target - torch.sigmoid(logits)) ** 2 / 2, target.sum()
    of_positives = (errors * target).sum() / positives
    of_negatives = (errors * (1 - target)).sum() / (target.numel() - positives)
    return of_positives**2 + of_negatives**2


def pairs(device: str) -> dict[str, tuple[Loss, Loss]]:
    """Return our loss and its twin by name."""
    bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0, device=device))
    return {
        "WeightedBCELoss(3)": (WeightedBCELoss(3.0), bce),
        "FocalLoss(2)": (FocalLoss(2.0), focal),
        "FocalLoss(2, asymmetric=True)": (FocalLoss(2.0, asymmetric=True), asymmetric_focal),
        "MarginLoss(0.5)": (MarginLoss(0.5), margin),
        "MAELoss()": (MAELoss(), absolute_error),
        "SurrogateFBetaLoss(1)": (SurrogateFBetaLoss(prior=PRIOR), surrogate_f1),
        "MSFELoss()": (MSFELoss(), squared_false_error),
    }


def every_loss(device: str, n: int) -> Callable[[Setting], list[Line]]:
    """Time all losses beside their twins."""

    def measure(setting: Setting) -> list[Line]:
        batch = data(setting.size(n, 64), device)
        losses: dict[str, Loss] = {}
        for name, (ours, twin) in pairs(device).items():
            losses |= {f"{name}, plain torch": twin, name: ours}
        return timed_losses(losses, batch, setting, times=20 if n < 2**12 else 1)

    return measure


def every_size_of_classes(n: int) -> Callable[[Setting], list[Line]]:
    """Time cross-entropy of exclusive classes beside torch's."""

    def measure(setting: Setting) -> list[Line]:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(n, CLASSES, generator=generator)
        target = torch.randint(CLASSES, (n,), generator=generator)
        losses: dict[str, Loss] = {
            "cross_entropy": cross_entropy,
            "WeightedCrossEntropyLoss": WeightedCrossEntropyLoss(),
        }
        return timed_losses(losses, (logits, target), setting, times=20)

    return measure


TABLES = (
    *(
        Table(
            f"pointwise-every-{n}",
            f"a pass of every pointwise loss, {SIZES[n]} logits, {'GPU' if device == 'cuda' else 'CPU'}",
            device,
            every_loss(device, n),
        )
        for device, n in (("cpu", 32), ("cpu", 1024), ("cpu", 2**20), ("cuda", 2**26))
    ),
    Table(
        "pointwise-classes",
        f"a pass of cross-entropy of {CLASSES} classes, a batch of 256, CPU",
        "cpu",
        every_size_of_classes(256),
    ),
)
