"""How much training fits into the time: a step is timed, then epochs are lowered, then members."""

from __future__ import annotations

import copy
import logging
import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from metricfit.train.data.batches import Batch
from metricfit.train.stage import Objective, Stage

log = logging.getLogger("metricfit.tabular")

#: Steps and members that are kept where lowering one to them is enough, and those that are kept whatever the budget.
WORTHWHILE, LEAST = (1000, 3), (100, 2)


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


def fewest_epochs(steps: int, kept: int) -> int:
    """The epochs of so many steps to be kept, but at most 10 epochs and at least 2."""
    return max(2, min(10, -(-kept // max(1, steps))))


def affordable(
    seconds_per_step: float, steps: int, stages: int, *, epochs: int | None, members: int, budget: float | None
) -> Effort:
    """Full training, or what the budget allows of it: fewer epochs, then fewer members.

    First down to 1,000 steps and 3 members; where that takes too long, down to 100 steps and 2 members, and no further:
    with less, what comes out is no model. Epochs the user asked for are kept. The estimate is of training that never
    stops early.

    >>> affordable(0.01, 10, 1, epochs=None, members=8, budget=100.0)
    Effort(epochs=125, patience=20, members=8, seconds=100.0)
    """
    wanted = full_epochs(steps) if epochs is None else epochs
    per_epoch = seconds_per_step * steps * stages
    most, several = wanted, members
    limit = math.inf if budget is None else budget
    for kept_steps, kept_members in (WORTHWHILE, LEAST):
        if per_epoch * most * several <= limit:
            break
        if epochs is None:
            most = min(most, max(fewest_epochs(steps, kept_steps), int(limit / (per_epoch * several) + 1e-9)))
        several = min(several, max(kept_members, int(limit / (per_epoch * most) + 1e-9)))
    estimate = per_epoch * most * several
    if (most, several) != (wanted, members):
        log.info(
            "time budget %s s: %d of %d epochs, %d of %d members (%.3g s a step)",
            *(_few_digits(limit), most, wanted, several, members, seconds_per_step),
        )
    if estimate > limit * 1.001:
        log.warning(
            "training may take %s s, more than the time budget of %s s: %d epochs of %d steps and %d members are the "
            "least; network='mlp'%s or fewer rows take less",
            *(
                _few_digits(estimate),
                _few_digits(limit),
                most,
                steps,
                several,
                "" if epochs is None else ", fewer epochs",
            ),
        )
    return Effort(most, max(5, most // 6), several, estimate)


def _few_digits(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


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
