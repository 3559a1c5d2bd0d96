"""Image sets as the tables use them: which images, which of them are positive, and which ones a trial trains on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError
from metricfit_papers.images import Images, ImageSet, cifar10, fashion_mnist
from metricfit_papers.images.image_set import Labels, Pixels
from metricfit_papers.specs.table_spec import ProtocolSpec

Rows = NDArray[np.int64]


class Drawn(NamedTuple):
    """The images of one trial, as numbers into those of its task; ``every_test`` contains ``test`` and more."""

    train: Rows
    validation: Rows
    test: Rows
    every_test: Rows


LOADERS = {"cifar10": cifar10, "fashion_mnist": fashion_mnist}


@lru_cache(maxsize=1)
def read(name: str, folder: str) -> ImageSet:
    """Read an image set; the one that was read last is kept in memory."""
    return LOADERS[name](folder)


class ImageTask(ABC):
    """Images of a folder, and how trials draw from them; ``origin`` is the name of the image set in LOADERS."""

    origin: str

    @abstractmethod
    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """All images that trials draw from, training images first, and their labels."""

    @abstractmethod
    def trials(self, folder: str, number: int, how: ProtocolSpec) -> Iterator[Drawn]:
        """Draw the images of each trial."""

    def content(self, folder: str) -> str:
        """How much of the set is present, because results from a part of it differ."""
        return f"{len(read(self.origin, folder).train)} training images"

    def part(self, folder: str) -> str:
        """How many of the images that the task uses are present, in words; empty if all are."""
        return ""


@dataclass(frozen=True)
class CifarPair(ImageTask):
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

    origin: ClassVar[str] = "cifar10"  # type: ignore[misc]

    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """The images of both classes, those to train on first, and which are positive."""
        parts = self._parts(folder)
        pixels = np.concatenate([part.pixels[rows] for part, rows in parts])
        labels = np.concatenate([part.labels[rows] for part, rows in parts])
        return pixels, (labels == self.positive).astype(np.int64)

    def trials(self, folder: str, number: int, how: ProtocolSpec) -> Iterator[Drawn]:
        """Each trial's images, whatever the protocol."""
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
        given = read(self.origin, folder)
        wanted = (self.negative, self.positive)
        return [(part, np.flatnonzero(np.isin(part.labels, wanted))) for part in (given.train, given.test)]


@dataclass(frozen=True)
class WholeSet(ImageTask):
    """All images of a set, cut as the protocol says; 1 where the class is one of ``positive``, or its number.

    The origin's training and test images together are cut by the protocol's fractions; with ``published_test`` the
    test images are the origin's, and the fractions of training and validation are of the others.
    """

    origin: str
    positive: tuple[int, ...] = ()

    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """Training images first, and their labels."""
        given = read(self.origin, folder)
        labels = np.concatenate([given.train.labels, given.test.labels])
        if self.positive:
            labels = np.isin(labels, self.positive).astype(np.int64)
        return np.concatenate([given.train.pixels, given.test.pixels]), labels

    def part(self, folder: str) -> str:
        """Of the origin's training images."""
        given = read(self.origin, folder)
        return "" if given.whole else f"{len(given.train):,} of {given.published:,} training images"

    def trials(self, folder: str, number: int, how: ProtocolSpec) -> Iterator[Drawn]:
        """A cut for each trial, or one for all where only weights differ."""
        if how.varied == "folds" or min(how.fractions) == 0:
            raise InvalidValueError("images are cut into parts for training, validation and test, not into folds")
        given = read(self.origin, folder)
        labels = self.images(folder)[1]
        first, places = len(given.train), np.arange(len(labels))
        for trial in range(number):
            rng = np.random.default_rng([2, trial if how.varied == "splits" else 0])
            if how.published_test:
                share = how.fractions[0] / (how.fractions[0] + how.fractions[1])
                train, validation = _cut(places[:first], labels, (share, 1 - share), how.split, rng)
                test = places[first:]
            else:
                train, validation, test = _cut(places, labels, how.fractions, how.split, rng)
            yield Drawn(train, validation, test, test)


def whole_cifar10(positive: Sequence[int] = ()) -> WholeSet:
    """CIFAR-10, as tables name it."""
    return WholeSet("cifar10", tuple(positive))


def whole_fashion_mnist(positive: Sequence[int] = ()) -> WholeSet:
    """Fashion-MNIST, as tables name it."""
    return WholeSet("fashion_mnist", tuple(positive))


def _cut(rows: Rows, labels: Labels, shares: Sequence[float], how: str, rng: np.random.Generator) -> list[Rows]:
    """Parts of these rows at random; of each label as large a part, unless ``how`` is "random"."""
    groups = [rows] if how == "random" else [rows[labels[rows] == label] for label in np.unique(labels[rows])]
    parts = []
    for group in groups:
        ends = np.round(np.cumsum(shares)[:-1] * len(group)).astype(int)
        parts.append(np.split(rng.permutation(group), ends))
    return [_joined(*each) for each in zip(*parts, strict=True)]


def _some(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    if count > len(rows):
        raise InvalidValueError(f"{count} images of a class are wanted, there are {len(rows)}")
    return rng.permutation(rows)[:count]


def _two(rows: Rows, sizes: tuple[int, int], rng: np.random.Generator) -> tuple[Rows, Rows]:
    drawn = _some(rows, sum(sizes), rng)
    return drawn[: sizes[0]], drawn[sizes[0] :]


def _joined(*parts: Rows) -> Rows:
    return np.sort(np.concatenate(parts))
