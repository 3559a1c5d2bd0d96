"""Warnings about training that makes no progress: a high loss without a gradient, and a loss that stays constant."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from metricfit.core.counts import Counts
from metricfit.core.validation import extremes

#: A gradient is dead if the sum over the logits is below this share of the gradient of the loss.
DEAD_GRADIENT = 1e-6
#: A loss below this is low enough that a small gradient is no problem.
LEARNT = 0.05
#: At forward pass STALL_AT the mean loss of the LAST_PASSES is compared with that of the FIRST_PASSES.
STALL_AT, FIRST_PASSES, LAST_PASSES, STALLED = 128, 8, 16, 0.95
#: Number of checked passes, 1, 2, 4 and so on, whose logits all lie in [0, 1] before a warning.
PROBABLE = 4
#: Training started from random weights if the first loss is at least this share of a uniform guess's, 1 - 1/c.
FROM_SCRATCH = 0.9
#: A class of usual size counts as given up if it is predicted less often than this share of its samples.
GIVEN_UP = 0.1


class DeadGradientWarning(UserWarning):
    """The loss is far from 0 but its gradient with respect to the logits is nearly 0.

    Example:
        >>> from metricfit import MetricLoss, steps
        >>> logits = torch.tensor([-30.0, -31.0], requires_grad=True)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     MetricLoss("f1", step=steps.RaisedCosine())(logits, torch.tensor([1, 0])).backward()
        >>> caught[0].category.__name__
        'DeadGradientWarning'
    """


class StalledLossWarning(UserWarning):
    """A metric loss of several classes has not moved in its first steps, or has given up some of the classes.

    Example:
        >>> from metricfit import MetricLoss
        >>> loss, target = MetricLoss("f1"), torch.tensor([0, 1, 2])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     for _ in range(128):
        ...         _ = loss(torch.zeros(3, 3, requires_grad=True), target)  # a model that does not learn
        >>> caught[0].category.__name__
        'StalledLossWarning'
    """


class ProbabilitiesWarning(UserWarning):
    """All logits of several batches lie in [0, 1], as the outputs of a sigmoid or a softmax do.

    Example:
        >>> from metricfit import MetricLoss
        >>> loss, outputs = MetricLoss("f1"), torch.tensor([0.9, 0.2], requires_grad=True)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     for _ in range(8):
        ...         _ = loss(outputs, torch.tensor([1, 0]))
        >>> caught[0].category.__name__
        'ProbabilitiesWarning'
    """


class ProgressWatch:
    """Compares the first forward passes with those before pass 128, and warns once if training makes no progress.

    A metric of several classes has small gradients while all classes are about equally probable, and nearly no gradient
    for a class that is never predicted. From random weights such a loss can stay constant, or never predict some
    classes, at any learning rate. Training that starts from a trained model has a lower loss and is not checked.
    """

    def __init__(self) -> None:
        self.passes = 0
        self.first: list[float] = []
        self.last: list[float] = []
        self.counts: list[Counts] = []

    def __reduce__(self) -> tuple[type[ProgressWatch], tuple[()]]:
        """Copies start from the beginning."""
        return ProgressWatch, ()

    def due(self, last: tuple[Any, bool] | None) -> bool:
        """Count a forward pass of training of at least three exclusive classes, and return whether to record it."""
        if last is None or not last[1] or _classes(last[0][0]) < 3:
            return False
        self.passes += 1
        return self.passes <= FIRST_PASSES or STALL_AT - LAST_PASSES < self.passes <= STALL_AT

    def see(self, loss: Tensor, counts: Counts, owner: str) -> None:
        """Record a forward pass that is due.

        Args:
            loss: The loss, a scalar.
            counts: The soft counts of three or more exclusive classes, detached.
            owner: The name of the loss in the message.
        """
        if self.passes <= FIRST_PASSES:
            self.first.append(_number(loss))
        else:
            self.last.append(_number(loss))
            self.counts.append(counts)
            if self.passes == STALL_AT:
                self._judge(counts.tp.shape[-1], owner)
                self.counts = []

    def _judge(self, classes: int, owner: str) -> None:
        start, current = sum(self.first) / FIRST_PASSES, sum(self.last) / LAST_PASSES
        if not start >= FROM_SCRATCH * (1 - 1 / classes):
            return
        if current > STALLED * start:
            finding = f"the loss is {current:.3g}, and it started at {start:.3g}"
        elif given_up := self._given_up(classes):
            subject = "class {} of {} is" if len(given_up) == 1 else "classes {} of {} are"
            finding = subject.format(", ".join(map(str, given_up[:10])), classes) + " hardly ever predicted"
        else:
            return
        warnings.warn(
            f"{owner}: after {STALL_AT} forward passes {finding}. A metric loss of several classes often does not get "
            "away from random weights, at any learning rate. Remedies: train with cross-entropy first "
            "(train.recipes.two_stage), or mix it in, losses.Mix((nn.CrossEntropyLoss(), 1.0), (loss, 0.5)). If the "
            "learning rate is still warming up, ignore this. The page 'Start well' of the documentation has figures.",
            StalledLossWarning,
            stacklevel=5,
        )

    def _given_up(self, classes: int) -> list[int]:
        """Return the hardly ever predicted classes, of those with at least a quarter of the mean class size."""
        if len({part.tp.shape for part in self.counts}) > 1:
            return []
        total = sum(self.counts[1:], self.counts[0]).map(lambda cell: cell.reshape(-1, classes).sum(0))
        positives, predicted = total.positives, total.predicted
        usual = positives >= positives.mean() / 4
        return (usual & (predicted < GIVEN_UP * positives)).nonzero().flatten().tolist()


class GradientWatch:
    """Checks the gradient of the logits at forward passes 1, 2, 4, 8 and so on, and warns once if it is nearly 0."""

    def __init__(self) -> None:
        self.passes = 0
        self.warned = False
        self.like_probabilities: int | None = 0
        self._hooks: list[RemovableHandle] = []

    def __reduce__(self) -> tuple[type[GradientWatch], tuple[()]]:
        """Copies and loaded objects start from the beginning, because hooks belong to one forward pass."""
        return GradientWatch, ()

    def due(self) -> bool:
        """Count a forward pass, and return whether to check it."""
        self.passes += 1
        return self.passes & (self.passes - 1) == 0

    def look_at_range(self, logits: Tensor, owner: str) -> None:
        """Warn once if the logits of the first passes that are checked all look like probabilities."""
        if self.like_probabilities is None:
            return
        limits = extremes(logits)
        if limits is None or not (0 <= limits[0] < limits[1] <= 1):
            self.like_probabilities = None
            return
        self.like_probabilities += 1
        if self.like_probabilities == PROBABLE:
            self.like_probabilities = None
            warnings.warn(
                f"{owner}: all logits of {PROBABLE} batches lie in [0, 1], as probabilities do. Pass logits, the "
                "outputs before the sigmoid or softmax, or say from_probabilities=True. Logits that happen to lie "
                "there are fine",
                ProbabilitiesWarning,
                stacklevel=7,
            )

    def watch(self, loss: Tensor, logits: Tensor, owner: str) -> None:
        """Check the gradient of this forward pass when it is computed."""
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
        """Remove the hooks, because the logits may outlive the forward pass."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _classes(cell: Any) -> int:
    return cell.shape[-1] if isinstance(cell, Tensor) else 1 if isinstance(cell, float) else len(cell)


def _number(scalar: Tensor) -> float:
    """Return the value of a 0-d tensor; NaN under vmap, where values cannot be read."""
    try:
        return float(scalar.detach())
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
