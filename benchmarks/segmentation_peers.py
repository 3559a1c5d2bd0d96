"""Segmentation: MetricLoss beside the Dice losses of segmentation_models_pytorch and MONAI, 8 x 4 x 256 x 256.

Counts, or Dice's sums, are over the whole batch in all of them, and macro-averaged over the classes. With the Identity
step MetricLoss("f1") is their soft Dice, up to their smoothing terms; the notes give the values.

``make bench-peers`` does the set-up and runs this. By hand: the peers need a separate environment, because
segmentation_models_pytorch depends on torchvision, which in the tests' environment breaks other libraries. It is
therefore installed without its dependencies, and its losses, which need torch alone, are imported without the package
around them:

    python3 -m venv .venv-peers
    .venv-peers/bin/python -m pip install -c constraints.txt numpy monai==1.6.1 -e .
    .venv-peers/bin/python -m pip install --no-deps segmentation_models_pytorch==0.6.0
    .venv-peers/bin/python -m benchmarks --module segmentation_peers --json benchmarks/results/peers.json
    .venv-peers/bin/python -m benchmarks --markdown benchmarks/RESULTS.md
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

from benchmarks.passes import Loss, one_pass, timed_peers
from benchmarks.rows import NotMeasuredHere, Peer, PeerGroup, Setting
from metricfit import MetricLoss, steps

SHAPE, QUICK_SHAPE = (8, 4, 256, 256), (2, 4, 16, 16)


def data(shape: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    """Make normal logits (n, c, h, w), and targets (n, h, w) in which the first class is the most frequent."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(shape, generator=generator, device=device)
    uniform = torch.rand(shape[0], *shape[2:], generator=generator, device=device)
    return logits, (uniform**2 * shape[1]).long()


def losses() -> dict[str, Loss]:
    """Return the losses that are timed, called with logits (n, c, h, w) and targets (n, h, w)."""
    smp_dice = _smp_losses().DiceLoss("multiclass")
    monai_dice = _monai_losses().DiceLoss(to_onehot_y=True, softmax=True, batch=True)
    return {
        "segmentation_models_pytorch DiceLoss": smp_dice,
        "MONAI DiceLoss": lambda logits, target: monai_dice(logits, target.unsqueeze(1)),
        'MetricLoss("f1"), Identity': MetricLoss("f1", step=steps.Identity()),
        'MetricLoss("f1"), Linear, dynamic threshold': MetricLoss("f1"),
        "cross_entropy": cross_entropy,
    }


def _smp_losses() -> Any:
    """Import the losses of the package without its ``__init__``, which imports timm and torchvision."""
    name = "segmentation_models_pytorch"
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise NotMeasuredHere(f"no {name}: see `make bench-peers`")
    sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    return importlib.import_module(f"{name}.losses")


def _monai_losses() -> Any:
    try:
        return importlib.import_module("monai.losses")
    except ImportError:
        raise NotMeasuredHere("no MONAI: see `make bench-peers`") from None


def passes(device: str) -> Callable[[Setting], list[Peer]]:
    """Time eager passes of all losses, with their values."""

    def measure(setting: Setting) -> list[Peer]:
        logits, target = data(QUICK_SHAPE if setting.quick else SHAPE, device)
        every = losses()
        values = {name: float(loss(logits, target)) for name, loss in every.items()}
        peers = timed_peers({name: one_pass(loss, logits, target) for name, loss in every.items()}, device, setting)
        return [replace(peer, note=f"loss {values[peer.name]:.5f}") for peer in peers]

    return measure


ROWS = ()

PEERS = (
    PeerGroup("segmentation-cpu-peers", "a segmentation pass of 8 x 4 x 256 x 256, CPU, eager", "cpu", passes("cpu")),
    PeerGroup("segmentation-gpu-peers", "a segmentation pass of 8 x 4 x 256 x 256, GPU, eager", "cuda", passes("cuda")),
)
