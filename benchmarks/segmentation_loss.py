"""Segmentation: MetricLoss beside the Dice losses of MONAI and segmentation_models_pytorch, forward and backward.

Counts, or Dice's sums, are over the whole batch in all of them, and macro-averaged over the classes. With the Identity
step MetricLoss("f1") is their soft Dice, up to their smoothing terms; the notes give the values.

``make bench`` installs the peers in ``benchmarks/.peers``, without their dependencies: segmentation_models_pytorch
depends on torchvision, which in the tests' environment breaks other libraries. Its losses, which need torch alone, are
imported without the package around them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.bars import CROSS_ENTROPY, MONAI, SEGMENTATION_SHAPES, STEPS
from benchmarks.passes import Loss, timed_losses
from benchmarks.tables import Line, NotMeasuredHere, Setting, Table
from metricfit import MetricLoss, steps

TINY_SHAPE = (2, 4, 16, 16)


def data(shape: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    """Make normal logits (n, c, h, w), and targets (n, h, w) in which the first class is the most frequent."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(shape, generator=generator, device=device)
    uniform = torch.rand(shape[0], *shape[2:], generator=generator, device=device)
    return logits, (uniform**2 * shape[1]).long()


def losses() -> dict[str, Loss]:
    """Return the losses that are timed, called with logits (n, c, h, w) and targets (n, h, w)."""
    monai_dice = _monai_losses().DiceLoss(to_onehot_y=True, softmax=True, batch=True)
    return {
        MONAI: lambda logits, target: monai_dice(logits, target.unsqueeze(1)),
        "segmentation_models_pytorch DiceLoss": _smp_losses().DiceLoss("multiclass"),
        CROSS_ENTROPY: cross_entropy,
        **{f'MetricLoss("f1"), {name}': MetricLoss("f1", step=_step(name)) for name in STEPS},
    }


def _step(name: str) -> Any:
    return steps.Linear(0.2) if name == "Linear" else getattr(steps, name)()  # the width of Linear for classes


def _smp_losses() -> Any:
    """Import the losses of the package without its ``__init__``, which imports timm and torchvision."""
    name = "segmentation_models_pytorch"
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise NotMeasuredHere(f"no {name}: see `make bench`")
    sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    return importlib.import_module(f"{name}.losses")


def _monai_losses() -> Any:
    try:
        return importlib.import_module("monai.losses")
    except ImportError:
        raise NotMeasuredHere("no MONAI: see `make bench`") from None


def passes(shape: tuple[int, ...], device: str) -> Callable[[Setting], list[Line]]:
    """Time eager passes of all losses, with their values."""

    def measure(setting: Setting) -> list[Line]:
        batch = data(TINY_SHAPE if setting.tiny else shape, device)
        every = losses()
        values = {name: float(loss(*batch)) for name, loss in every.items()}
        return [replace(line, note=f"loss {values[line.name]:.5f}") for line in timed_losses(every, batch, setting)]

    return measure


TABLES = tuple(
    Table(
        f"segmentation-{'x'.join(map(str, shape))}-{shown.lower()}",
        f"a segmentation pass of {' x '.join(map(str, shape))}, {shown}, eager",
        device,
        passes(shape, device),
    )
    for shown, device in (("CPU", "cpu"), ("GPU", "cuda"))
    for shape in SEGMENTATION_SHAPES
)
