"""The base classes of losses: of a batch, of columns of logits, and of sums over samples.

The sums of an AdditiveLoss are called statistics: Counts for a metric, or a tensor with a weighted sum and a sum of
weights for a mean. The statistics of several processes, or of several batches, are added before the function is applied
to them. This gives the loss and the gradient of the whole batch, which the average of several losses does not.

Statistics contain all that ``value`` needs, so that another loss with the same settings gives the same value.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from metricfit.core.canonical_batch import Columns
from metricfit.core.counts import Counts
from metricfit.core.distributed import number_of_ranks, sum_over_ranks
from metricfit.core.tasks import check_task, columns
from metricfit.core.types import Task
from metricfit.core.validation import check_finite, looks_at_values
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.gradient_watch import RangeWatch

if TYPE_CHECKING:
    from typing_extensions import Self

#: Sums over samples. Both kinds add with ``+``.
Statistics = Counts | Tensor
#: How many of several numbers the text of a loss shows at most.
SHOWN = 10


class ColumnOptions(TypedDict, total=False):
    """The options of ``ColumnLoss``, which the constructors of its subclasses pass on."""

    task: Task | None
    ignore_index: int | None
    sync: bool


class Loss(nn.Module):
    """Base class of the losses; it says what to do instead of an argument that losses of other libraries take."""

    #: What does the same here, by the name of the argument.
    remedies: ClassVar[Mapping[str, str]] = {
        "weight": "pass one weight per sample when you call the loss, loss(logits, target, weight)",
        "class_weights": "pass one weight per sample when you call the loss, "
        "loss(logits, target, class_weights[target])",
        "pos_weight": "use WeightedBCELoss(positive_weight=...), or pass one weight per sample when you call the loss",
        "label_smoothing": "smooth the targets of two classes or several labels, target * (1 - a) + a / 2; for "
        "exclusive classes use Mix((nn.CrossEntropyLoss(label_smoothing=0.1), 1.0), (loss, 0.5))",
        "reduction": "the loss is a weighted mean over the batch; to leave samples out, pass the weight 0 for them",
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the options that a constructor passes on in its signature, for help and for the check of arguments."""
        super().__init_subclass__(**kwargs)
        named = list(inspect.signature(cls.__init__).parameters.values())[1:]
        if named and named[-1].annotation == "Unpack[ColumnOptions]":
            parents = (inspect.signature(parent).parameters for parent in cls.__mro__[1:])
            options = next(parent for parent in parents if "sync" in parent)
            named[-1:] = [options[name] for name in ColumnOptions.__annotations__]
        cls.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        """Refuse arguments that the constructor does not have, with their remedy."""
        parameters = inspect.signature(cls).parameters
        open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        for name in [] if open_ended else settings.keys() - parameters.keys():
            remedy = cls.remedies.get("class_weights" if name == "class_weight" else name)
            raise InvalidTypeError(
                f"{cls.__name__} has no argument {name}; {remedy or f'help({cls.__name__}) lists its arguments'}"
            )
        return super().__new__(cls)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor that are numbers, but for the options that many losses share."""
        names = [name for name in inspect.signature(type(self)).parameters if name not in ColumnOptions.__annotations__]
        values = {name: getattr(self, name, None) for name in names}
        return ", ".join(f"{name}={_short(value)}" for name, value in values.items() if _short(value))


def _short(value: Any) -> str:
    """Return a number, or the first of several, as text; nothing for any other value."""
    if isinstance(value, tuple) and all(map(is_number, value)):
        return f"({', '.join(f'{number:g}' for number in value[:SHOWN])}{', ...' if len(value) > SHOWN else ''})"
    return f"{value:g}" if is_number(value) else str(value) if isinstance(value, bool) else ""


class BatchLoss(Loss):
    """A loss of a whole batch, which in a distributed run is the batch of all ranks.

    Args:
        sync: In a distributed run, take the samples of all ranks together: in training mode with gradients enabled, so
            that validation on one rank never waits for the others.
    """

    def __init__(self, *, sync: bool) -> None:
        super().__init__()
        self.sync = sync
        self._range = RangeWatch()

    @property
    def spans_ranks(self) -> bool:
        """Whether the batch of this call is the batch of all ranks."""
        return number_of_ranks() > 1 and self.sync and self.training and torch.is_grad_enabled()


class AdditiveLoss(BatchLoss, ABC):
    """Base class of losses ``value(statistics)`` whose statistics are sums over samples.

    With ``sync`` the statistics are summed over the ranks of a distributed run, in training mode with gradients
    enabled, so that the gradient is taken over the whole batch. Validation on one rank never waits for the others.

    Args:
        sync: In a distributed run, sum the statistics over the ranks.

    Example:
        >>> class SquaredError(AdditiveLoss):
        ...     def statistics(self, logits, target, weight=None):
        ...         errors = (torch.sigmoid(logits) - target) ** 2
        ...         return torch.stack([errors.sum(), torch.tensor(float(len(errors)))])
        ...     def value(self, statistics):
        ...         return statistics[0] / statistics[1]
        >>> SquaredError(sync=True)(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.2500)
    """

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            The loss, a scalar.
        """
        loss: Tensor = self.value(self.over_ranks(self.statistics(logits, target, weight)))
        self._range.look(self, logits)
        return loss

    @abstractmethod
    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
        """Compute the sums over the samples of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            A tensor or Counts. The statistics of several batches add with ``+``.
        """

    @abstractmethod
    def value(self, statistics: Any) -> Tensor:
        """Compute the loss from statistics.

        Args:
            statistics: What ``statistics`` returned, or a sum of several of them.

        Returns:
            The loss.
        """

    def over_ranks(self, statistics: Any) -> Any:
        """Sum statistics over the ranks if ``sync`` applies; otherwise return them unchanged.

        Args:
            statistics: What ``statistics`` returned.

        Returns:
            Statistics of the same shape.
        """
        if self.spans_ranks:
            return statistics.sum_over_ranks() if isinstance(statistics, Counts) else sum_over_ranks(statistics)
        return statistics


class ColumnLoss(BatchLoss):
    """Base class of losses of binary or multilabel logits, in which each column is a separate binary problem.

    Args:
        task: "binary" or "multilabel", if the shapes do not determine it, as for masks ``(n, c, h, w)`` that may
            overlap.
        ignore_index: Samples, pixels or entries with this target are ignored.
        sync: In a distributed run, take the samples of all ranks together.

    Raises:
        ValueError: If the task is "multiclass" or unknown.
    """

    #: The losses to use for exclusive classes instead, for messages.
    _for_classes = "losses.cross_entropy.WeightedCrossEntropyLoss or MetricLoss"

    def __init__(self, *, task: Task | None = None, ignore_index: int | None = None, sync: bool = True) -> None:
        super().__init__(sync=sync)
        check_task(task)
        if task == "multiclass":
            raise InvalidValueError(
                f"{type(self).__name__} is for binary or multilabel logits, got task='multiclass'; for classes that "
                f"exclude each other use {self._for_classes}"
            )
        self.task, self.ignore_index = task, ignore_index

    def columns(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Columns:
        """Return the batch as columns; ignored samples have weight 0.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            Logits, target and weight of shape ``(c, n)``.
        """
        return columns(
            logits,
            target,
            weight,
            type(self).__name__,
            task=self.task,
            ignore_index=self.ignore_index,
            for_classes=self._for_classes,
        )


def weights_by_class(batch: Columns) -> tuple[Tensor, Tensor]:
    """Return the weight of each sample as a positive and as a negative, both ``(c, n)``."""
    positive, negative = batch.target, 1 - batch.target
    if batch.weight is None:
        return positive, negative
    return batch.weight * positive, batch.weight * negative


def check_statistics(statistics: Tensor, logits: Tensor) -> Tensor:
    """Return the statistics; raise an error that explains the cause if they are not finite and values are checked."""
    if looks_at_values(logits, None):
        check_finite(statistics.detach(), logits)
    return statistics


def check_parts(loss: nn.Module, owner: str, parts: tuple[str, ...], whole: tuple[str, ...] = ("forward",)) -> None:
    """Refuse a loss that overrides ``forward`` but not the methods that a caller uses instead of ``forward``.

    Args:
        loss: The loss.
        owner: The caller's name, for the message.
        parts: The methods that the caller uses.
        whole: The methods that the caller replaces by them.

    Raises:
        TypeError: If a method of ``whole`` is overridden in a subclass of the class that defines the parts. It may
            compute something else, which would be lost silently.
    """
    parts_level = min(inheritance_level(type(loss), name) for name in parts)
    for name in whole:
        if inheritance_level(type(loss), name) < parts_level:
            raise InvalidTypeError(
                f"{type(loss).__name__} overrides {name}, but {owner} computes a loss from {' and '.join(parts)}, so "
                f"what {name} adds would be lost. Write the addition as a separate loss and add the two with Mix"
            )


def inheritance_level(loss_class: type, method: str) -> int:
    """Return how far up the inheritance a method is defined; 0 is the class itself."""
    return next(level for level, parent in enumerate(loss_class.__mro__) if method in vars(parent))


def takes_probabilities(loss: nn.Module) -> bool:
    """Return whether a loss, or a part of it, takes probabilities instead of logits."""
    return any(getattr(module, "from_probabilities", False) for module in loss.modules())


def check_number(owner: str, name: str, value: Any) -> float:
    """Return a setting of a loss as a float; raise an error if it is not one number."""
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.item()
    if not is_number(value):
        raise InvalidTypeError(f"{owner}: {name} must be a number, got {quote(value)}")
    return float(value)


def check_nonnegative(owner: str, name: str, value: Any, *, or_zero: bool = True) -> float:
    """Return a setting of a loss as a float; raise an error if it is not a finite number of at least, or above, 0."""
    number = check_number(owner, name, value)
    if not 0.0 <= number < math.inf or (number == 0.0 and not or_zero):
        raise InvalidValueError(f"{owner} needs a finite {name} {'of at least' if or_zero else 'above'} 0, got {value}")
    return number


def is_number(value: Any) -> bool:
    """Return whether a value is one real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)
