"""The fixed cost of a pass: batches so small that calls cost more than arithmetic, eager, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.bars import BCE, BINARY_BATCHES, CROSS_ENTROPY, LAGRANGIAN, METRIC_LOSS, MIX
from benchmarks.binary_loss import data, soft_dice, soft_f1
from benchmarks.passes import Loss, timed_losses
from benchmarks.tables import Line, Setting, Table
from metricfit import AugmentedLagrangian, MetricLoss
from metricfit.losses import Mix

REPEATS = 20  # times the setting's: a pass takes microseconds


def losses(baseline: str, plain: Loss, others: dict[str, Loss]) -> dict[str, Loss]:
    """Return the losses that are timed: cross-entropy, ours alone and in combinations, and others."""
    return {
        baseline: plain,
        METRIC_LOSS: MetricLoss("f1"),
        'MetricLoss("f1", validate=False)': MetricLoss("f1", validate=False),
        MIX: Mix((MetricLoss("f1"), 0.5), (_as_module(plain), 0.5)),
        LAGRANGIAN: AugmentedLagrangian(_as_module(plain), ["recall >= 0.9"]),
        **others,
    }


def _as_module(loss: Loss) -> nn.Module:
    return loss if isinstance(loss, nn.Module) else nn.CrossEntropyLoss()


def binary(n: int, device: str = "cpu") -> Callable[[Setting], list[Line]]:
    """Time the losses of a binary batch."""
    others = {"Bridging the Gap, F1, plain torch": soft_f1, "soft Dice, plain torch": soft_dice}
    return lambda setting: timed_losses(
        losses(BCE, nn.BCEWithLogitsLoss(), others), data(n, device), setting, times=REPEATS
    )


def multiclass(setting: Setting) -> list[Line]:
    """Time the losses of 256 samples of 10 classes."""
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(256, 10, generator=generator), torch.randint(10, (256,), generator=generator)
    return timed_losses(losses(CROSS_ENTROPY, cross_entropy, {}), batch, setting, times=REPEATS)


def multilabel(setting: Setting) -> list[Line]:
    """Time the losses of 256 samples with 20 labels."""
    batch: tuple[Tensor, Tensor] = tuple(part.view(256, 20) for part in data(256 * 20, "cpu"))  # type: ignore[assignment]
    return timed_losses(losses(BCE, nn.BCEWithLogitsLoss(), {}), batch, setting, times=REPEATS)


TABLES = (
    *(Table(f"batch-{n}", f"a pass of a batch of {n:,}, CPU, eager", "cpu", binary(n)) for n in BINARY_BATCHES),
    Table("batch-256x10", "a multiclass pass of 256 x 10, CPU, eager", "cpu", multiclass),
    Table("batch-256x20", "a multilabel pass of 256 x 20, CPU, eager", "cpu", multilabel),
    Table("batch-4096-gpu", "a pass of a batch of 4,096, GPU, eager", "cuda", binary(4_096, "cuda")),
)
