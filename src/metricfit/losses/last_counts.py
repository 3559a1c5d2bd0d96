"""LastCounts: the counts of the last batch of a loss."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.ordinary_batch import FourNumbers


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
