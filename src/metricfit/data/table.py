"""The class of a dataset for binary classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Table:
    """A dataset for binary classification.

    Args:
        name: Name of the dataset.
        X: A pandas DataFrame of the features.
        y: Labels 0 and 1.
        positive: What the label 1 means.
        source: Where the dataset comes from.
        groups: Rows with the same group belong on one side of a split; None if there are no groups.
        published_split: "train" or "test" for each row, if the publishers divide the dataset; otherwise None.

    Example:
        >>> import pandas as pd
        >>> Table("example", pd.DataFrame({"a": [1.0, 2.0]}), np.array([0, 1]), "a large value", "this page")
        Table('example', 2 x 1, 50.00% positive: a large value)
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    positive: str
    source: str
    groups: NDArray[Any] | None = None
    published_split: NDArray[Any] | None = None

    def __repr__(self) -> str:
        """Return the name, the size and the share of positives, without the rows."""
        rows, columns = self.X.shape
        return f"Table({self.name!r}, {rows} x {columns}, {self.y.mean():.2%} positive: {self.positive})"
