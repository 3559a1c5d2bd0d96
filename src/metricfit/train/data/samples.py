"""Sources of training data: tensors in memory, a Dataset or a DataLoader, read as batches with sample numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from metricfit.core.tensor_numerics import counting_dtype
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.train.data.batches import Batch
from metricfit.train.data.datasets import FromDataset
from metricfit.train.data.loaders import FromLoader


class InMemory:
    """Tensors in memory, which are indexed directly, without collating single samples.

    Args:
        x: The inputs.
        y: The labels of the samples.
        weight: Their weights, if there are any.
        group: Their group numbers, if there are any.
        rows: The positions of the samples in ``x``, which may be shared with others; by default all.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> None:
        self.x, self.y, self.weight, self.group, self.rows = x, y, weight, group, rows

    def __len__(self) -> int:
        return len(self.y)

    knows_labels = True

    @property
    def target(self) -> Tensor:
        """All labels."""
        return self.y

    @property
    def some_labels(self) -> Tensor:
        """All labels."""
        return self.y

    def to(self, device: torch.device) -> InMemory:
        """Return the data on a device."""
        parts = (self.x, self.y, self.weight, self.group, self.rows)
        return InMemory(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    def with_channels_last(self) -> InMemory:
        """Return images with their channels last in memory; the shape is the same."""
        return self._with(x=self.x.contiguous(memory_format=torch.channels_last))

    def with_dtype(self, dtype: torch.dtype) -> InMemory:
        """Return the data with floating-point inputs converted to this type."""
        return self._with(x=self.x.to(dtype) if self.x.is_floating_point() else self.x)

    def with_weight(self, weight: Tensor | None) -> InMemory:
        """Return the data with other weights."""
        return self._with(weight=weight)

    def with_group(self, group: Tensor) -> InMemory:
        """Return the data with one group number per sample."""
        return self._with(group=group)

    def _with(self, **parts: Tensor | None) -> InMemory:
        own = {"x": self.x, "y": self.y, "weight": self.weight, "group": self.group, "rows": self.rows}
        return InMemory(**{**own, **parts})  # type: ignore[arg-type]

    def subset(self, numbers: Tensor) -> InMemory:
        """Return some of the samples, whose inputs are not copied."""
        numbers = numbers.to(self.y.device)
        weight, group = (None if part is None else part[numbers] for part in (self.weight, self.group))
        return InMemory(self.x, self.y[numbers], weight, group, numbers if self.rows is None else self.rows[numbers])

    def take(self, index: Tensor) -> Batch:
        """Return the samples with these numbers."""
        return self._take_row(index.to(self.y.device))

    def _take_row(self, index: Tensor) -> Batch:
        """Return the samples with a row of numbers; index_select is several times as fast as brackets."""
        weight, group = (None if part is None else part.index_select(0, index) for part in (self.weight, self.group))
        rows = index if self.rows is None else self.rows.index_select(0, index)
        if self.x.dim() == 4 and not self.x.is_contiguous():  # index_select would move the channels to the front
            x = self.x.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
        else:
            x = self.x.index_select(0, rows)
        return Batch(x, self.y.index_select(0, index), weight, index, group)

    def batches(self, order: Sequence[Tensor], device: torch.device, seed: int = 0) -> Iterator[Batch]:
        """Yield one batch per list of sample numbers."""
        for index in _move_order(order, self.y.device):
            yield self._take_row(index)


def _move_order(order: Sequence[Tensor], device: torch.device) -> Sequence[Tensor]:
    """Move sample numbers to a device in one copy: each copy to a GPU waits until it has finished earlier work."""
    if device.type == "cpu" or not order:
        return order
    return torch.split(torch.cat(list(order)).to(device), [len(index) for index in order])


Source = InMemory | FromDataset | FromLoader

ClassWeight = str | Sequence[float] | Mapping[int, float]


def as_source(data: Any, name: str, workers: int = 0) -> Source:
    """Make a source from the data that a user passed.

    Args:
        data: ``(X, y)``, ``(X, y, weight)``, a Dataset or a DataLoader.
        name: The name of the data in messages.
        workers: Number of processes that read a Dataset.

    Returns:
        The source.

    Raises:
        ValueError: The data are empty, of different lengths, or not finite.
        TypeError: The data are of another type.
    """
    if isinstance(data, (InMemory, FromDataset, FromLoader)):
        return data
    if isinstance(data, DataLoader):
        return FromLoader(data)
    if isinstance(data, (tuple, list)) and len(data) in (2, 3):
        x, y, weight = (*data, None)[:3]
        x, y = as_tensor(x, f"{name}'s inputs", keep_dtype=True), as_tensor(y, f"{name}'s labels")
        if weight is not None:
            weight = as_tensor(weight, f"{name}'s weights", keep_dtype=True)
            weight = weight.to(counting_dtype(x.dtype) if x.is_floating_point() else torch.get_default_dtype())
        if len(x) != len(y) or (weight is not None and len(weight) != len(y)):
            sizes = [len(part) for part in (x, y, weight) if part is not None]
            raise InvalidValueError(f"{name} has parts of different lengths: {', '.join(map(str, sizes))}")
        if not len(y):
            raise InvalidValueError(f"{name} is empty")
        _check_inputs(x, name)
        _check_weights(weight, name)
        return InMemory(x, y, weight)
    if isinstance(data, IterableDataset):
        raise InvalidTypeError(f"{name} is an IterableDataset, whose samples have no numbers; wrap it in a DataLoader")
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        if not len(data):
            raise InvalidValueError(f"{name} is empty")
        return FromDataset(data, workers)
    raise InvalidTypeError(
        f"{name} must be (X, y), (X, y, weight), a Dataset or a DataLoader; got {type(data).__name__}"
    )


def as_tensor(values: Any, name: str, *, keep_dtype: bool = False) -> Tensor:
    """Make a tensor from an array, a table or a list.

    Floating-point numbers get torch's default type, unless ``keep_dtype`` is true.
    """
    if isinstance(values, Tensor):
        return values
    if hasattr(values, "to_numpy"):  # pandas and polars
        values = values.to_numpy()
    # torch cannot share the memory of a NumPy array that is read-only or has negative strides.
    flags = getattr(values, "flags", None)
    if flags is not None and not (flags.writeable and all(stride >= 0 for stride in values.strides)):
        values = values.copy()
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidTypeError(f"{name} must be numbers, a tensor or an array of them: {error}") from error
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() and not keep_dtype else tensor


def get_weight_dtype(model: nn.Module) -> torch.dtype:
    """Return the type of a model's weights."""
    dtypes = [weight.dtype for weight in model.parameters() if weight.is_floating_point()]
    return dtypes[0] if dtypes else torch.get_default_dtype()


def _check_inputs(x: Tensor, name: str) -> None:
    if not x.is_floating_point() or not x.numel():
        return
    if not bool(torch.stack(x.aminmax()).isfinite().all()):  # x.isfinite() takes twice the memory of x
        rows = (~x.isfinite()).flatten(1).any(1) if x.dim() > 1 else ~x.isfinite()
        first = int(rows.nonzero()[0])
        raise InvalidValueError(
            f"{name}'s inputs hold NaN or infinity in {int(rows.sum())} of {len(x)} rows, the first is row {first}; "
            "fill in or drop them"
        )


def _check_weights(weight: Tensor | None, name: str) -> None:
    if weight is not None and not bool((weight.isfinite() & (weight >= 0)).all()):
        wrong = ~(weight.isfinite() & (weight >= 0))
        raise InvalidValueError(
            f"{name}'s weights must be finite and at least 0; {int(wrong.sum())} are not, the first is in row "
            f"{int(wrong.reshape(len(weight), -1).any(1).nonzero()[0])}"
        )


def compute_class_weights(y: Tensor, class_weight: ClassWeight, classes: int = 0) -> Tensor:
    """Compute one weight per class.

    Args:
        y: The labels; labels below 0 are ignored.
        class_weight: Weights by class; classes that a mapping does not name have weight 1. "balanced" gives all classes
            the same total weight, with a sum of n over all samples.
        classes: Minimum number of classes.

    Returns:
        The weights in the order of the classes.
    """
    labels = _as_class_numbers(y)
    labels = labels[labels >= 0]
    counts = labels.bincount(minlength=classes)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InvalidValueError(
                f"class_weight must be 'balanced' or one weight per class, got {quote(class_weight)}"
            )
        return len(labels) / (counts.clamp(min=1) * (counts > 0).sum()).to(torch.get_default_dtype())
    if isinstance(class_weight, Mapping):
        class_weight = _list_weights(class_weight, len(counts))
    weights = torch.as_tensor(class_weight, dtype=torch.get_default_dtype(), device=y.device)
    if weights.dim() != 1 or not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InvalidValueError(
            f"class_weight must be one finite weight of at least 0 per class, got {quote(class_weight)}"
        )
    if len(weights) < len(counts):
        raise InvalidValueError(f"class_weight has {len(weights)} weights, but the labels go up to {len(counts) - 1}")
    return weights


def weigh_samples(y: Tensor, weight: Tensor | None, class_weight: ClassWeight | None) -> Tensor | None:
    """Multiply the weights of the samples by those of their classes."""
    if class_weight is None:
        return weight
    by_class = look_up_weights(compute_class_weights(y, class_weight), _as_class_numbers(y))
    return by_class if weight is None else by_class * weight.reshape(-1)


def look_up_weights(class_weights: Tensor, labels: Tensor) -> Tensor:
    """Return the weight of each label, and 0 for ignored labels (below 0).

    Args:
        class_weights: One weight per class, or one row of them per row of labels.
        labels: Class numbers.
    """
    return torch.where(labels >= 0, class_weights.gather(-1, labels.clamp(min=0)), 0.0)


def _list_weights(weights: Mapping[int, float], classes: int) -> list[float]:
    if not weights or not all(isinstance(label, Integral) and label >= 0 for label in weights):
        raise InvalidValueError(
            f"class_weight must name classes by their numbers, as in {{0: 1.0, 1: 5.0}}; got {quote(weights)}"
        )
    return [float(weights.get(label, 1.0)) for label in range(max(classes, max(weights) + 1))]


def _as_class_numbers(y: Tensor) -> Tensor:
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise InvalidValueError(f"class_weight needs one label per sample, but the labels have shape {tuple(y.shape)}")
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InvalidValueError(
            "class_weight needs integer labels, but these are fractions; pass (X, y, weight) instead"
        )
    return y.long().reshape(-1)
