"""Numbers on one scale, for a network: centred at the median, divided by the spread, cut off smoothly.

metricfit.data.Preparation, the studies' protocol, cuts hard at five deviations; here far values keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.tabular.encoding.columns import Arrays, Floats

LARGEST = 1e15
#: What very large values are clipped to.
CLIP = 3.0
HUGE = np.finfo(np.float64).max / 4  # the difference of two larger numbers may be infinite


class Scaling:
    r"""Robust scaling and a smooth clip: z = (x - median) / (q75 - q25), then :math:`z / \sqrt{1 + (z/3)^2}`.

    Holzmüller et al. 2024, "Better by Default" (RealMLP). Where the quartiles agree, half the range takes their
    place. A missing value becomes 0, the median, and a column that had any in training is followed by one that tells
    where. Columns that are constant in training are dropped. Columns of one block, as the directions of a projection
    are, share the largest spread among them, for there the small ones are noise.

    >>> scaling = Scaling().fit(np.array([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0]]))
    >>> scaling.transform(np.array([[1.0, 7.0], [np.nan, 8.0], [1e9, 9.0]])).tolist()
    [[0.0], [0.0], [3.0]]
    """

    def __init__(self) -> None:
        self.centre = np.zeros(0)
        self.spread = np.zeros(0)  # 0 for a dropped column
        self.told: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # where missing values have a column of their own

    @property
    def width(self) -> int:
        """How many columns come out."""
        return int((self.spread > 0).sum() + self.told.sum())

    def fit(self, x: Floats, blocks: Sequence[slice] = ()) -> Scaling:
        """Learn medians, spreads and where values are missing."""
        missing = np.isnan(x)
        self.told = np.asarray(missing.any(0) & ~missing.all(0))
        self.centre, self.spread = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for at in range(x.shape[1]):
            there = np.clip(x[~missing[:, at], at], -HUGE, HUGE)
            if len(there) and there.min() < there.max():
                low, self.centre[at], high = np.quantile(there, [0.25, 0.5, 0.75])
                self.spread[at] = high - low if high > low else (there.max() - there.min()) / 2
        for block in blocks:
            mine = self.spread[block]
            self.spread[block] = np.where(mine > 0, mine.max(initial=0.0), 0.0)
        return self

    def transform(self, x: Floats) -> NDArray[np.float32]:
        """The scaled columns, then those that tell where values are missing."""
        kept = self.spread > 0
        with np.errstate(over="ignore"):
            z = np.clip((x[:, kept] - self.centre[kept]) / self.spread[kept], -LARGEST, LARGEST)
        z /= np.sqrt(1.0 + np.square(z / CLIP))  # no overflow, because LARGEST squared is finite
        there = np.isnan(x)
        z[there[:, kept]] = 0.0
        return np.concatenate([z, there[:, self.told]], axis=1, dtype=np.float32)

    def arrays(self) -> Arrays:
        """What was learned."""
        return {"centre": self.centre, "spread": self.spread, "told": self.told}

    def restore(self, arrays: Arrays) -> None:
        """The inverse of ``arrays``."""
        self.centre, self.spread, self.told = arrays["centre"], arrays["spread"], arrays["told"].astype(bool)


class ColumnScaling:
    """The scaling of one column of a table, and where its encoded columns lie among all of them.

    Args:
        scaling: The scaling of the whole table.
        columns: The columns before scaling that belong to the column of the table.

    Attributes:
        scaling: The scaling of these columns alone.
        kept: Which of them are not dropped.
        places: Where these lie among the encoded columns.
        flag_places: Where the columns lie that tell where values are missing.
        flags: For each column that is not dropped, where that column lies; -1 if there is none.
    """

    def __init__(self, scaling: Scaling, columns: slice) -> None:
        self.scaling = Scaling()
        self.scaling.restore({name: array[columns] for name, array in scaling.arrays().items()})
        kept = scaling.spread > 0
        place = np.cumsum(kept) - 1
        flag = int(kept.sum()) + np.cumsum(scaling.told) - 1
        self.kept: NDArray[np.bool_] = kept[columns]
        self.places: NDArray[np.int64] = place[columns][self.kept]
        self.flag_places: NDArray[np.int64] = flag[columns][scaling.told[columns]]
        self.flags: NDArray[np.int64] = np.where(scaling.told, flag, -1)[columns][self.kept]


def put_columns(out: NDArray[np.float32], places: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Write columns to their places, those that lie side by side at once, which is much faster."""
    first = 0
    for end in [*(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]:
        if end > first:
            out[:, places[first] : places[first] + end - first] = values[:, first:end]
        first = end
