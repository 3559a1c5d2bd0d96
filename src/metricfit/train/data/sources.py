"""Sources of training data: tensors in memory, a Dataset or a DataLoader, read as batches with sample numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from metricfit.core.tensor_numerics import counting_dtype
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch, derive_seed, make_batch

LABELS_AT_ONCE = 64
SOME_LABELS = 1024  # items of a dataset without a list of labels that are read before training
_END: Any = object()


@dataclass(frozen=True, eq=False)
class InMemory:
    """Tensors in memory, which are indexed directly, without collating single samples.

    Attributes:
        x: The inputs.
        y: The labels of the samples.
        weight: Their weights, if there are any.
        group: Their group numbers, if there are any.
        rows: The positions of the samples in ``x``, which may be shared with others; by default all.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    group: Tensor | None = None
    rows: Tensor | None = None
    knows_labels: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.y)

    @property
    def target(self) -> Tensor:
        """All labels."""
        return self.y

    some_labels = target

    def first(self) -> Tensor:
        """Return the inputs of the first samples."""
        return self.x[:2]

    def to(self, device: torch.device) -> InMemory:
        """Return the data on a device."""
        parts = (getattr(self, part.name) for part in fields(self))
        return InMemory(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    def with_dtype(self, dtype: torch.dtype) -> InMemory:
        """Return the data with floating-point inputs converted to this type."""
        return replace(self, x=self.x.to(dtype)) if self.x.is_floating_point() else self

    def subset(self, numbers: Tensor) -> InMemory:
        """Return some of the samples, whose inputs are not copied."""
        numbers = numbers.to(self.y.device)
        weight, group = (None if part is None else part[numbers] for part in (self.weight, self.group))
        return InMemory(self.x, self.y[numbers], weight, group, numbers if self.rows is None else self.rows[numbers])

    def take(self, index: Tensor) -> Batch:
        """Return the samples with these numbers; index_select is several times as fast as brackets."""
        index = index.to(self.y.device)
        weight, group = (None if part is None else part.index_select(0, index) for part in (self.weight, self.group))
        rows = index if self.rows is None else self.rows.index_select(0, index)
        if self.x.dim() == 4 and not self.x.is_contiguous():  # index_select would move the channels to the front
            x = self.x.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
        else:
            x = self.x.index_select(0, rows)
        return Batch(x, self.y.index_select(0, index), weight, index, group)

    def batches(self, order: Sequence[Tensor], device: torch.device, seed: int = 0) -> Iterator[Batch]:
        """Yield one batch per list of sample numbers.

        The numbers move to a GPU in one copy: each copy waits until the GPU has finished earlier work.
        """
        if self.y.device.type != "cpu" and order:
            order = torch.split(torch.cat(list(order)).to(self.y.device), [len(index) for index in order])
        return map(self.take, order)


class FromDataset:
    """A map-style Dataset of ``(x, y)`` or ``(x, y, weight)``, read by a DataLoader in a chosen order.

    Args:
        dataset: The dataset.
        workers: Number of processes that read it; they live as long as this object.
    """

    dtype: torch.dtype | None = None

    def __init__(self, dataset: Dataset[Any], workers: int = 0) -> None:
        self.dataset, self.workers = dataset, workers
        self._loader: DataLoader[Any] | None = None
        self._order, self._generator = _SeededOrder(), torch.Generator()  # not the model's random numbers

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def with_dtype(self, dtype: torch.dtype) -> FromDataset:
        """Return the data with inputs converted to this type, if they are a floating-point tensor."""
        copied = copy.copy(self)
        copied.dtype, copied._loader = dtype, None
        copied._order, copied._generator = _SeededOrder(), torch.Generator()
        return copied

    @property
    def knows_labels(self) -> bool:
        """Whether all labels are known without reading more than some of the items."""
        return len(self) <= SOME_LABELS or "target" in vars(self)

    @cached_property
    def some_labels(self) -> Tensor:
        """The labels of some samples, spread evenly over the dataset; all labels of a small dataset."""
        numbers = torch.linspace(0, len(self) - 1, min(len(self), SOME_LABELS), dtype=torch.float64).long()
        return _read_labels(self.dataset, numbers, self.workers)

    @cached_property
    def target(self) -> Tensor:
        """All labels, read once from all of the items, by the workers."""
        if len(self) <= SOME_LABELS:
            return self.some_labels
        return _read_labels(self.dataset, torch.arange(len(self)), self.workers)

    @cached_property
    def _first(self) -> Any:
        with randomness.Stream(0):
            return make_batch(default_collate([self.dataset[0]]), torch.device("cpu")).x

    def first(self) -> Any:
        """Return the inputs of a batch of the first sample, which is read once."""
        return self._first

    def batches(self, order: Sequence[Tensor], device: torch.device, seed: int = 0) -> Iterator[Batch]:
        """Yield one batch per list of sample numbers; random augmentation depends on the seed."""
        if self._loader is None:  # its order is set before each epoch, so that workers need not be started again
            self._loader = DataLoader(
                _SeededItems(self.dataset),
                batch_sampler=self._order,
                num_workers=self.workers,
                pin_memory=device.type == "cuda",
                generator=self._generator,
                persistent_workers=self.workers > 0,
            )
        self._order.batches, self._order.seed = order, seed
        self._generator.manual_seed(seed)
        for index, item in zip(order, self._loader, strict=True):
            yield replace(make_batch(item, device, self.dtype), index=index.to(device))


class _SeededOrder(Sampler[list[tuple[int, int]]]):
    """The batches of an epoch: for each sample, the seed of the epoch and the sample number."""

    batches: Sequence[Tensor] = ()
    seed = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for index in self.batches:
            yield [(self.seed, number) for number in index.tolist()]


class _SeededItems(Dataset[Any]):
    """Items whose random augmentation depends only on the seed and the sample number."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: list[tuple[int, int]]) -> list[Any]:
        with randomness.Stream(0):  # once for a batch, because restoring the states takes a while
            return [self._get(*key) for key in keys]

    def _get(self, seed: int, number: int) -> Any:
        randomness.seed_all(derive_seed(seed, number))
        return self.dataset[number]


class _SeededLabels(_SeededItems):
    """The labels of the items, without the inputs, so that workers send little."""

    def _get(self, seed: int, number: int) -> Any:
        item = super()._get(seed, number)
        if isinstance(item, dict) and "y" in item:
            return item["y"]
        if isinstance(item, (tuple, list)) and len(item) in (2, 3):
            return item[1]
        size = f" of {len(item)}" if isinstance(item, (tuple, list)) else ""
        raise InvalidTypeError(
            "a Dataset's items must be (x, y), (x, y, weight) or a dictionary of them; got a "
            f"{type(item).__name__}{size}"
        )


def _read_labels(dataset: Any, numbers: Tensor, workers: int) -> Tensor:
    """Read the labels of these samples from the items."""
    order = _SeededOrder()
    order.batches = torch.split(numbers, LABELS_AT_ONCE)
    loader = DataLoader(_SeededLabels(dataset), batch_sampler=order, num_workers=workers, generator=torch.Generator())
    return torch.cat([torch.as_tensor(labels) for labels in loader])


class FromLoader:
    """A user's DataLoader, with its own batches and order, and without sample numbers.

    Args:
        loader: The DataLoader.
        dtype: The type that floating-point inputs are converted to.
    """

    knows_labels = False

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None = None) -> None:
        self.loader, self.dtype = loader, dtype

    @property
    def expected_batches(self) -> int | None:
        """The number of batches that the loader announces, or None if it announces none.

        This is only a hint. An IterableDataset may give more or fewer samples than its ``__len__`` says, and each of
        several workers ends with a smaller batch. Only reading to the end gives the actual number.
        """
        loader = self.loader
        try:
            if type(loader) is DataLoader and isinstance(loader.dataset, IterableDataset):
                # len(loader) would give the same number, but then the loader warns about every sample beyond it.
                samples, size = len(loader.dataset), loader.batch_size or 1  # type: ignore[arg-type]
                return samples // size if loader.drop_last else -(-samples // size)
            return len(loader)
        except (TypeError, NotImplementedError):
            return None

    def with_dtype(self, dtype: torch.dtype) -> FromLoader:
        """Return the loader with inputs converted to this type, if they are a floating-point tensor."""
        return FromLoader(self.loader, dtype)

    def check_divided(self, ranks: int) -> None:
        """Refuse a loader whose samples several processes cannot divide; a DistributedSampler divides them."""
        # num_replicas is an attribute of torch's DistributedSampler and its imitations.
        if ranks > 1 and not any(hasattr(sampler, "num_replicas") for sampler in _find_samplers(self.loader)):
            raise InvalidValueError(
                f"{ranks} processes cannot share the batches of this {type(self.loader).__name__}; give it a "
                "DistributedSampler, or give fit the Dataset"
            )

    def batches(self, device: torch.device, seed: int = 0, skip: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """Yield the loader's batches to its end, without the first ``skip``.

        The order depends only on the seed, and not on random numbers that the model draws in between.

        Raises:
            ValueError: The loader ends before ``skip`` batches, so the checkpoint was written with another loader.
        """
        number = 0
        for number, item in enumerate(self._read(seed, epoch), start=1):
            if number > skip:
                yield make_batch(item, device, self.dtype)
        if number < skip:
            raise InvalidValueError(
                f"the DataLoader ended after {number} batches, but the checkpoint was written after {skip} batches of "
                "this epoch; resume with the data that the run was started with"
            )

    def _read(self, seed: int, epoch: int) -> Iterator[Any]:
        """Yield the loader's items."""
        samplers = _find_samplers(self.loader)
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        for owner in (self.loader, *samplers):
            if isinstance(getattr(owner, "generator", None), torch.Generator):
                owner.generator.manual_seed(seed)  # its state is not in the checkpoint
        stream = randomness.Stream(seed)
        with stream:
            remaining = iter(self.loader)
        while True:
            with stream:
                item = next(remaining, _END)
            if item is _END:
                return
            yield item


def _find_samplers(loader: DataLoader[Any]) -> list[Any]:
    """Return the batch sampler of a loader and the samplers in it, each of them once."""
    samplers = (loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None), getattr(loader, "sampler", None))
    return list({id(sampler): sampler for sampler in samplers if sampler is not None}.values())


Source = InMemory | FromDataset | FromLoader

ClassWeight = str | Sequence[float] | Mapping[int, float]


def as_source(data: Any, name: str, workers: int = 0) -> Source:
    """Make a source from the data that a user passed.

    Args:
        data: ``(X, y)``, ``(X, y, weight)``, a dictionary of them, a Dataset or a DataLoader.
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
    is_mapping = isinstance(data, Mapping) and {"x", "y"} <= data.keys() <= {"x", "y", "weight", "group"}
    if is_mapping or (isinstance(data, (tuple, list)) and len(data) in (2, 3)):
        parts = [data.get(part) for part in ("x", "y", "weight", "group")] if is_mapping else [*data, None, None]
        x, y, weight, group = parts[:4]
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
        return InMemory(x, y, weight, group)
    if isinstance(data, IterableDataset):
        raise InvalidTypeError(f"{name} is an IterableDataset, whose samples have no numbers; wrap it in a DataLoader")
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        if not len(data):
            raise InvalidValueError(f"{name} is empty")
        return FromDataset(data, workers)
    raise InvalidTypeError(
        f"{name} must be (X, y), (X, y, weight), a dictionary with x and y, a Dataset or a DataLoader; got "
        f"{type(data).__name__}"
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
        if not class_weight or not all(isinstance(label, Integral) and label >= 0 for label in class_weight):
            raise InvalidValueError(
                f"class_weight must name classes by their numbers, as in {{0: 1.0, 1: 5.0}}; got {quote(class_weight)}"
            )
        size = max(len(counts), max(class_weight) + 1)
        class_weight = [float(class_weight.get(label, 1.0)) for label in range(size)]
    weights = torch.as_tensor(class_weight, dtype=torch.get_default_dtype(), device=y.device)
    if weights.dim() != 1 or not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InvalidValueError(
            f"class_weight must be one finite weight of at least 0 per class, got {quote(class_weight)}"
        )
    if len(weights) < len(counts):
        raise InvalidValueError(f"class_weight has {len(weights)} weights, but the labels go up to {len(counts) - 1}")
    return weights


def weigh_samples(y: Tensor, weight: Tensor | None, class_weight: ClassWeight | None) -> Tensor | None:
    """Multiply the weights of the samples by the weights of their classes; ignored labels (below 0) have weight 0."""
    if class_weight is None:
        return weight
    labels = _as_class_numbers(y)
    by_class = compute_class_weights(y, class_weight).gather(-1, labels.clamp(min=0))
    by_class = torch.where(labels >= 0, by_class, 0.0)
    return by_class if weight is None else by_class * weight.reshape(-1)


def _as_class_numbers(y: Tensor) -> Tensor:
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise InvalidValueError(f"class_weight needs one label per sample, but the labels have shape {tuple(y.shape)}")
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InvalidValueError(
            "class_weight needs integer labels, but these are fractions; pass (X, y, weight) instead"
        )
    return y.long().reshape(-1)
