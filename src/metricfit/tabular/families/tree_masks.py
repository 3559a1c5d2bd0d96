r"""Fast predictions of many small trees, with bits in place of branches (QuickScorer, Lucchese et al. 2015).

The trees of a boosted model repeat the same splits: "column 3 is at most 0.5" is evaluated once per row, not once per
tree. The leaves of a tree are the bits of a number, from left to right. Every split that is answered with no clears the
bits of the leaves on its left side; the lowest bit that remains is the leaf of the row.

Cost: one operation per row and split, on whole arrays. Measured: 4 times as fast as LightGBM with 15 leaves per tree,
1.7 times as fast with 31.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.tabular.families.family import Floats, Integers

#: Larger trees are left to LightGBM.
MOST_LEAVES = 32
ROWS_AT_A_TIME = 1024
TREES_AT_A_TIME = 64
#: Times a power of two, the upper five bits of the product tell which power it is (a de Bruijn sequence).
DE_BRUIJN = np.uint32(0x077CB531)
SLOTS = 32


@dataclass(frozen=True)
class TreeMasks:
    """The trees of one logit.

    Attributes:
        feature: The column of each distinct split; they are sorted by it.
        threshold: A split is answered with yes where the column is at most this.
        splits: ``(splits per tree, trees)``; the place of each tree's splits among the distinct ones.
        keep: ``(splits per tree, trees)``; the bits of the leaves that a no leaves over.
        values: ``(trees, 32)``; the value of each leaf, in the order of the de Bruijn sequence.
    """

    feature: Integers
    threshold: NDArray[np.float32]
    splits: Integers
    keep: NDArray[Any]
    values: Floats

    @classmethod
    def build(
        cls,
        leaves: Integers,
        feature: Integers,
        threshold: NDArray[np.float32],
        left: Integers,
        right: Integers,
        value: Floats,
    ) -> TreeMasks:
        """Prepare trees that were padded to one size.

        Args:
            leaves: ``(trees,)``; the number of leaves.
            feature: ``(trees, splits)``; anything where a tree has fewer splits.
            threshold: ``(trees, splits)``.
            left: ``(trees, splits)``; the number of a later split that follows a yes, or ``~leaf``.
            right: ``(trees, splits)``; the same for a no.
            value: ``(trees, splits + 1)``; the value of each leaf.
        """
        trees, splits = feature.shape
        clear, position = _left_sides(leaves, left, right)
        kind = np.dtype(next(name for name, bits in _TYPES.items() if bits > splits))
        keep = np.invert(clear.astype(np.uint64)).astype(kind)
        slot = (np.left_shift(np.uint32(1), position.astype(np.uint32)) * DE_BRUIJN) >> np.uint32(27)
        values = np.zeros((trees, SLOTS))
        tree = np.repeat(np.arange(trees), leaves)
        leaf = np.arange(len(tree)) - np.repeat(np.cumsum(leaves) - leaves, leaves)
        values[tree, slot[tree, leaf]] = value[tree, leaf]
        pairs = np.stack([feature.ravel().astype(np.float64), threshold.ravel().astype(np.float64)], axis=1)
        distinct, place = np.unique(pairs, axis=0, return_inverse=True)
        return cls(
            distinct[:, 0].astype(np.int64),
            distinct[:, 1].astype(np.float32),
            place.reshape(trees, splits).T.copy(),
            keep.T.copy(),
            values,
        )

    def sums(self, x: NDArray[np.float32]) -> Floats:
        """Return the sum of the trees for each row."""
        result = np.zeros(len(x))
        for first in range(0, len(x), ROWS_AT_A_TIME):
            answers = self._answers(np.ascontiguousarray(x[first : first + ROWS_AT_A_TIME].T))
            for tree in range(0, len(self.values), TREES_AT_A_TIME):
                result[first : first + ROWS_AT_A_TIME] += self._sum_of_trees(answers, tree, tree + TREES_AT_A_TIME)
        return result

    def _answers(self, columns: NDArray[np.float32]) -> NDArray[Any]:
        """Return the answer to every distinct split, ``(splits, rows)``: all bits for yes, none for no."""
        answers = np.empty((len(self.feature), columns.shape[1]), dtype=self.keep.dtype)
        used, starts = np.unique(self.feature, return_index=True)
        for column, start, end in zip(used, starts, np.append(starts, len(self.feature))[1:], strict=True):
            answers[start:end] = columns[column] <= self.threshold[start:end, None]
        return np.negative(answers, out=answers)

    def _sum_of_trees(self, answers: NDArray[Any], first: int, end: int) -> Floats:
        values = self.values[first:end]
        remaining = np.full((len(values), answers.shape[1]), np.iinfo(self.keep.dtype).max, dtype=self.keep.dtype)
        after = np.empty_like(remaining)
        for split, keep in zip(self.splits[:, first:end], self.keep[:, first:end], strict=True):
            answers.take(split, axis=0, out=after, mode="clip")
            after |= keep[:, None]
            remaining &= after
        remaining &= np.negative(remaining, out=after)  # the lowest bit
        slot = remaining.astype(np.uint32)
        slot *= DE_BRUIJN
        slot >>= np.uint32(27)
        index = slot + SLOTS * np.arange(len(values), dtype=np.int64)[:, None]
        return np.asarray(values.ravel().take(index).sum(axis=0))


#: Types of numbers with a bit for each leaf.
_TYPES = {"uint8": 8, "uint16": 16, "uint32": 32}


def _left_sides(leaves: Integers, left: Integers, right: Integers) -> tuple[Integers, Integers]:
    """Return the bits of the leaves on the left side of each split, and the position of each leaf from the left."""
    trees, splits = left.shape
    rows = np.arange(trees)
    size = np.ones((trees, splits), dtype=np.int64)

    def size_of(child: Integers) -> Integers:
        return np.where(child < 0, 1, size[rows, np.maximum(child, 0)])

    for split in reversed(range(splits)):  # a split comes before those that follow it
        size[:, split] = size_of(left[:, split]) + size_of(right[:, split])
    clear, first = np.zeros((trees, splits), dtype=np.int64), np.zeros((trees, splits), dtype=np.int64)
    position = np.zeros((trees, splits + 1), dtype=np.int64)
    for split in range(splits):
        exists = split < leaves - 1
        start, on_left = first[:, split], size_of(left[:, split])
        clear[:, split] = np.where(exists, (np.left_shift(1, np.where(exists, on_left, 0)) - 1) << start, 0)
        for child, place in ((left[:, split], start), (right[:, split], start + on_left)):
            inner, leaf = exists & (child >= 0), exists & (child < 0)
            first[rows[inner], child[inner]] = place[inner]
            position[rows[leaf], ~child[leaf]] = place[leaf]
    return clear, position
