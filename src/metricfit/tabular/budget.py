"""How much training fits into a time budget: a step is timed, then epochs and then members are reduced."""

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

#: Steps and members that are kept if possible, and those that are kept whatever the budget is.
PREFERRED_MINIMUM, MINIMUM = (1000, 3), (100, 2)


@dataclass(frozen=True)
class Effort:
    """How long to train.

    Attributes:
        epochs: Maximum number of epochs per stage.
        patience: Epochs without a better value before training stops.
        members: Number of members.
        seconds: Estimated training time if no member stops early.
    """

    epochs: int
    patience: int
    members: int
    seconds: float


def full_epochs(steps: int) -> int:
    """Return the epochs of 2,500 steps, but at least 40 and at most 500, as in our study."""
    return max(40, min(500, 2500 // max(1, steps)))


def fewest_epochs(steps: int, kept: int) -> int:
    """Return the epochs of the steps to keep, but at least 2 and at most 10."""
    return max(2, min(10, -(-kept // max(1, steps))))


def affordable(
    seconds_per_step: float, steps: int, stages: int, *, epochs: int | None, members: int, budget: float | None
) -> Effort:
    """Reduce epochs and then members until training fits into the budget.

    They are reduced to 1,000 steps and 3 members, and if that takes too long, to 100 steps and 2 members. With less,
    the result would not be a useful model. Epochs that the user chose are kept. The estimate assumes that training does
    not stop early.

    >>> affordable(0.01, 10, 1, epochs=None, members=8, budget=100.0)
    Effort(epochs=125, patience=20, members=8, seconds=100.0)
    """
    full = full_epochs(steps) if epochs is None else epochs
    per_epoch = seconds_per_step * steps * stages
    kept_epochs, kept_members = full, members
    limit = math.inf if budget is None else budget
    for minimum_steps, minimum_members in (PREFERRED_MINIMUM, MINIMUM):
        if per_epoch * kept_epochs * kept_members <= limit:
            break
        if epochs is None:
            kept_epochs = min(
                kept_epochs, max(fewest_epochs(steps, minimum_steps), int(limit / (per_epoch * kept_members) + 1e-9))
            )
        kept_members = min(kept_members, max(minimum_members, int(limit / (per_epoch * kept_epochs) + 1e-9)))
    estimate = per_epoch * kept_epochs * kept_members
    if (kept_epochs, kept_members) != (full, members):
        log.info(
            "time budget %s s: %d of %d epochs, %d of %d members (%.3g s per step)",
            *(_few_digits(limit), kept_epochs, full, kept_members, members, seconds_per_step),
        )
    if estimate > limit * 1.001:
        log.warning(
            "training may take %s s, more than the time budget of %s s: %d epochs of %d steps and %d members are the "
            "minimum; network='mlp'%s or fewer rows take less time",
            *(
                _few_digits(estimate),
                _few_digits(limit),
                kept_epochs,
                steps,
                kept_members,
                "" if epochs is None else ", fewer epochs",
            ),
        )
    return Effort(kept_epochs, max(5, kept_epochs // 6), kept_members, estimate)


def _few_digits(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def seconds_per_step(model: nn.Module, stage: Stage, x: Tensor, y: Tensor, device: torch.device) -> float:
    """Time a training step on this batch: the faster of two, after one that is not counted."""
    model = copy.deepcopy(model).to(device).train()
    objective = Objective(copy.deepcopy(stage.objective).to(device).train())
    x, y = x.to(device), y.to(device)
    index = torch.arange(len(y), device=device)
    optimizer = torch.optim.AdamW(model.parameters())
    fastest = float("inf")
    with torch.random.fork_rng():
        for attempt in range(3):
            start = time.perf_counter()
            optimizer.zero_grad()
            objective(model(x), Batch(x, y, None, index)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if attempt:
                fastest = min(fastest, time.perf_counter() - start)
    return fastest
