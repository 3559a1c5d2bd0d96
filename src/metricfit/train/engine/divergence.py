"""Training that goes wrong: losses that are not finite, and gradients that have vanished."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from metricfit.losses.gradient_watch import DEAD_GRADIENT, DeadGradientWarning
from metricfit.train.engine.position import Position

_LOW_LOSS = 0.05  # below it a vanished gradient is normal


def describe_not_finite(
    problem: str,
    position: Position,
    step: int,
    steps_per_epoch: int | None,
    *,
    lr: float,
    member: int | None,
    in_validation: bool,
    checkpoints: Path | None,
) -> str:
    """Write the message about a loss that is not finite.

    Args:
        problem: The problem in a few words, such as "is nan".
        position: The position of the run.
        step: The optimiser step in which it happened, which may be earlier than the position.
        steps_per_epoch: The number of batches per epoch, if it is known.
        lr: The learning rate of the stage.
        member: The number of the member, if there are several.
        in_validation: Whether it is the loss of the validation set.
        checkpoints: The folder of checkpoints, if there is one.

    Returns:
        The message.
    """
    place = f"stage {position.stage}, epoch {position.epoch}"
    batch = position.batch + step - position.step - 1
    if batch >= 0:
        place += f", batch {batch}" + (f" of {steps_per_epoch}" if steps_per_epoch is not None else "")
    loss = f"{'validation ' if in_validation else ''}loss{'' if member is None else f' of member {member}'}"
    causes = "NaN or infinity in the validation inputs, " if in_validation else ""
    kept = "" if checkpoints is None else f" The checkpoints in {checkpoints} were written before this."
    return (
        f"the {loss} {problem} at step {step} ({place}). Likely causes: {causes}a learning rate that is too high (this "
        f"stage: {lr:g}), inputs with very large values, or fp16 overflow; lower lr, pass clip=1.0, standardise the "
        f"inputs, or use bf16.{kept}"
    )


def is_watched(epoch: int) -> bool:
    """Check whether the gradients of an epoch are watched: those of the 1st, 2nd, 4th, 8th epoch and so on."""
    return (epoch + 1) & epoch == 0


class GradientWatch:
    """Follows the largest gradient of each member in an epoch, until each has had one that is not dead.

    Attributes:
        is_open: Whether gradients are still measured.
        largest: The largest sizes so far; None if there are none, or if no member is in danger.
    """

    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open
        self.largest: Tensor | None = None

    def look(self, sizes: Tensor) -> None:
        """Note the sizes of the gradients of a step."""
        self.largest = sizes if self.largest is None else torch.maximum(self.largest, sizes)

    def read(self) -> None:
        """End the watch if all gradients are alive, which on a GPU means waiting for them."""
        if self.largest is not None and min(self.largest.tolist()) >= DEAD_GRADIENT:
            self.is_open, self.largest = False, None


def warn_about_dead_gradients(
    stage: str | None, position: Position, members: Sequence[int], sizes: Tensor, several: bool
) -> None:
    """Warn about members whose gradient vanished in every batch of an epoch although their loss is not low.

    A single batch is not enough: without positives in a batch, the gradient of F1 is 0.

    Args:
        stage: The name of the stage.
        position: The position of the run, at the end of the epoch.
        members: The members that were trained.
        sizes: The largest sum of absolute gradients of each of them.
        several: Whether to name the members.
    """
    for member, size in zip(members, sizes.tolist(), strict=True):
        loss = position.loss_sum[member] / position.batch
        if size < DEAD_GRADIENT and loss > _LOW_LOSS:
            name = f" of member {member}" if several else ""
            warnings.warn(
                f"{stage}, epoch {position.epoch}: the gradient{name} has died. The loss is {loss:.3g}, but the "
                f"gradients of all weights add up to at most {size:.1g} in every batch. Use a step that is "
                "flat nowhere, such as steps.Linear(), or train with cross-entropy first, recipes.two_stage; see "
                "'Start well'.",
                DeadGradientWarning,
                stacklevel=3,
            )
