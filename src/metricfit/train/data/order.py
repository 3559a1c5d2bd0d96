"""Which samples make up each batch of an epoch: a function of the seed, the stage and the epoch alone.

So a run that resumes, or a member of a population, sees the batches that an uninterrupted run of its own would.
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
    """How an epoch is cut into batches.

    Batches are of nearly equal size, so that no last one is too small to measure a metric on: 1,025 samples by 1,024
    are 513 and 512. ``stratified`` deals each class over the batches and gives a positive to those without one;
    ``oversample`` repeats positives until they are that share of the epoch.
    """

    batch_size: int
    stratified: bool = False
    oversample: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.batch_size, Integral) or self.batch_size < 1:
            raise InvalidValueError(f"batch_size must be at least 1, a whole number, got {self.batch_size}")
        if self.oversample is not None and not 0.0 < self.oversample < 1.0:
            raise InvalidValueError(
                f"oversample is the share of positives to reach, strictly between 0 and 1, got {self.oversample}"
            )

    def batches(self, labels: Tensor, seed: int, stage: int, epoch: int, steps: int | None = None) -> list[Tensor]:
        """The numbers of the samples in each batch of an epoch, of samples with these labels (on the CPU)."""
        labels = _one_each(labels)
        generator = torch.Generator().manual_seed(seed_of(seed, stage, epoch))
        chosen = torch.arange(len(labels))
        if self.oversample is not None:
            chosen = torch.cat([chosen, _extra(labels, self.oversample, generator)])
        shuffled = chosen[torch.randperm(len(chosen), generator=generator)]
        steps = steps or self.steps(len(chosen))
        if not self.stratified:
            return list(shuffled.tensor_split(steps))
        by_class = shuffled[labels[shuffled].argsort(stable=True)]  # each class in a row, dealt like cards
        dealt = [by_class[at::steps] for at in range(steps)]
        positives = (labels > 0).nonzero().flatten()
        return [
            hand if bool((labels[hand] > 0).any()) else torch.cat([hand, _one_of(positives, generator)])
            for hand in dealt
        ]

    def steps(self, samples: int) -> int:
        """How many batches that many samples make."""
        return max(1, -(-samples // self.batch_size))

    def steps_of(self, labels: Tensor) -> int:
        """How many batches an epoch has, repeated positives included."""
        extra = 0 if self.oversample is None else _missing(labels, self.oversample)
        return self.steps(len(labels) + extra)

    def check(self, labels: Tensor) -> None:
        """Refuse options that these labels have no meaning under."""
        if not (self.stratified or self.oversample is not None):
            return
        labels = _one_each(labels)
        option = "stratified" if self.stratified else "oversample"
        if labels.dim() != 1:
            raise InvalidValueError(f"{option} batches need one label a sample, these have shape {tuple(labels.shape)}")
        if not bool((labels > 0).any()) or bool((labels > 0).all()):
            raise InvalidValueError(
                f"{option} batches need positives and negatives; all labels are {labels[0].item():g}"
            )


def _one_each(labels: Tensor) -> Tensor:
    """A column of labels as a row; others as they are."""
    return labels.squeeze(1) if labels.dim() == 2 and labels.shape[1] == 1 else labels


def _extra(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Positives to add, drawn with replacement, until they are a share of the whole."""
    positives = (labels > 0).nonzero().flatten()
    return positives[torch.randint(len(positives), (_missing(labels, share),), generator=generator)]


def _missing(labels: Tensor, share: float) -> int:
    positives = int((labels > 0).sum())
    return max(0, round(share * (len(labels) - positives) / (1 - share)) - positives)


def _one_of(these: Tensor, generator: torch.Generator) -> Tensor:
    return these[torch.randint(len(these), (1,), generator=generator)]


def seed_of(*parts: int | str) -> int:
    """A seed from several numbers, such that no two lists of them share one but by accident."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
