"""LastCounts: the counts of the last batch of a loss."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.ordinary_batch import FourNumbers
from metricfit.core.validation import is_false


class LastCounts:
    """The counts of the last batch, without gradient: Counts, or numbers that become Counts when somebody asks.

    Attributes:
        numbers: The counts of an ordinary batch.
        exclusive: Whether its classes are exclusive.
    """

    def __init__(self) -> None:
        self.numbers: FourNumbers | Tensor | None = None
        self.exclusive = True
        self._counts: Counts | None = None

    @property
    def counts(self) -> Counts | None:
        """The counts; None before the first batch."""
        if self.numbers is None:
            return self._counts
        cells = self.numbers if isinstance(self.numbers, Tensor) else torch.tensor(self.numbers, device="cpu")
        return Counts(*cells.reshape(4, -1), exclusive=self.exclusive)

    @counts.setter
    def counts(self, counts: Counts) -> None:
        self.numbers, self._counts = None, counts

    @property
    def exclusive_classes(self) -> int:
        """The number of exclusive classes; 0 for independent ones, and before the first batch."""
        if self.numbers is not None:
            per_class = isinstance(self.numbers, list) and isinstance(self.numbers[0], list)
            return len(self.numbers[0]) if self.exclusive and per_class else 1  # type: ignore[arg-type]
        counts = self._counts
        return 0 if counts is None or not counts.exclusive else counts.tp.shape[-1]

    def lacks_a_class(self, classes: tuple[int, ...] | None = None) -> bool:
        """Return whether none of the classes had both positives and negatives, which explains a gradient of 0."""
        if (counts := self.counts) is None:
            return True
        has_both = (counts.positives > 0) & (counts.negatives > 0)
        return is_false((has_both if classes is None else has_both[..., list(classes)]).any())

    def classes_without_samples(self) -> list[int]:
        """Return the numbers of classes without a true sample; none for a binary problem."""
        counts = self.counts
        if counts is None or counts.tp.shape[-1] == 1:
            return []
        positives = counts.positives
        return (positives.reshape(-1, positives.shape[-1]).sum(0) == 0).nonzero().flatten().tolist()
