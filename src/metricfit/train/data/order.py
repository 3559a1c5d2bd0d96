"""The samples of each batch, which depend only on the seed, the stage and the epoch.

A run that resumes, or a member of a population, therefore sees the same batches as an uninterrupted run on its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from metricfit.errors import InvalidValueError


@dataclass(frozen=True)
class Order:
    """How an epoch is divided into batches.

    Batches have nearly equal sizes, so that the last one is not too small to compute a metric: with a batch size of
    1,024, 1,025 samples make batches of 513 and 512.

    Args:
        batch_size: Maximum number of samples per batch.
        stratified: Distribute each class evenly over the batches, and add a positive to batches without one.
        oversample: Repeat positives until they are this share of the epoch.
    """

    batch_size: int
    stratified: bool = False
    oversample: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.batch_size, Integral) or self.batch_size < 1:
            raise InvalidValueError(f"batch_size must be an integer of at least 1, got {self.batch_size}")
        if self.oversample is not None and not 0.0 < self.oversample < 1.0:
            raise InvalidValueError(
                f"oversample is the share of positives to reach, strictly between 0 and 1, got {self.oversample}"
            )

    def batches(self, labels: Tensor, seed: int, stage: int, epoch: int, steps: int | None = None) -> list[Tensor]:
        """Return the sample numbers of each batch of an epoch, for samples with these labels (on the CPU)."""
        labels = _as_row(labels)
        generator = torch.Generator().manual_seed(derive_seed(seed, stage, epoch))
        if self.oversample is None:
            shuffled = torch.randperm(len(labels), generator=generator)
        else:
            chosen = torch.cat([torch.arange(len(labels)), _draw_positives(labels, self.oversample, generator)])
            shuffled = chosen[torch.randperm(len(chosen), generator=generator)]
        steps = steps or self.steps(len(shuffled))
        if not self.stratified:
            return list(shuffled.tensor_split(steps))
        by_class = shuffled[labels[shuffled].argsort(stable=True)]  # sorted by class, then dealt like cards
        dealt = [by_class[start::steps] for start in range(steps)]
        positives = (labels > 0).nonzero().flatten()
        return [
            hand if bool((labels[hand] > 0).any()) else torch.cat([hand, _draw_one(positives, generator)])
            for hand in dealt
        ]

    def steps(self, samples: int) -> int:
        """Return the number of batches for a number of samples."""
        return max(1, -(-samples // self.batch_size))

    def steps_per_epoch(self, labels: Tensor) -> int:
        """Return the number of batches per epoch, including repeated positives."""
        extra = 0 if self.oversample is None else _count_missing(labels, self.oversample)
        return self.steps(len(labels) + extra)

    def check(self, labels: Tensor) -> None:
        """Check that the options make sense for these labels."""
        if not (self.stratified or self.oversample is not None):
            return
        labels = _as_row(labels)
        option = "stratified" if self.stratified else "oversample"
        if labels.dim() != 1:
            raise InvalidValueError(
                f"{option} batches need one label per sample, but the labels have shape {tuple(labels.shape)}"
            )
        if not bool((labels > 0).any()) or bool((labels > 0).all()):
            raise InvalidValueError(
                f"{option} batches need positives and negatives; all labels are {labels[0].item():g}"
            )


def _as_row(labels: Tensor) -> Tensor:
    """Turn a column of labels into a row; other shapes are unchanged."""
    return labels.squeeze(1) if labels.dim() == 2 and labels.shape[1] == 1 else labels


def _draw_positives(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Draw positives with replacement until they are the given share of all samples."""
    positives = (labels > 0).nonzero().flatten()
    return positives[torch.randint(len(positives), (_count_missing(labels, share),), generator=generator)]


def _count_missing(labels: Tensor, share: float) -> int:
    positives = int((labels > 0).sum())
    return max(0, round(share * (len(labels) - positives) / (1 - share)) - positives)


def _draw_one(numbers: Tensor, generator: torch.Generator) -> Tensor:
    return numbers[torch.randint(len(numbers), (1,), generator=generator)]


def derive_seed(*parts: int | str) -> int:
    """Derive a seed from several values; different values give different seeds, except by accident."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
