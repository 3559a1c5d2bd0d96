"""A warning when a loss has stopped teaching: a high loss whose gradient is gone."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

DEAD_GRADIENT = 1e-6
LEARNT = 0.05


class DeadGradientWarning(UserWarning):
    """The loss is far from 0 but its gradient with respect to the logits is nearly 0."""


class GradientWatch:
    """Looks at the gradient of the logits at the forward passes 1, 2, 4, 8 and so on, and warns once."""

    def __init__(self) -> None:
        self.passes = 0
        self.warned = False
        self._hooks: list[RemovableHandle] = []

    def __reduce__(self) -> tuple[type[GradientWatch], tuple[()]]:
        """A copy, or what is loaded from a file, starts to watch anew: hooks belong to a pass of this process."""
        return GradientWatch, ()

    def due(self) -> bool:
        """Count a pass, and say whether it is one to look at."""
        self.passes += 1
        return self.passes & (self.passes - 1) == 0

    def watch(self, loss: Tensor, logits: Tensor, owner: str) -> None:
        """Look at this pass's gradient when it comes."""
        self._stop()
        if self.warned or not (loss.requires_grad and logits.requires_grad) or loss.dim() != 0:
            return
        passes, value = self.passes, loss.detach()
        upstream = math.nan  # until this loss takes part in a backward pass

        def of_loss(grad: Tensor | None) -> None:
            nonlocal upstream
            upstream = math.nan if grad is None else _number(grad.abs())

        def of_logits(grad: Tensor | None) -> None:
            self._stop()
            if grad is None:
                return
            size = _number(grad.abs().sum(dtype=torch.float32))
            if size < DEAD_GRADIENT * upstream and _number(value) > LEARNT and not self.warned:
                self.warned = True
                warnings.warn(
                    _message(owner, passes, float(value), size, grad.numel()),
                    DeadGradientWarning,
                    stacklevel=2,
                )

        self._hooks = [loss.register_hook(of_loss), logits.register_hook(of_logits)]  # type: ignore[no-untyped-call]

    def _stop(self) -> None:
        """Take the hooks off, lest they stay on logits that outlive the pass."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _number(given: Tensor) -> float:
    """The value of a 0-d tensor; NaN, which no comparison holds for, under vmap, where there is none to look at."""
    try:
        return float(given.detach())
    except RuntimeError:
        return math.nan


def _message(owner: str, passes: int, loss: float, size: float, n: int) -> str:
    return (
        f"{owner}: the gradient has died. At forward pass {passes} the loss is {loss:.3g}, but the gradients of its "
        f"{n} logits add up to {size:.1g}. The step is flat where all the scores lie. Remedies: take a step that is "
        "flat nowhere, steps.Linear(), or a smaller k; mix with cross-entropy, losses.Mix((losses.WeightedBCELoss(), "
        "1.0), (loss, 0.5)), or train with it first; look for logits that have run off to large values. The page "
        "'Start well' of the documentation shows each."
    )
