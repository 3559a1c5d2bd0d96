"""A user's DataLoader as a source of batches, shuffled by the run's seed and shared out over processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, Sampler

from metricfit.errors import InvalidValueError
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch, batch_of, share_of

_END: Any = object()


class FromLoader:
    """A user's DataLoader as it is: its own batches and order, and no sample numbers.

    Args:
        loader: the DataLoader.
        dtype: the type that floating point inputs are converted to.
        uneven: whether this is one of several processes, whose loaders may differ in their number of batches.
    """

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None = None, uneven: bool = False) -> None:
        self.loader, self.dtype, self.uneven = loader, dtype, uneven

    @property
    def expected_batches(self) -> int | None:
        """The number of batches that the loader announces, or None if it announces none.

        This is a hint: an IterableDataset may give more samples than its ``__len__`` says, or fewer, and workers that
        read a share each end in a smaller batch each. Only reading to the end gives the number.
        """
        loader = self.loader
        try:
            if type(loader) is DataLoader and isinstance(loader.dataset, IterableDataset):
                # len(loader) would give the same, and make the loader warn of every sample beyond it.
                samples, size = len(loader.dataset), loader.batch_size or 1  # type: ignore[arg-type]
                return samples // size if loader.drop_last else -(-samples // size)
            return len(loader)
        except (TypeError, NotImplementedError):
            return None

    def typed(self, dtype: torch.dtype) -> FromLoader:
        """The same with inputs, where they are a tensor of fractions, of this type."""
        return FromLoader(self.loader, dtype, self.uneven)

    def of_rank(self, rank: int, ranks: int) -> FromLoader:
        """A loader that reads this rank's share of each batch.

        One whose sampler shares out the samples already, such as a DistributedSampler, and one of an IterableDataset,
        whose samples only it can share out, are taken as they are.
        """
        given = self.loader
        if ranks == 1 or any(map(_is_shared_out, _samplers(given))):
            return self
        if isinstance(given.dataset, IterableDataset):
            return FromLoader(given, self.dtype, uneven=True)
        if type(given) is not DataLoader or given.batch_sampler is None:
            raise InvalidValueError(
                f"{ranks} processes cannot share the batches of this {type(given).__name__}; give it a "
                "DistributedSampler, or give fit the Dataset"
            )
        return FromLoader(
            DataLoader(
                given.dataset,
                batch_sampler=_Shares(given.batch_sampler, rank, ranks),
                num_workers=given.num_workers,
                collate_fn=given.collate_fn,
                pin_memory=given.pin_memory,
                timeout=given.timeout,
                worker_init_fn=given.worker_init_fn,
                multiprocessing_context=given.multiprocessing_context,
                generator=given.generator,
                prefetch_factor=given.prefetch_factor,
                persistent_workers=given.persistent_workers,
            ),
            self.dtype,
        )

    def batches(self, device: torch.device, seed: int = 0, skip: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """The loader's batches to its end, without the first ``skip``.

        The loader shuffles by the seed, and independently of the random numbers that the model draws in between.

        Raises:
            ValueError: the loader ends before ``skip`` batches, so it is not the one that the checkpoint is from.
        """
        pairs = self._read(seed, epoch)
        number = 0
        for batch, has_samples in _until_all_end(pairs, device) if self.uneven else pairs:
            number += 1
            if number > skip:
                whole = batch_of(batch, device, self.dtype)
                yield whole if has_samples else whole.without_samples()
        if number < skip:
            raise InvalidValueError(
                f"the DataLoader ended after {number} batches, but the checkpoint was written after {skip} batches of "
                "this epoch; resume with the data that the run was started with"
            )

    def _read(self, seed: int, epoch: int) -> Iterator[tuple[Any, bool]]:
        """What the loader gives, and whether it holds samples of this process."""
        for sampler in _samplers(self.loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        shares = self.loader.batch_sampler
        for owner in (self.loader, *_samplers(self.loader)):
            if isinstance(getattr(owner, "generator", None), torch.Generator):
                owner.generator.manual_seed(seed)  # a resumed run cannot know its state
        stream = randomness.Stream(seed)
        with stream:
            remaining = iter(self.loader)
        while True:
            with stream:
                batch = next(remaining, _END)
            if batch is _END:
                return
            yield batch, not isinstance(shares, _Shares) or shares.sizes.popleft() > 0


def _until_all_end(pairs: Iterator[tuple[Any, bool]], device: torch.device) -> Iterator[tuple[Any, bool]]:
    """The batches of this process; once it has no more, its last one, marked as empty, until no process has any.

    The processes of a run wait for each other in every step, but the shares that an IterableDataset gives them need
    not have the same number of batches.

    Raises:
        ValueError: on every process, if one of them has no batch at all to run its model on.
    """
    last: Any = _END
    while True:
        batch, has_samples = next(pairs, (_END, False))
        with_batch = torch.tensor(int(batch is not _END), device=device)
        dist.all_reduce(with_batch)
        if not int(with_batch):
            return
        if last is _END and int(with_batch) < dist.get_world_size():
            raise InvalidValueError(
                f"the IterableDataset gives batches to {int(with_batch)} of {dist.get_world_size()} processes only; "
                "every process needs at least one: share the samples out over torch.distributed.get_rank()"
            )
        last = last if batch is _END else batch
        yield last, has_samples


class _Shares(Sampler[list[int]]):
    """One rank's share of each batch; of a batch that is too small to share a sample that is not to count."""

    def __init__(self, batches: Iterable[Any], rank: int, ranks: int) -> None:
        self.of_all, self.rank, self.ranks = batches, rank, ranks
        self.sizes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.of_all)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[int]]:
        self.sizes.clear()
        for batch in self.of_all:
            mine = share_of(list(batch), self.rank, self.ranks)
            self.sizes.append(len(mine))
            yield mine or list(batch)[:1]


def _samplers(loader: DataLoader[Any]) -> list[Any]:
    batches: Any = loader.batch_sampler.of_all if isinstance(loader.batch_sampler, _Shares) else loader.batch_sampler
    found = (batches, getattr(batches, "sampler", None), getattr(loader, "sampler", None))
    return [each for at, each in enumerate(found) if each is not None and not any(each is one for one in found[:at])]


def _is_shared_out(sampler: Any) -> bool:
    return hasattr(sampler, "num_replicas")  # as torch's DistributedSampler and those made after it have
