"""What losses look at while they train, and warn about: dead gradients, no progress, inputs of the wrong kind.

This is an idea of its own: a loss computes the same value and gradient without it.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from metricfit.core.batch_counts import BatchCounts
from metricfit.core.counts import Counts
from metricfit.core.tensor_numerics import has_storage
from metricfit.core.validation import extremes, is_false, looks_at_values

if TYPE_CHECKING:
    from metricfit.losses.metric_loss import MetricLoss

#: The largest number of float16.
HALF = 65_504

#: A gradient is dead if the sum over the logits is below this share of the gradient of the loss.
DEAD_GRADIENT = 1e-6
#: A loss below this is low enough that a small gradient is no problem.
LEARNT = 0.05
#: At forward pass STALL_AT the mean loss of the LAST_PASSES is compared with the mean loss of the FIRST_PASSES.
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


class RangeWatch:
    """Warns once if the logits of the forward passes 1, 2, 4 and 8 of one loss all look like probabilities.

    It also warns once of logits in float16 whose gradients can be infinite. Copies and loaded objects start from the
    beginning.
    """

    def __init__(self) -> None:
        self.passes = 0
        self.warned_of_half = False
        self.like_probabilities: int | None = 0  # checked passes so far; None if nothing is left to check

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeWatch, ()

    def look(self, module: nn.Module, logits: Tensor) -> None:
        """Look at a forward pass of a loss in training."""
        if torch.compiler.is_compiling() or not module.training:
            return
        if logits.dtype == torch.float16:
            largest = max(getattr(module, "positive_weight", 0.0), getattr(module, "negative_weight", 0.0))
            self.look_at_half(type(module).__name__, "of its weights", largest)
        if self.like_probabilities is None:
            return
        self.passes += 1
        if _is_power_of_two(self.passes) and logits.numel() and looks_at_values(logits, None):
            self.judge(logits, type(module).__name__)

    def look_at_half(self, owner: str, what: str, largest: float) -> None:
        """Warn once if gradients of logits in float16 can overflow, because costs or weights are too large for it."""
        if HALF < largest < math.inf and not self.warned_of_half:
            self.warned_of_half = True
            warnings.warn(
                f"{owner}: float16 holds numbers up to {HALF:,}, and gradients can be as large as the largest {what}, "
                f"{largest:g}, and then infinite. Divide them by a constant, or pass logits.float()",
                stacklevel=6,
            )

    def judge(self, logits: Tensor, owner: str, remedy: str = "") -> None:
        """Judge the logits of a pass that is checked.

        Args:
            logits: The logits.
            owner: What the warning calls the loss.
            remedy: What else may be done than to pass logits.
        """
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
                f"outputs before the sigmoid or softmax{remedy}. Logits that happen to lie there are fine",
                ProbabilitiesWarning,
                stacklevel=6,
            )


class TrainingWatch:
    """Looks at the forward passes of one MetricLoss in training, and warns once about each sign of trouble.

    The gradient of the logits is checked at passes 1, 2, 4, 8 and so on. The first passes of three or more exclusive
    classes are compared with those before pass 128: from random weights such a loss can stay constant, or never predict
    some classes, at any learning rate. Training that starts from a trained model has a lower loss and is not compared.

    Copies and loaded objects keep the last counts and start from the beginning otherwise, because hooks belong to one
    forward pass.

    Args:
        last: The counts of the last batch as tensors or numbers, and whether the classes are exclusive.
    """

    def __init__(self, last: tuple[Any, bool] | None = None) -> None:
        self.last = last
        self.passes = 0
        self.warned = False
        self.range = RangeWatch()
        self._hooks: list[RemovableHandle] = []
        self.values: list[float] = []  # the losses of the passes that are compared
        self.compared: list[Counts] = []  # the counts of the last of them

    def __reduce__(self) -> tuple[Any, ...]:
        return TrainingWatch, (self.last,)

    def remember(self, counts: Counts) -> None:
        """Keep the counts of a batch without gradient, unless a compiler or vmap hides their numbers."""
        if isinstance(counts, BatchCounts) and counts.numbers is not None:
            self.last = counts.numbers, counts.exclusive
        elif not torch.compiler.is_compiling() and has_storage(counts.tp):
            self.last = [cell.detach() for cell in counts], counts.exclusive

    def last_counts(self) -> Counts | None:
        """Return the counts of the last batch without gradient; None before the first batch."""
        if self.last is None:
            return None
        cells, exclusive = self.last
        cells = cells if isinstance(cells[0], Tensor) else torch.tensor(cells, device="cpu")
        return Counts(*(cell.reshape(-1) if cell.dim() == 0 else cell for cell in cells), exclusive=exclusive)

    def look(self, module: MetricLoss, loss: Tensor, logits: Tensor) -> None:
        """Look at a forward pass.

        Args:
            module: The loss module.
            loss: Its value for this batch.
            logits: The logits of the batch.
        """
        if torch.compiler.is_compiling():
            return
        self.passes += 1
        is_checked = _is_power_of_two(self.passes)
        if not is_checked and self.passes > STALL_AT:
            return
        if logits.dtype == torch.float16:
            self.range.look_at_half(_owner(module), "of its costs", max(map(abs, module.metric.bounds)))
        if not looks_at_values(logits, module.validate) or not logits.numel():
            return
        if is_checked:
            if not module.from_probabilities:
                self.range.judge(logits, _owner(module), ", or say from_probabilities=True")
            counts = self.last_counts()
            if counts is not None and _has_both(counts, module.classes):
                self._watch_gradient(loss, logits, _owner(module))
        if self.passes <= STALL_AT and module.memory is None and not module.metric.minimize:
            self._compare(loss, _owner(module))

    def _watch_gradient(self, loss: Tensor, logits: Tensor, owner: str) -> None:
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

    def _compare(self, loss: Tensor, owner: str) -> None:
        """Record the loss and the counts of the first passes and of those before pass 128, and judge them there."""
        is_late = self.passes > STALL_AT - LAST_PASSES
        if self.passes > FIRST_PASSES and not is_late:
            return
        classes = _classes(self.last[0][0]) if self.last is not None and self.last[1] else 1
        if classes < 3 or not loss.requires_grad or loss.dim() != 0:
            return
        self.values.append(_number(loss))
        if is_late and (counts := self.last_counts()) is not None:
            self.compared.append(counts)
        if self.passes == STALL_AT and len(self.values) == FIRST_PASSES + LAST_PASSES:
            self._judge(classes, owner)
            self.compared = []

    def _judge(self, classes: int, owner: str) -> None:
        start, current = sum(self.values[:FIRST_PASSES]) / FIRST_PASSES, sum(self.values[-LAST_PASSES:]) / LAST_PASSES
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
            stacklevel=7,
        )

    def _given_up(self, classes: int) -> list[int]:
        """Return the hardly ever predicted classes, of those with at least a quarter of the mean class size."""
        if len({part.tp.shape for part in self.compared}) > 1:
            return []
        total = sum(self.compared[1:], self.compared[0]).map(lambda cell: cell.reshape(-1, classes).sum(0))
        positives, predicted = total.positives, total.predicted
        usual = positives >= positives.mean() / 4
        return (usual & (predicted < GIVEN_UP * positives)).nonzero().flatten().tolist()


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _owner(module: MetricLoss) -> str:
    """Return what warnings call a loss."""
    return f"MetricLoss({module.metric.name!r})"


def _has_both(counts: Counts, classes: tuple[int, ...] | None) -> bool:
    """Return whether one of the classes had both positives and negatives; without, a gradient of 0 is right."""
    has_both = (counts.positives > 0) & (counts.negatives > 0)
    return not is_false((has_both if classes is None else has_both[..., list(classes)]).any())


def _classes(cell: Any) -> int:
    return cell.shape[-1] if getattr(cell, "shape", ()) else 1


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
