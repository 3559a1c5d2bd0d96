"""What is trained on: tensors in memory, a Dataset or a DataLoader, as batches that say which samples they hold."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from metricfit.core.numerics import counting_dtype
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch, batch_of
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.order import seed_of

FEW = 16


class InMemory:
    """Tensors indexed where they lie: no collation of single samples."""

    def __init__(self, x: Tensor, y: Tensor, weight: Tensor | None = None, group: Tensor | None = None) -> None:
        self.x, self.y, self.weight, self.group = x, y, weight, group

    def __len__(self) -> int:
        return len(self.y)

    @property
    def target(self) -> Tensor:
        """All labels."""
        return self.y

    def to(self, device: torch.device) -> InMemory:
        """The same on a device."""
        parts = (self.x, self.y, self.weight, self.group)
        return InMemory(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    def typed(self, dtype: torch.dtype) -> InMemory:
        """The same with inputs, where they are fractions, of this type."""
        return InMemory(self.x.to(dtype) if self.x.is_floating_point() else self.x, self.y, self.weight, self.group)

    def weighted(self, weight: Tensor | None) -> InMemory:
        """The same with other weights."""
        return InMemory(self.x, self.y, weight, self.group)

    def grouped(self, group: Tensor) -> InMemory:
        """The same with a group number for each sample."""
        return InMemory(self.x, self.y, self.weight, group)

    def take(self, index: Tensor) -> Batch:
        """The samples of these numbers; of several members' numbers, with an axis of members in front."""
        at = index.to(self.y.device)
        weight, group = (None if part is None else part[at] for part in (self.weight, self.group))
        return Batch(self.x[at], self.y[at], weight, at, group)

    def batches(self, order: Sequence[Tensor], device: torch.device, seed: int = 0) -> Iterator[Batch]:
        """One batch for each list of numbers."""
        for index in order:
            yield self.take(index)


class FromDataset:
    """A map-style Dataset of ``(x, y)`` or ``(x, y, weight)``, read by a DataLoader in the order that is asked for."""

    def __init__(self, dataset: Dataset[Any], workers: int = 0, dtype: torch.dtype | None = None) -> None:
        self.dataset, self.workers, self.dtype = dataset, workers, dtype
        self._target: Tensor | None = None
        self._first: tuple[Any] | None = None
        self.group: Tensor | None = None

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def typed(self, dtype: torch.dtype) -> FromDataset:
        """The same with inputs, where they are a tensor of fractions, of this type."""
        typed = copy.copy(self)
        typed.dtype = dtype
        return typed

    def grouped(self, group: Tensor) -> FromDataset:
        """The same with a group number for each sample."""
        grouped = copy.copy(self)
        grouped.group = group
        return grouped

    @property
    def target(self) -> Tensor:
        """All labels; read once, from the dataset's ``targets`` or ``tensors[1]`` if its items have the same."""
        if self._target is None:
            self._target = _labels_of(self.dataset)
        return self._target

    def first(self) -> Any:
        """The inputs of a batch of the first sample, read once."""
        if self._first is None:
            with randomness.seeded(0):
                self._first = (batch_of(default_collate([self.dataset[0]]), torch.device("cpu")).x,)
        return self._first[0]

    def batches(self, order: Sequence[Tensor], device: torch.device, seed: int = 0) -> Iterator[Batch]:
        """One batch for each list of numbers; what is random in the items is drawn from the seed."""
        loader = DataLoader(
            _SeededItems(self.dataset, seed),
            batch_sampler=[index.tolist() for index in order],
            num_workers=self.workers,
            pin_memory=device.type == "cuda",
            generator=torch.Generator().manual_seed(seed),  # else each iteration draws from the model's
        )
        for index, given in zip(order, loader, strict=True):
            batch = batch_of(given, device, self.dtype)
            group = batch.group if self.group is None else self.group[index].to(device)
            yield replace(batch, index=index.to(device), group=group)


class _SeededItems(Dataset[Any]):
    """Items whose random augmentation is a function of the seed and the sample alone, whoever reads them and when."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, at: int) -> Any:
        with randomness.seeded(seed_of(self.seed, at)):
            return self.dataset[at]


Source = InMemory | FromDataset | FromLoader


def source(given: Any, name: str, workers: int = 0) -> Source:
    """What fit was given, as one of the three."""
    if isinstance(given, (InMemory, FromDataset, FromLoader)):
        return given
    if isinstance(given, DataLoader):
        return FromLoader(given)
    if isinstance(given, (tuple, list)) and len(given) in (2, 3):
        x, y, weight = (*given, None)[:3]
        x, y = as_tensor(x, f"{name}'s inputs", keep=True), as_tensor(y, f"{name}'s labels")
        if weight is not None:
            weight = as_tensor(weight, f"{name}'s weights", keep=True)
            weight = weight.to(counting_dtype(x.dtype) if x.is_floating_point() else torch.get_default_dtype())
        if len(x) != len(y) or (weight is not None and len(weight) != len(y)):
            sizes = [len(part) for part in (x, y, weight) if part is not None]
            raise InvalidValueError(f"{name} has parts of different lengths: {', '.join(map(str, sizes))}")
        if not len(y):
            raise InvalidValueError(f"{name} is empty")
        _check_inputs(x, name)
        _check_weights(weight, name)
        return InMemory(x, y, weight)
    if isinstance(given, IterableDataset):
        raise InvalidTypeError(f"{name} is an IterableDataset, whose samples have no numbers; wrap it in a DataLoader")
    if isinstance(given, Dataset) or (hasattr(given, "__getitem__") and hasattr(given, "__len__")):
        if not len(given):
            raise InvalidValueError(f"{name} is empty")
        return FromDataset(given, workers)
    raise InvalidTypeError(
        f"{name} must be (X, y), (X, y, weight), a Dataset or a DataLoader; got {type(given).__name__}"
    )


def as_tensor(given: Any, name: str, *, keep: bool = False) -> Tensor:
    """A tensor of an array, a table or a list; fractions in torch's default type, or with ``keep`` as they are."""
    if isinstance(given, Tensor):
        return given
    if hasattr(given, "to_numpy"):  # pandas and polars
        given = given.to_numpy()
    flags = getattr(
        given, "flags", None
    )  # an array's, which torch would share: not one it may not write to, or reversed
    if flags is not None and not (flags.writeable and all(stride >= 0 for stride in given.strides)):
        given = given.copy()
    try:
        made = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidTypeError(f"{name} must be numbers, a tensor or an array of them: {error}") from error
    return made.to(torch.get_default_dtype()) if made.is_floating_point() and not keep else made


def type_of(model: nn.Module) -> torch.dtype:
    """The type of a model's weights."""
    kinds = [given.dtype for given in model.parameters() if given.is_floating_point()]
    return kinds[0] if kinds else torch.get_default_dtype()


def _labels_of(dataset: Any) -> Tensor:
    tensors: Any = getattr(dataset, "tensors", ())
    for labels in (getattr(dataset, "targets", None), tensors[1] if len(tensors) in (2, 3) else None):
        if labels is not None and len(labels) == len(dataset):
            known = torch.as_tensor(labels)
            if _same(known[:FEW], _labels_in_items(dataset, min(FEW, len(dataset)))):
                return known
    return _labels_in_items(dataset, len(dataset))


def _labels_in_items(dataset: Any, first: int) -> Tensor:
    with randomness.seeded(0):  # items may be augmented at random
        return torch.as_tensor(default_collate([_label_in(dataset[at]) for at in range(first)]))


def _same(known: Tensor, read: Tensor) -> bool:
    """Whether a dataset's own list of labels says what its items do, which a target_transform may change."""
    return known.shape == read.shape and torch.equal(known.double(), read.double())


def _label_in(item: Any) -> Any:
    if isinstance(item, dict) and "y" in item:
        return item["y"]
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return item[1]
    raise InvalidTypeError(
        f"a Dataset's items must be (x, y), (x, y, weight) or a dictionary of them; got {_brief(item)}"
    )


def _brief(given: Any) -> str:
    size = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
    return f"a {type(given).__name__}{size}"


def _check_inputs(x: Tensor, name: str) -> None:
    if x.is_floating_point() and not bool(x.isfinite().all()):
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
