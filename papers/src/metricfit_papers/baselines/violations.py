"""The labels that a score function gets wrong at the highest price: what SVM-perf adds a constraint for.

Of labels that differ from the true ones in the set F the price is loss(F) - sum over F of y_i f_i / n, y being -1 or 1.
How many positives a and negatives b are in F settles the loss; given a and b, the price is highest for the a positives
of the lowest scores and the b negatives of the highest. Sorted prefix sums give it for every (a, b) (Joachims 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.core.counts import Counts
from metricfit.metrics.metric import Metric

Array = NDArray[np.float64]

#: Tables evaluated at a time: 8 MB each for a handful of intermediate arrays.
BLOCK = 2**20
#: Numbers of wrong positives at which a metric's loss is probed for being concave in the wrong negatives.
PROBED = 256


@dataclass(frozen=True)
class Violation:
    """A loss and the samples' shares in it: its price under scores f is ``loss - shares @ f``."""

    loss: float
    shares: Array


class Violations(Protocol):
    """Finds the highest price under given scores."""

    def worst(self, scores: Array) -> Violation:
        """The violation of the highest price."""


class WorstTable:
    """The most violated contingency table of a metric of counts, for labels of which some are positive.

    Where the loss is concave in b for every a, as for accuracy, F-beta and Jaccard, so is the price, and a binary
    search for all a at once finds each best b: O(n log n). Whether it is, is probed at up to 256 values of a and every
    b. Else every table is looked at, O(positives x negatives) time in blocks of bounded memory.
    """

    def __init__(self, metric: Metric, positive: NDArray[np.bool_]) -> None:
        self.metric = metric
        self.positive, self.negative = np.flatnonzero(positive), np.flatnonzero(~positive)
        self.n = len(positive)
        self.concave = self._is_concave()

    def losses(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> Array:
        """The loss of a wrong positives and b wrong negatives."""
        a, b = np.broadcast_arrays(a, b)
        wrong, false = (torch.from_numpy(each.astype(np.float64)).unsqueeze(-1) for each in (a, b))
        value = self.metric(Counts(len(self.positive) - wrong, false, wrong, len(self.negative) - false))
        found: Array = value.reshape(a.shape).numpy()
        return found if self.metric.minimize else 1.0 - found

    def _is_concave(self) -> bool:
        b = np.arange(len(self.negative) + 1)
        probed = np.unique(np.linspace(0, len(self.positive), PROBED).astype(np.int64))
        for each in np.array_split(probed, max(1, len(probed) * len(b) // BLOCK)):
            bend = np.diff(self.losses(each[:, None], b), n=2, axis=1)
            if bend.size and bend.max() > 1e-12:
                return False
        return True

    def worst(self, scores: Array) -> Violation:
        """The violation of the highest price."""
        positive = self.positive[np.argsort(scores[self.positive], kind="stable")]
        negative = self.negative[np.argsort(-scores[self.negative], kind="stable")]
        gain_a = _prefix_sums(-scores[positive] / self.n)
        gain_b = _prefix_sums(scores[negative] / self.n)
        a, b = (self._by_search if self.concave else self._by_all)(gain_a, gain_b)
        shares = np.zeros(self.n)
        shares[positive[:a]] = 1.0 / self.n
        shares[negative[:b]] = -1.0 / self.n
        return Violation(float(self.losses(np.array([a]), np.array([b]))[0]), shares)

    def _by_search(self, gain_a: Array, gain_b: Array) -> tuple[int, int]:
        a = np.arange(len(gain_a))
        low, high = np.zeros_like(a), np.full_like(a, len(gain_b) - 1)
        while (low < high).any():  # the price rises up to the best b, which lies in low..high
            middle = (low + high) // 2
            after = np.minimum(middle + 1, len(gain_b) - 1)
            rises = self.losses(a, after) + gain_b[after] > self.losses(a, middle) + gain_b[middle]
            low, high = np.where(rises & (low < high), after, low), np.where(rises, high, middle)
        best = int(np.argmax(self.losses(a, low) + gain_a + gain_b[low]))
        return best, int(low[best])

    def _by_all(self, gain_a: Array, gain_b: Array) -> tuple[int, int]:
        b = np.arange(len(gain_b))
        rows = max(1, BLOCK // len(b))
        best, where = -np.inf, (0, 0)
        for start in range(0, len(gain_a), rows):
            a = np.arange(start, min(start + rows, len(gain_a)))[:, None]
            price = self.losses(a, b) + gain_a[a] + gain_b
            at = int(np.argmax(price))
            if price.flat[at] > best:
                best, where = float(price.flat[at]), (start + at // len(b), at % len(b))
        return where


class WorstPairs:
    """The most violated order of pairs, for the area under the ROC curve: O(n log n).

    The loss is the share of pairs in the wrong order, and each pair is chosen alone: it is wrong at a profit where the
    positive's score is not above the negative's by 1. The highest price is the pairs' mean of max(0, 1 - (f+ - f-)).
    """

    def __init__(self, positive: NDArray[np.bool_]) -> None:
        self.positive, self.negative = np.flatnonzero(positive), np.flatnonzero(~positive)

    def worst(self, scores: Array) -> Violation:
        """The violation of the highest price."""
        pairs = len(self.positive) * len(self.negative)
        high, low = scores[self.positive], scores[self.negative]
        wrong = len(low) - np.searchsorted(np.sort(low), high - 1.0, side="right")
        shares = np.zeros(len(scores))
        shares[self.positive] = wrong / pairs
        shares[self.negative] = -np.searchsorted(np.sort(high), low + 1.0, side="left") / pairs
        return Violation(float(wrong.sum()) / pairs, shares)


def _prefix_sums(given: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(given)])
