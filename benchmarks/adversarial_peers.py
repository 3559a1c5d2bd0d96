"""AdversarialLoss beside the package ap-perf, F1, forward and backward.

ap-perf needs numba, so it needs a separate environment: ``pip install ap-perf==0.1.1 torch`` there, then
``PYTHONPATH=src python -m benchmarks --module adversarial_peers --threads 1 --repeats 20``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.tables import Line, NotMeasuredHere, Setting, Table
from benchmarks.timing import Work, interleaved_minima
from metricfit_papers import AdversarialLoss

SIZES = (20, 25, 128)
#: Spread of the logits: early in training, and later.
SPREADS = (0.1, 1.0)


def data(n: int, spread: float) -> tuple[Tensor, Tensor]:
    """Make logits that are slightly correlated with the labels, of which three in ten are positive."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(n, generator=generator) < 0.3).float()
    return spread * (torch.randn(n, generator=generator) + target - 0.5), target


def compared(n: int, spread: float) -> Callable[[Setting], list[Line]]:
    """Time both losses on the same batch."""

    def measure(setting: Setting) -> list[Line]:
        logits, target = data(setting.size(n, 5), spread)
        works = {
            "ap-perf 0.1.1, 100 steps": _pass(_ap_perf(), logits, target),
            "AdversarialLoss, to 0.001": _pass(AdversarialLoss("f1", one_class=1.0), logits, target),
        }
        best, repeats = interleaved_minima(works, "cpu", setting, warmup=1)
        return [Line(name, best[name], repeats=repeats) for name in works]

    return measure


def _pass(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Work:
    def work() -> None:
        inputs = logits.clone().requires_grad_()
        loss(inputs, target).sum().backward()

    return work


def _ap_perf() -> Any:
    try:
        metrics, package = importlib.import_module("ap_perf.common_metrics"), importlib.import_module("ap_perf.layer")
    except ImportError as lack:
        raise NotMeasuredHere(f"no ap-perf ({lack}): see benchmarks/adversarial_peers.py") from None
    return package.MetricLayer(metrics.f1_score)


TABLES = tuple(
    Table(
        f"adversarial-{n}-{spread:g}",
        f"the F1 game of a batch of {n}, logits spread by {spread:g}, one thread",
        "cpu",
        compared(n, spread),
    )
    for n in SIZES
    for spread in SPREADS
)
