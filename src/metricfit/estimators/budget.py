"""How much training fits into the time: a step is timed, then epochs are lowered, then members."""

from __future__ import annotations

import copy
import logging
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from metricfit.train.batch import Batch
from metricfit.train.stage import Objective, Stage

log = logging.getLogger("metricfit.estimators")

FEWEST_STEPS = 1000
FEWEST_MEMBERS = 3


@dataclass(frozen=True)
class Effort:
    """How long to train: epochs a stage, epochs without a better value before a stop, members.

    Attributes:
        seconds: what that is estimated to take at most.
    """

    epochs: int
    patience: int
    members: int
    seconds: float


def full_epochs(steps: int) -> int:
    """The study's: 2,500 steps, but at most 500 epochs and at least 40."""
    return max(40, min(500, 2500 // max(1, steps)))


def fewest_epochs(steps: int) -> int:
    """No fewer than these, whatever the budget: 1,000 steps, but at most 10 epochs and at least 2."""
    return max(2, min(10, -(-FEWEST_STEPS // max(1, steps))))


def affordable(
    seconds_per_step: float, steps: int, stages: int, *, epochs: int | None, members: int, budget: float | None
) -> Effort:
    """Full training, or what the budget allows of it: fewer epochs, then fewer members, down to 3.

    Epochs the user asked for are kept. The estimate is of training that never stops early.

    >>> affordable(0.01, 10, 1, epochs=None, members=8, budget=100.0)
    Effort(epochs=125, patience=20, members=8, seconds=100.0)
    """
    wanted = full_epochs(steps) if epochs is None else epochs
    per_epoch = seconds_per_step * steps * stages
    most, several = wanted, members
    if budget is not None and per_epoch * wanted * members > budget:
        if epochs is None:
            most = min(wanted, max(fewest_epochs(steps), int(budget / (per_epoch * members) + 1e-9)))
        several = min(members, max(FEWEST_MEMBERS, int(budget / (per_epoch * most) + 1e-9)))
    estimate = per_epoch * most * several
    if (most, several) != (wanted, members):
        log.info(
            "time budget %.0f s: %d of %d epochs, %d of %d members (%.3g s a step)",
            *(budget, most, wanted, several, members, seconds_per_step),
        )
    if budget is not None and estimate > budget * 1.001:
        log.warning("training may take %.0f s, more than the time budget of %.0f s", estimate, budget)
    return Effort(most, max(5, most // 6), several, estimate)


def seconds_per_step(model: nn.Module, stage: Stage, x: Tensor, y: Tensor, device: torch.device) -> float:
    """The time of a training step on this batch: the faster of two, after one that is not counted."""
    model = copy.deepcopy(model).to(device).train()
    objective = Objective(copy.deepcopy(stage.objective).to(device).train())
    x, y = x.to(device), y.to(device)
    index = torch.arange(len(y), device=device)
    optimizer = torch.optim.AdamW(model.parameters())
    fastest = float("inf")
    with torch.random.fork_rng():
        for attempt in range(3):
            began = time.perf_counter()
            optimizer.zero_grad()
            objective(model(x), Batch(x, y, None, index)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if attempt:
                fastest = min(fastest, time.perf_counter() - began)
    return fastest
