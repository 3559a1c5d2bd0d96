"""A user's DataLoader as a source of batches, shuffled by the run's seed and shared out over processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from metricfit.train import randomness
from metricfit.train.batch import Batch, batch_of, share_of


class FromLoader:
    """A user's DataLoader as it is: its own batches and order, and no sample numbers."""

    def __init__(self, loader: DataLoader[Any], dtype: torch.dtype | None = None) -> None:
        self.loader, self.dtype = loader, dtype

    def __len__(self) -> int:
        """How many batches there are."""
        return len(self.loader)

    def typed(self, dtype: torch.dtype) -> FromLoader:
        """The same with inputs, where they are a tensor of fractions, of this type."""
        return FromLoader(self.loader, dtype)

    def of_rank(self, rank: int, ranks: int) -> FromLoader:
        """A loader that reads this rank's share of each batch.

        One whose sampler shares out the samples already, such as a DistributedSampler, and one of an IterableDataset,
        whose samples only it can share out, are taken as they are.
        """
        given = self.loader
        if ranks == 1 or isinstance(given.dataset, IterableDataset) or any(map(_is_shared_out, _samplers(given))):
            return self
        if type(given) is not DataLoader or given.batch_sampler is None:
            raise ValueError(
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
        """Its batches, but the first few; it shuffles by the seed, apart from what the model draws in between."""
        for sampler in _samplers(self.loader):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        shares = self.loader.batch_sampler
        for owner in (self.loader, *_samplers(self.loader)):
            if isinstance(getattr(owner, "generator", None), torch.Generator):
                owner.generator.manual_seed(seed)  # where it stands after so many epochs, a resumed run cannot know
        stream = randomness.Stream(seed)
        with stream:
            given = iter(self.loader)
        for at in range(len(self.loader)):
            with stream:
                batch = next(given)
            counts = not isinstance(shares, _Shares) or shares.sizes.popleft() > 0
            if at >= skip:
                whole = batch_of(batch, device, self.dtype)
                yield whole if counts else whole.without_samples()


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
