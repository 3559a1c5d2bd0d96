"""From a table of any columns to the numbers a network takes, all learned from the training rows.

metricfit.data.Preparation, the studies' protocol, cuts hard at five deviations; here far values keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.decomposition import TruncatedSVD

from metricfit.errors import InvalidValueError
from metricfit.tabular.encoding.columns import (
    KINDS,
    Arrays,
    Category,
    Column,
    Date,
    Floats,
    NotANumber,
    Number,
    Text,
    as_text,
    plain_column,
)

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


WIDE = 1024
SPARSE_COMPONENTS = 128
OF_SKRUB = {"numeric": Number, "datetime": Date, "low_cardinality": Category, "high_cardinality": Text}


class TableEncoder:
    """Numbers, categories, dates and text as columns of one scale.

    Takes a float array (NaN is missing), a sparse matrix or a pandas DataFrame. Of a DataFrame that has more than
    numbers, skrub's TableVectorizer says what each column is. A sparse matrix of more than 1,024 columns is projected
    on its 128 main directions.

    >>> encoder = TableEncoder()
    >>> encoder.fit(pd.DataFrame({"size": [1.0, 2.0, None], "kind": ["a", "b", "a"]})).shape
    (3, 3)
    >>> encoder.transform(pd.DataFrame({"size": [1.5], "kind": ["unseen"]})).tolist()
    [[0.0, 0.0, 0.0]]
    """

    def __init__(self) -> None:
        self.columns: list[Column | None] | None = None  # by position; None: nothing is known of it
        self.directions: NDArray[np.float32] | None = None
        self.scaling = Scaling()

    @property
    def features(self) -> int:
        """How many columns the training rows had."""
        if self.columns is not None:
            return len(self.columns)
        return len(self.scaling.centre) if self.directions is None else self.directions.shape[1]

    def fit(self, X: Any) -> NDArray[np.float32]:
        """Learn from the training rows, and give them as numbers."""
        self.columns, self.directions = None, None
        if isinstance(X, pd.DataFrame) and not _all_numbers(X):
            self.columns = _columns_of(X)
        elif issparse(X) and X.shape[1] > WIDE:
            size = min(SPARSE_COMPONENTS, X.shape[0] - 1)
            self.directions = TruncatedSVD(size, random_state=0).fit(X).components_.astype(np.float32)
        parts = self._parts(X)
        self.scaling.fit(np.concatenate(parts, axis=1), self._blocks(parts))
        if not self.scaling.width:
            raise InvalidValueError(
                "every column is constant or empty in the training rows, so there is nothing to learn from; add "
                "columns that differ between rows"
            )
        return self.scaling.transform(np.concatenate(parts, axis=1))

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Rows as numbers."""
        if self.columns is not None:
            return self._transform_columns(X if isinstance(X, pd.DataFrame) else pd.DataFrame(X), self.columns)
        return self.scaling.transform(np.concatenate(self._parts(X), axis=1))

    def count_unseen(self, X: Any) -> dict[str, int]:
        """Count the rows with a category that the training rows did not have.

        Args:
            X: Rows, in the form of the training rows.

        Returns:
            The number of rows by the name of the column; columns without such rows are left out.
        """
        counts: dict[str, int] = {}
        for at, column in enumerate(self.columns or []) if isinstance(X, pd.DataFrame) else ():
            known = column.categories if isinstance(column, (Category, Text)) else []
            if known:
                entries = plain_column(X.iloc[:, at]).value_counts()
                texts = pd.Series(as_text(pd.Series(entries.index, dtype=object)), dtype=object)
                unseen = int(entries.to_numpy()[~texts.isin(known).to_numpy()].sum())
                counts |= {str(X.columns[at]): unseen} if unseen else {}
        return counts

    def _transform_columns(self, frame: pd.DataFrame, columns: Sequence[Column | None]) -> NDArray[np.float32]:
        """Rows as numbers, one column of the table at a time: what ``fit`` gives, in less time and memory."""
        out = np.empty((len(frame), self.scaling.width), dtype=np.float32)
        start = 0
        for place, raw in _distinct_numbers_of(frame, columns):
            scale = ColumnScaling(self.scaling, slice(start, start + raw.shape[1]))
            scaled = scale.scaling.transform(raw)
            encoded = scaled if place is None else scaled[place]
            put_columns(out, np.concatenate([scale.places, scale.flag_places]), encoded)
            start += raw.shape[1]
        return out

    def _parts(self, X: Any) -> list[Floats]:
        """Before scaling, NaN where missing; of a DataFrame with more than numbers, a part for each known column."""
        if self.directions is not None:
            parts = [np.asarray(X @ self.directions.T, dtype=np.float64)]
        elif issparse(X):
            parts = [np.asarray(X.toarray(), dtype=np.float64)]
        elif self.columns is not None:
            frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
            parts = _numbers_of(frame, self.columns)
        else:
            known = isinstance(X, pd.DataFrame)
            parts = _numbers_of(X, [Number()] * X.shape[1]) if known else [np.asarray(X, dtype=np.float64)]
        if any(np.isinf(part).any() for part in parts):
            raise InvalidValueError("Input X contains infinity; replace infinite values, by NaN if they are unknown")
        return parts or [np.zeros((len(X), 0))]

    def _blocks(self, parts: list[Floats]) -> list[slice]:
        """Where the columns lie that are of one scale."""
        if self.directions is not None:
            return [slice(None)]
        known = [column for column in self.columns or [] if column is not None]
        ends = np.cumsum([part.shape[1] for part in parts])
        pairs = zip(known, parts, ends, strict=False)
        return [slice(end - part.shape[1], end) for column, part, end in pairs if column.one_block]

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        if self.columns is None:
            return {"columns": None}
        return {"columns": [None if each is None else {"kind": each.kind, **each.state()} for each in self.columns]}

    def arrays(self) -> Arrays:
        """What was learned, the large part, by names."""
        found = {f"scaling.{name}": array for name, array in self.scaling.arrays().items()}
        if self.directions is not None:
            found["directions"] = self.directions
        for at, column in enumerate(self.columns or []):
            if column is not None:
                found |= {f"column.{at}.{name}": array for name, array in column.arrays().items()}
        return found

    @classmethod
    def restored(cls, state: dict[str, Any], arrays: Arrays) -> TableEncoder:
        """The encoder that ``state`` and ``arrays`` described."""
        made = cls()
        made.scaling.restore(_under("scaling.", arrays))
        made.directions = arrays.get("directions")
        if state["columns"] is not None:
            made.columns = []
            for at, each in enumerate(state["columns"]):
                known = None if each is None else KINDS[each["kind"]]()
                made.columns.append(None if known is None else known.restore(each, _under(f"column.{at}.", arrays)))
        return made


def _all_numbers(frame: Any) -> bool:
    return all(pd.api.types.is_numeric_dtype(each) or pd.api.types.is_bool_dtype(each) for each in frame.dtypes)


def _numbers_of(frame: Any, columns: Sequence[Column | None]) -> list[Floats]:
    """A part for each column of which something is known; all columns with an entry that is no number are named."""
    return [raw if place is None else raw[place] for place, raw in _distinct_numbers_of(frame, columns)]


def _distinct_numbers_of(frame: Any, columns: Sequence[Column | None]) -> list[tuple[NDArray[np.int64] | None, Floats]]:
    """For each known column the numbers of its distinct entries, and each row's place among them; None for all rows."""
    parts, unread = [], []
    for at, column in enumerate(columns):
        try:
            if column is not None:
                parts.append(column.distinct(frame.iloc[:, at]))
        except NotANumber as error:
            unread.append(f"{frame.columns[at]} ({error})")
    if unread:
        raise InvalidValueError(
            f"columns that held numbers in fit hold something else now: {', '.join(unread)}. Write them as numbers, or "
            "leave an entry empty where it is not known"
        )
    if any(np.isinf(raw).any() for _, raw in parts):
        raise InvalidValueError("Input X contains infinity; replace infinite values, by NaN if they are unknown")
    return parts


def _columns_of(frame: Any) -> list[Column | None]:
    """What each column is, by skrub, and what there is to learn of it; None for one without an entry."""
    from skrub import TableVectorizer  # slow to import, and not needed for numbers

    plain = pd.DataFrame({str(at): plain_column(frame.iloc[:, at]) for at in range(frame.shape[1])})
    kinds = dict.fromkeys(("numeric", "datetime", "low_cardinality", "high_cardinality"), "passthrough")
    with np.errstate(over="ignore"):  # skrub tries float32; what it is for is the kinds alone
        found = TableVectorizer(**kinds).fit(plain)
    columns: list[Column | None] = [None] * frame.shape[1]
    for kind, names in found.kind_to_columns_.items():
        for name in names:
            made: Column = OF_SKRUB[kind]()
            if isinstance(made, Date):
                steps = found.all_processing_steps_[name]
                made.format = next((step.format_ for step in steps if getattr(step, "format_", None)), None)
            columns[int(name)] = made.fit(plain[name])
    return columns


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
