"""Sets of images as tables use them: which images, which of them are positive, and which each trial trains on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.data.images import Images, ImageSet, cifar10
from metricfit.data.images.image_set import Labels, Pixels

Rows = NDArray[np.int64]


class Drawn(NamedTuple):
    """One trial's images, as numbers into those of its task; ``every_test`` holds ``test`` and more."""

    train: Rows
    validation: Rows
    test: Rows
    every_test: Rows


@lru_cache(maxsize=1)
def read_cifar10(folder: str) -> ImageSet:
    """CIFAR-10, read once."""
    return cifar10(folder)


@dataclass(frozen=True)
class CifarPair:
    """Two classes of CIFAR-10, few images, fewer of them positive: the tables of Sangalli et al. 2021.

    Each trial draws ``negatives`` + ``watched`` negatives and the ``ratio``-th part of as many positives from the
    training images, for training and for validation. All trials are tested on all test images of the negative class
    and on one draw of as many positives as keep the ratio; ``every_test`` has all positives (their Appendix D).
    """

    negative: int
    positive: int
    ratio: int
    negatives: int = 300
    watched: int = 100

    def content(self, folder: str) -> str:
        """What of the set is there: numbers from a part of it are others."""
        return f"{len(read_cifar10(folder).train)} training images"

    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """The images of both classes, those to train on first, and which are positive."""
        parts = self._parts(folder)
        pixels = np.concatenate([part.pixels[rows] for part, rows in parts])
        labels = np.concatenate([part.labels[rows] for part, rows in parts])
        return pixels, (labels == self.positive).astype(np.int64)

    def trials(self, folder: str, number: int) -> Iterator[Drawn]:
        """Each trial's images."""
        _, labels = self.images(folder)
        first_test = len(self._parts(folder)[0][1])
        places = np.arange(len(labels))
        of_class = [places[(labels == label) & (places < first_test)] for label in (0, 1)]
        tested = [places[(labels == label) & (places >= first_test)] for label in (0, 1)]
        few = _some(tested[1], self._of(len(tested[0])), np.random.default_rng(0))
        test, every_test = _joined(tested[0], few), _joined(*tested)
        for trial in range(number):
            rng = np.random.default_rng([1, trial])
            sizes = (self.negatives, self.watched), (self._of(self.negatives), self._of(self.watched))
            train, validation = zip(
                *(_two(rows, each, rng) for rows, each in zip(of_class, sizes, strict=True)), strict=True
            )
            yield Drawn(_joined(*train), _joined(*validation), test, every_test)

    def _of(self, negatives: int) -> int:
        return round(negatives / self.ratio)

    def _parts(self, folder: str) -> list[tuple[Images, Rows]]:
        given = read_cifar10(folder)
        wanted = (self.negative, self.positive)
        return [(part, np.flatnonzero(np.isin(part.labels, wanted))) for part in (given.train, given.test)]


def _some(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    if count > len(rows):
        raise ValueError(f"{count} images of a class are wanted, there are {len(rows)}")
    return rng.permutation(rows)[:count]


def _two(rows: Rows, sizes: tuple[int, int], rng: np.random.Generator) -> tuple[Rows, Rows]:
    drawn = _some(rows, sum(sizes), rng)
    return drawn[: sizes[0]], drawn[sizes[0] :]


def _joined(*parts: Rows) -> Rows:
    return np.sort(np.concatenate(parts))
