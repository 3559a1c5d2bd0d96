"""A map-style Dataset as a source of batches, read by worker processes while the model trains."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, default_collate

from metricfit.errors import InvalidTypeError
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch, make_batch
from metricfit.train.data.order import derive_seed

COMPARED_LABELS = 16  # labels of a dataset's list that are compared with its items
LABELS_AT_ONCE = 64
SOME_LABELS = 1024  # items of a dataset without a list of labels that are read before training


class FromDataset:
    """A map-style Dataset of ``(x, y)`` or ``(x, y, weight)``, read by a DataLoader in a chosen order.

    Args:
        dataset: The dataset.
        workers: Number of processes that read it; they live as long as this object.
        dtype: The type that floating-point inputs are converted to.
    """

    def __init__(self, dataset: Dataset[Any], workers: int = 0, dtype: torch.dtype | None = None) -> None:
        self.dataset, self.workers, self.dtype = dataset, workers, dtype
        self._target: Tensor | None = None
        self._some: Tensor | None = None
        self._first: tuple[Any] | None = None
        self._reader: _Reader | None = None
        self.group: Tensor | None = None

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def with_dtype(self, dtype: torch.dtype) -> FromDataset:
        """Return the data with inputs converted to this type, if they are a floating-point tensor."""
        copied = copy.copy(self)
        copied.dtype, copied._reader = dtype, None
        return copied

    def with_group(self, group: Tensor) -> FromDataset:
        """Return the data with one group number per sample."""
        copied = copy.copy(self)
        copied.group, copied._reader = group, None
        return copied

    @property
    def knows_labels(self) -> bool:
        """Whether all labels are known without reading more than some of the items.

        A dataset knows them if it has a list ``targets`` or ``tensors``, or is a Subset of such a dataset, and its
        first items agree with the list.
        """
        if self._target is None:
            self._target = _find_list_of_labels(self.dataset)
            if self._target is None and len(self) <= SOME_LABELS:
                self._target = self.some_labels
        return self._target is not None

    @property
    def some_labels(self) -> Tensor:
        """The labels of some samples, spread evenly over the dataset; all labels if these are known."""
        if self._target is not None:
            return self._target
        if self._some is None:
            size = len(self)
            numbers = range(size) if size <= SOME_LABELS else _spread(size)
            self._some = _read_labels(self.dataset, numbers, self.workers)
        return self._some

    @property
    def target(self) -> Tensor:
        """All labels, read once: from the dataset's list, or else from all of its items, by the workers."""
        if not self.knows_labels:
            self._target = _read_labels(self.dataset, range(len(self)), self.workers)
        assert self._target is not None
        return self._target

    def first(self) -> Any:
        """Return the inputs of a batch of the first sample, which is read once."""
        if self._first is None:
            with randomness.seeded(0):
                self._first = (make_batch(default_collate([self.dataset[0]]), torch.device("cpu")).x,)
        return self._first[0]

    def batches(self, order: Sequence[Tensor], device: torch.device, seed: int = 0) -> Iterator[Batch]:
        """Yield one batch per list of sample numbers; random augmentation depends on the seed."""
        if self._reader is None:
            self._reader = _Reader(self.dataset, self.workers, pin_memory=device.type == "cuda")
        for index, item in zip(order, self._reader.read(order, seed), strict=True):
            batch = make_batch(item, device, self.dtype)
            group = batch.group if self.group is None else self.group[index].to(device)
            yield replace(batch, index=index.to(device), group=group)


def _spread(size: int) -> list[int]:
    """Return numbers of samples that are spread evenly over a dataset."""
    numbers: list[int] = torch.linspace(0, size - 1, SOME_LABELS, dtype=torch.float64).long().tolist()
    return numbers


class _Reader:
    """A DataLoader whose order is set before each epoch, so that its workers need not be started again."""

    def __init__(self, dataset: Any, workers: int, *, pin_memory: bool) -> None:
        self.order = _SeededOrder()
        self.generator = torch.Generator()  # not the model's random numbers
        self.loader = DataLoader(
            _SeededItems(dataset),
            batch_sampler=self.order,
            num_workers=workers,
            pin_memory=pin_memory,
            generator=self.generator,
            persistent_workers=workers > 0,
        )

    def read(self, order: Sequence[Tensor], seed: int) -> Iterator[Any]:
        self.order.batches, self.order.seed = order, seed
        self.generator.manual_seed(seed)
        return iter(self.loader)


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
        with randomness.seeded(0):  # once for a batch, because restoring the states takes a while
            return [self._get(*key) for key in keys]

    def _get(self, seed: int, number: int) -> Any:
        randomness.seed_all(derive_seed(seed, number))
        return self.dataset[number]


class _SeededLabels(_SeededItems):
    """The labels of the items, without the inputs, so that workers send little."""

    def _get(self, seed: int, number: int) -> Any:
        return _get_label(super()._get(seed, number))


def _read_labels(dataset: Any, numbers: Sequence[int], workers: int) -> Tensor:
    """Read the labels of these samples from the items."""
    order = _SeededOrder()
    order.batches = torch.split(torch.as_tensor(numbers), LABELS_AT_ONCE)
    loader = DataLoader(_SeededLabels(dataset), batch_sampler=order, num_workers=workers, generator=torch.Generator())
    return torch.cat([torch.as_tensor(labels) for labels in loader])


def _find_list_of_labels(dataset: Any) -> Tensor | None:
    """Return a dataset's own list of labels, if its first items agree with it."""
    labels = _get_list(dataset)
    if labels is None:
        return None
    first = range(min(COMPARED_LABELS, len(dataset)))
    return labels if _agree(labels[:COMPARED_LABELS], _read_labels(dataset, first, 0)) else None


def _get_list(dataset: Any) -> Tensor | None:
    if isinstance(dataset, Subset):
        labels = _get_list(dataset.dataset)
        return None if labels is None else labels[torch.as_tensor(dataset.indices, dtype=torch.long)]
    tensors: Any = getattr(dataset, "tensors", ())
    for labels in (getattr(dataset, "targets", None), tensors[1] if len(tensors) in (2, 3) else None):
        if labels is not None and len(labels) == len(dataset):
            return torch.as_tensor(labels)
    return None


def _agree(known: Tensor, read: Tensor) -> bool:
    """Check whether a dataset's list of labels agrees with its items, whose labels a target_transform may change."""
    return known.shape == read.shape and torch.equal(known.double(), read.double())


def _get_label(item: Any) -> Any:
    if isinstance(item, dict) and "y" in item:
        return item["y"]
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return item[1]
    raise InvalidTypeError(
        f"a Dataset's items must be (x, y), (x, y, weight) or a dictionary of them; got {_describe_item(item)}"
    )


def _describe_item(item: Any) -> str:
    size = f" of {len(item)}" if isinstance(item, (tuple, list)) else ""
    return f"a {type(item).__name__}{size}"
