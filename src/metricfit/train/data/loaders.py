"""A user's DataLoader as a source of batches, shuffled by the run's seed and divided among processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, Sampler

from metricfit.errors import InvalidValueError
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch, make_batch, take_share

_END: Any = object()


class FromLoader:
    """A user's DataLoader, with its own batches and order, and without sample numbers.

    Args:
        loader: The DataLoader.
        dtype: The type that floating-point inputs are converted to.
        uneven: Whether this is one of several processes whose loaders may have different numbers of batches.
    """

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None = None, uneven: bool = False) -> None:
        self.loader, self.dtype, self.uneven = loader, dtype, uneven

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
        return FromLoader(self.loader, dtype, self.uneven)

    def for_rank(self, rank: int, ranks: int) -> FromLoader:
        """Return a loader that reads this rank's share of each batch.

        A loader whose sampler divides the samples already, such as a DistributedSampler, is used unchanged. So is the
        loader of an IterableDataset, because only the dataset itself can divide its samples.
        """
        loader = self.loader
        if ranks == 1 or any(map(_is_distributed, _find_samplers(loader))):
            return self
        if isinstance(loader.dataset, IterableDataset):
            return FromLoader(loader, self.dtype, uneven=True)
        if type(loader) is not DataLoader or loader.batch_sampler is None:
            raise InvalidValueError(
                f"{ranks} processes cannot share the batches of this {type(loader).__name__}; give it a "
                "DistributedSampler, or give fit the Dataset"
            )
        return FromLoader(
            DataLoader(
                loader.dataset,
                batch_sampler=_Shares(loader.batch_sampler, rank, ranks),
                num_workers=loader.num_workers,
                collate_fn=loader.collate_fn,
                pin_memory=loader.pin_memory,
                timeout=loader.timeout,
                worker_init_fn=loader.worker_init_fn,
                multiprocessing_context=loader.multiprocessing_context,
                generator=loader.generator,
                prefetch_factor=loader.prefetch_factor,
                persistent_workers=loader.persistent_workers,
            ),
            self.dtype,
        )

    def batches(self, device: torch.device, seed: int = 0, skip: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """Yield the loader's batches to its end, without the first ``skip``.

        The order depends only on the seed, and not on random numbers that the model draws in between.

        Raises:
            ValueError: The loader ends before ``skip`` batches, so the checkpoint was written with another loader.
        """
        items = self._read(seed, epoch)
        number = 0
        for item, has_samples in _until_all_end(items, device) if self.uneven else items:
            number += 1
            if number > skip:
                batch = make_batch(item, device, self.dtype)
                yield batch if has_samples else batch.without_samples()
        if number < skip:
            raise InvalidValueError(
                f"the DataLoader ended after {number} batches, but the checkpoint was written after {skip} batches of "
                "this epoch; resume with the data that the run was started with"
            )

    def _read(self, seed: int, epoch: int) -> Iterator[tuple[Any, bool]]:
        """Yield the loader's items, and whether they have samples of this process."""
        for sampler in _find_samplers(self.loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        shares = self.loader.batch_sampler
        for owner in (self.loader, *_find_samplers(self.loader)):
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
            yield item, not isinstance(shares, _Shares) or shares.sizes.popleft() > 0


def _until_all_end(items: Iterator[tuple[Any, bool]], device: torch.device) -> Iterator[tuple[Any, bool]]:
    """Yield the items of this process, then its last item, marked as empty, until no process has any left.

    The processes of a run wait for each other in every step, but an IterableDataset may give them different numbers of
    batches.

    Raises:
        ValueError: On every process, if one of them has no batch at all to run its model on.
    """
    last: Any = _END
    while True:
        item, has_samples = next(items, (_END, False))
        processes = torch.tensor(int(item is not _END), device=device)
        dist.all_reduce(processes)
        if not int(processes):
            return
        if last is _END and int(processes) < dist.get_world_size():
            raise InvalidValueError(
                f"the IterableDataset gives batches to only {int(processes)} of {dist.get_world_size()} processes; "
                "every process needs at least one: divide the samples by torch.distributed.get_rank()"
            )
        last = last if item is _END else item
        yield last, has_samples


class _Shares(Sampler[list[int]]):
    """One rank's share of each batch; an empty share becomes one sample, which is not counted."""

    def __init__(self, batches: Iterable[Any], rank: int, ranks: int) -> None:
        self.batches, self.rank, self.ranks = batches, rank, ranks
        self.sizes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes.clear()
        for batch in self.batches:
            share = take_share(list(batch), self.rank, self.ranks)
            self.sizes.append(len(share))
            yield share or list(batch)[:1]


def _find_samplers(loader: DataLoader[Any]) -> list[Any]:
    """Return the batch sampler of a loader and the samplers in it, each of them once."""
    batches: Any = loader.batch_sampler
    batches = batches.batches if isinstance(batches, _Shares) else batches
    samplers = (batches, getattr(batches, "sampler", None), getattr(loader, "sampler", None))
    return list({id(sampler): sampler for sampler in samplers if sampler is not None}.values())


def _is_distributed(sampler: Any) -> bool:
    return hasattr(sampler, "num_replicas")  # an attribute of torch's DistributedSampler and its imitations
