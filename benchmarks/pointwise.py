"""Pointwise losses beside the same in plain torch, forward and backward, in time and in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.bars import BCE
from benchmarks.binary_loss import data, size
from benchmarks.passes import Loss, timed_losses
from benchmarks.tables import Line, Setting, Table
from metricfit.losses import FocalLoss, WeightedBCELoss

GAMMA, POSITIVE_WEIGHT = 2.0, 3.0
SMALL_BATCH = 256


def focal(logits: Tensor, target: Tensor) -> Tensor:
    """Focal loss as usually written: cross-entropy times (1 - p of the true class)^gamma (Lin et al. 2017)."""
    bce = binary_cross_entropy_with_logits(logits, target, reduction="none")
    return ((1 - torch.exp(-bce)) ** GAMMA * bce).mean()


def losses(device: str) -> dict[str, Loss]:
    """Return the losses that are timed; torch's own cross-entropy has a weight of positives too."""
    weight = torch.tensor(POSITIVE_WEIGHT, device=device)
    return {
        BCE: nn.BCEWithLogitsLoss(),
        "FocalLoss, plain torch": focal,
        "FocalLoss": FocalLoss(GAMMA),
        "WeightedBCELoss, plain torch": nn.BCEWithLogitsLoss(pos_weight=weight),
        "WeightedBCELoss": WeightedBCELoss(POSITIVE_WEIGHT),
    }


def small_batch(setting: Setting) -> list[Line]:
    """Time a batch so small that calls cost more than arithmetic."""
    return timed_losses(losses("cpu"), data(SMALL_BATCH, "cpu"), setting, times=20)


def large_batch(device: str) -> Callable[[Setting], list[Line]]:
    """Time as many logits as in the tables of the metric losses."""
    return lambda setting: timed_losses(losses(device), data(size(device, setting), device), setting)


TABLES = (
    Table("pointwise-256", "a pass of a pointwise loss, a batch of 256, CPU", "cpu", small_batch),
    Table("pointwise-cpu", "a pass of a pointwise loss, 2^20 logits, CPU", "cpu", large_batch("cpu")),
    Table("pointwise-gpu", "a pass of a pointwise loss, 2^28 logits, GPU", "cuda", large_batch("cuda")),
)
