"""The wrong labels with the highest price, for which SVM-perf adds a constraint.

The price of labels that differ from the true ones in the set F is loss(F) - sum over F of y_i f_i / n, y_i = -1 or 1.
The loss depends only on the numbers of positives a and of negatives b in F. For fixed a and b, the price is highest for
the a positives with the lowest scores and the b negatives with the highest scores. Sorted prefix sums give it for every
(a, b) (Joachims 2005).
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

#: Number of contingency tables that are evaluated at a time: 8 MB for each of a few intermediate arrays.
BLOCK = 2**20
#: Number of values of a for which it is tested whether the loss is concave in b.
PROBED = 256


@dataclass(frozen=True)
class Violation:
    """A loss and the shares of the samples in it; its price under scores f is ``loss - shares @ f``."""

    loss: float
    shares: Array


class Violations(Protocol):
    """Finds the violation with the highest price."""

    def worst(self, scores: Array) -> Violation:
        """Return the violation with the highest price under these scores."""


class WorstTable:
    """The most violated contingency table of a metric of counts; some labels must be positive.

    If the loss is concave in b for every a, as for accuracy, F-beta and Jaccard, the price is too, and a binary search
    for all a at once finds the best b of each: O(n log n). This is tested for up to 256 values of a and every b.
    Otherwise all tables are evaluated, in O(positives x negatives) time and in blocks of bounded memory.
    """

    def __init__(self, metric: Metric, positive: NDArray[np.bool_]) -> None:
        self.metric = metric
        self.positive, self.negative = np.flatnonzero(positive), np.flatnonzero(~positive)
        self.n = len(positive)
        self.concave = self._is_concave()

    def losses(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> Array:
        """Return the loss of a wrong positives and b wrong negatives."""
        a, b = np.broadcast_arrays(a, b)
        wrong, false = (torch.from_numpy(number.astype(np.float64)).unsqueeze(-1) for number in (a, b))
        value = self.metric(Counts(len(self.positive) - wrong, false, wrong, len(self.negative) - false))
        values: Array = value.reshape(a.shape).numpy()
        return values if self.metric.minimize else 1.0 - values

    def _is_concave(self) -> bool:
        b = np.arange(len(self.negative) + 1)
        probed = np.unique(np.linspace(0, len(self.positive), PROBED).astype(np.int64))
        for part in np.array_split(probed, max(1, len(probed) * len(b) // BLOCK)):
            bend = np.diff(self.losses(part[:, None], b), n=2, axis=1)
            if bend.size and bend.max() > 1e-12:
                return False
        return True

    def worst(self, scores: Array) -> Violation:
        """Return the violation with the highest price under these scores."""
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
        best, best_table = -np.inf, (0, 0)
        for start in range(0, len(gain_a), rows):
            a = np.arange(start, min(start + rows, len(gain_a)))[:, None]
            price = self.losses(a, b) + gain_a[a] + gain_b
            index = int(np.argmax(price))
            if price.flat[index] > best:
                best, best_table = float(price.flat[index]), (start + index // len(b), index % len(b))
        return best_table


class WorstPairs:
    """The most violated order of pairs, for the area under the ROC curve: O(n log n).

    The loss is the share of pairs in the wrong order, and each pair is chosen independently: a wrong order raises the
    price if the positive's score is not above the negative's by 1. The highest price is the mean over pairs of
    max(0, 1 - (f+ - f-)).
    """

    def __init__(self, positive: NDArray[np.bool_]) -> None:
        self.positive, self.negative = np.flatnonzero(positive), np.flatnonzero(~positive)

    def worst(self, scores: Array) -> Violation:
        """Return the violation with the highest price under these scores."""
        pairs = len(self.positive) * len(self.negative)
        high, low = scores[self.positive], scores[self.negative]
        wrong = len(low) - np.searchsorted(np.sort(low), high - 1.0, side="right")
        shares = np.zeros(len(scores))
        shares[self.positive] = wrong / pairs
        shares[self.negative] = -np.searchsorted(np.sort(high), low + 1.0, side="left") / pairs
        return Violation(float(wrong.sum()) / pairs, shares)


def _prefix_sums(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])
