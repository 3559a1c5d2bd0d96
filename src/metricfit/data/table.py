"""What a dataset is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Table:
    """A binary classification set.

    ``X`` is a pandas DataFrame of features alone; ``y`` holds 0 and 1, and ``positive`` says what 1 means. Rows with
    the same entry in ``groups`` belong on one side of a split. ``published_split`` holds "train" or "test" for each
    row where the origin divides the set itself.
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    positive: str
    source: str
    groups: NDArray[Any] | None = None
    published_split: NDArray[Any] | None = None

    def __repr__(self) -> str:
        """Name, size and share of positives; never the rows."""
        rows, columns = self.X.shape
        return f"Table({self.name!r}, {rows} x {columns}, {self.y.mean():.2%} positive: {self.positive})"
