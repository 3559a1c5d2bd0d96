"""Image sets as the tables use them: which images are used, which are positive, and what each trial trains on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidValueError
from metricfit_papers.images import Images, ImageSet, caltech256, cifar10, fashion_mnist
from metricfit_papers.images.image_set import Labels, Pixels
from metricfit_papers.specs.table_spec import ProtocolSpec

Rows = NDArray[np.int64]


class Drawn(NamedTuple):
    """The positions of one trial's images among the images of its task; ``every_test`` contains ``test`` and more."""

    train: Rows
    validation: Rows
    test: Rows
    every_test: Rows


LOADERS: dict[str, Callable[[str], ImageSet]] = {
    "cifar10": cifar10,
    "fashion_mnist": fashion_mnist,
    "caltech256": partial(caltech256, clutter=False),
}


@lru_cache(maxsize=1)
def read(name: str, folder: str) -> ImageSet:
    """Read an image set; the one that was read last is kept in memory."""
    return LOADERS[name](folder)


class ImageTask(ABC):
    """An image set, and how trials draw from it; ``origin`` is the name of the set in LOADERS."""

    origin: str

    @abstractmethod
    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """Return all images that trials draw from, training images first, and their labels."""

    @abstractmethod
    def trials(self, folder: str, number: int, how: ProtocolSpec) -> Iterator[Drawn]:
        """Draw the images of each trial."""

    def content(self, folder: str) -> str:
        """Describe how much of the set is present, because results from a part of it differ."""
        return f"{len(read(self.origin, folder).train)} training images"

    def part(self, folder: str) -> str:
        """Describe how many of the published training images are present; empty if all are."""
        image_set = read(self.origin, folder)
        return "" if image_set.whole else f"{len(image_set.train):,} of {image_set.published:,} training images"


@dataclass(frozen=True)
class CifarPair(ImageTask):
    """Two classes of CIFAR-10 with few images and even fewer positives, for the tables of Sangalli et al. 2021.

    Each trial draws ``negatives`` + ``watched`` negatives from the training images, for training and for validation,
    and positives in the proportion 1 to ``ratio``. All trials are tested on all test images of the negative class and
    on one draw of positives in the same proportion; ``every_test`` has all positives (their Appendix D). Another
    ``draw`` has other images for training, validation and, of the positives, for test.
    """

    negative: int
    positive: int
    ratio: int
    negatives: int = 300
    watched: int = 100
    draw: int = 0

    origin: ClassVar[str] = "cifar10"  # type: ignore[misc]

    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """Return the images of both classes, training images first, and which are positive."""
        parts = self._parts(folder)
        pixels = np.concatenate([part.pixels[rows] for part, rows in parts])
        labels = np.concatenate([part.labels[rows] for part, rows in parts])
        return pixels, (labels == self.positive).astype(np.int64)

    def trials(self, folder: str, number: int, how: ProtocolSpec) -> Iterator[Drawn]:
        """Draw the images of each trial, in the same way under all protocols."""
        _, labels = self.images(folder)
        first_test = len(self._parts(folder)[0][1])
        places = np.arange(len(labels))
        train_by_class = [places[(labels == label) & (places < first_test)] for label in (0, 1)]
        test_by_class = [places[(labels == label) & (places >= first_test)] for label in (0, 1)]
        few = _some(test_by_class[1], self._positives(len(test_by_class[0])), np.random.default_rng(self.draw))
        test, every_test = _joined(test_by_class[0], few), _joined(*test_by_class)
        for trial in range(number):
            rng = np.random.default_rng([1, trial, *([self.draw] if self.draw else [])])
            sizes = (self.negatives, self.watched), (self._positives(self.negatives), self._positives(self.watched))
            draws = [_two(rows, class_sizes, rng) for rows, class_sizes in zip(train_by_class, sizes, strict=True)]
            train, validation = zip(*draws, strict=True)
            yield Drawn(_joined(*train), _joined(*validation), test, every_test)

    def _positives(self, negatives: int) -> int:
        """Return the number of positives for this many negatives."""
        return round(negatives / self.ratio)

    def _parts(self, folder: str) -> list[tuple[Images, Rows]]:
        image_set = read(self.origin, folder)
        wanted = (self.negative, self.positive)
        return [(part, np.flatnonzero(np.isin(part.labels, wanted))) for part in (image_set.train, image_set.test)]


@dataclass(frozen=True)
class WholeSet(ImageTask):
    """All images of a set, split as the protocol says.

    The label is 1 for the classes in ``positive`` and 0 for the others; without ``positive`` it is the class number.
    The published training and test images together are split by the protocol's fractions. With ``published_test`` the
    published test images are the test images, and the others are split into training and validation images.
    """

    origin: str
    positive: Sequence[int] = ()

    def images(self, folder: str) -> tuple[Pixels, Labels]:
        """Return all images, training images first, and their labels."""
        image_set = read(self.origin, folder)
        labels = np.concatenate([image_set.train.labels, image_set.test.labels])
        if self.positive:
            labels = np.isin(labels, self.positive).astype(np.int64)
        return np.concatenate([image_set.train.pixels, image_set.test.pixels]), labels

    def trials(self, folder: str, number: int, how: ProtocolSpec) -> Iterator[Drawn]:
        """Split the images for each trial, or once for all trials if only weights differ."""
        if how.varied == "folds" or min(how.fractions) == 0:
            raise InvalidValueError("images are split into parts for training, validation and test, not into folds")
        image_set = read(self.origin, folder)
        labels = self.images(folder)[1]
        first, places = len(image_set.train), np.arange(len(labels))
        for trial in range(number):
            rng = np.random.default_rng([2, trial if how.varied == "splits" else 0])
            if how.published_test:
                share = how.fractions[0] / (how.fractions[0] + how.fractions[1])
                train, validation = _cut(places[:first], labels, (share, 1 - share), how.split, rng)
                test = places[first:]
            else:
                train, validation, test = _cut(places, labels, how.fractions, how.split, rng)
            yield Drawn(train, validation, test, test)


def _cut(rows: Rows, labels: Labels, shares: Sequence[float], how: str, rng: np.random.Generator) -> list[Rows]:
    """Split rows at random, with the same shares of each label unless ``how`` is "random"."""
    groups = [rows] if how == "random" else [rows[labels[rows] == label] for label in np.unique(labels[rows])]
    parts = []
    for group in groups:
        ends = np.round(np.cumsum(shares)[:-1] * len(group)).astype(int)
        parts.append(np.split(rng.permutation(group), ends))
    return [_joined(*part) for part in zip(*parts, strict=True)]


def _some(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    if count > len(rows):
        raise InvalidValueError(f"{count} images of a class are needed, but there are only {len(rows)}")
    return rng.permutation(rows)[:count]


def _two(rows: Rows, sizes: tuple[int, int], rng: np.random.Generator) -> tuple[Rows, Rows]:
    drawn = _some(rows, sum(sizes), rng)
    return drawn[: sizes[0]], drawn[sizes[0] :]


def _joined(*parts: Rows) -> Rows:
    return np.sort(np.concatenate(parts))
