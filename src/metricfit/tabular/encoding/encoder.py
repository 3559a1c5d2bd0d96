"""The encoder of a whole table: each column is encoded as numbers, and the numbers are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from metricfit.core.arrays import Booleans, Floats
from metricfit.errors import InvalidValueError
from metricfit.tabular.encoding.columns import (
    Category,
    Column,
    Date,
    NotANumber,
    Number,
    Text,
    as_text,
    plain_column,
)

#: The maximum absolute value before the smooth clip, and after it.
LARGEST, CLIP = 1e15, 3.0
HUGE = np.finfo(np.float64).max / 4  # the difference of two larger numbers may be infinite
#: A sparse matrix with more than 1,024 columns is reduced to 128 columns.
WIDE, SPARSE_COMPONENTS = 1024, 128
OF_SKRUB = {"numeric": Number, "datetime": Date, "low_cardinality": Category, "high_cardinality": Text}


@dataclass
class Scaling:
    r"""Robust scaling with a smooth clip: z = (x - median) / (q75 - q25), then :math:`z / \sqrt{1 + (z/3)^2}`.

    The method is from Holzmüller et al. 2024, "Better by Default" (RealMLP). The clip limits outliers and keeps their
    order.

    - If the quartiles are equal, the column is divided by half its range instead.
    - Missing values become 0, which is the scaled median. If a column has missing values in training, a column of flags
      is added, which is 1 where the value is missing.
    - Columns that are constant in training are dropped.
    - Columns of one block, such as the components of an SVD, are divided by the largest spread in the block. Scaled one
      by one, the small components would become as large as the main ones, and they are mostly noise.

    Attributes:
        centre: The median of each column.
        spread: The divisor of each column; 0 for dropped columns.
        flagged: Whether each column has a column of flags.

    Example:
        >>> scaling = Scaling().fit(np.array([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0]]))
        >>> scaling.transform(np.array([[1.0, 7.0], [np.nan, 8.0], [1e9, 9.0]])).tolist()
        [[0.0], [0.0], [3.0]]
    """

    centre: Floats = field(default_factory=lambda: np.zeros(0))
    spread: Floats = field(default_factory=lambda: np.zeros(0))
    flagged: Booleans = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @property
    def width(self) -> int:
        """The number of scaled columns, including the flags."""
        return int((self.spread > 0).sum() + self.flagged.sum())

    def fit(self, x: Floats, blocks: Sequence[slice] = ()) -> Scaling:
        """Learn medians, spreads and flags from the training rows; each block is a range of columns with one spread."""
        missing = np.isnan(x)
        self.flagged = np.asarray(missing.any(0) & ~missing.all(0))
        self.centre, self.spread = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for at in range(x.shape[1]):
            present = np.clip(x[~missing[:, at], at], -HUGE, HUGE)
            if len(present) and present.min() < present.max():
                low, self.centre[at], high = np.quantile(present, [0.25, 0.5, 0.75])
                self.spread[at] = high - low if high > low else (present.max() - present.min()) / 2
        for block in blocks:
            spread = self.spread[block]
            self.spread[block] = np.where(spread > 0, spread.max(initial=0.0), 0.0)
        return self

    def transform(self, x: Floats) -> NDArray[np.float32]:
        """Return the scaled columns, followed by the flags."""
        kept = self.spread > 0
        with np.errstate(over="ignore"):
            z = np.clip((x[:, kept] - self.centre[kept]) / self.spread[kept], -LARGEST, LARGEST)
        z /= np.sqrt(1.0 + np.square(z / CLIP))  # no overflow, because LARGEST squared is finite
        missing = np.isnan(x)
        z[missing[:, kept]] = 0.0
        return np.concatenate([z, missing[:, self.flagged]], axis=1, dtype=np.float32)


def column_scaling(scaling: Scaling, columns: slice) -> tuple[Scaling, NDArray[np.int64]]:
    """Return the part of a scaling that belongs to one column of the table.

    Args:
        scaling: The scaling of the whole table.
        columns: The range of unscaled columns into which the column was encoded.

    Returns:
        Its scaling, and the positions of its scaled columns and flags in the encoded table.
    """
    kept = scaling.spread > 0
    place, flag = np.cumsum(kept) - 1, int(kept.sum()) + np.cumsum(scaling.flagged) - 1
    part = Scaling(scaling.centre[columns], scaling.spread[columns], scaling.flagged[columns])
    return part, np.concatenate([place[columns][kept[columns]], flag[columns][scaling.flagged[columns]]])


def put_columns(out: NDArray[np.float32], places: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Write columns to their positions in ``out``. Neighbours are written together, which is much faster."""
    first = 0
    for end in [*(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]:
        if end > first:
            out[:, places[first] : places[first] + end - first] = values[:, first:end]
        first = end


@dataclass
class TableEncoder:
    """Encodes numbers, categories, dates and text as scaled columns of numbers.

    The table is an array of floats, in which NaN is a missing value, a sparse matrix, or a pandas DataFrame. skrub's
    TableVectorizer detects the type of each column of a DataFrame, unless all columns are numbers. A sparse matrix with
    more than 1,024 columns is reduced to 128 columns by a truncated SVD.

    Attributes:
        columns: The encoder of each column of a DataFrame, or None for a column without entries. The attribute itself
            is None if all columns are numbers.
        directions: The directions of the SVD of a wide sparse matrix; otherwise None.
        scaling: The scaling of the encoded columns.

    Example:
        >>> encoder = TableEncoder()
        >>> encoder.fit(pd.DataFrame({"size": [1.0, 2.0, None], "kind": ["a", "b", "a"]})).shape
        (3, 3)
        >>> encoder.transform(pd.DataFrame({"size": [1.5], "kind": ["unseen"]})).tolist()
        [[0.0, 0.0, 0.0]]
    """

    columns: list[Column | None] | None = None
    directions: NDArray[np.float32] | None = None
    scaling: Scaling = field(default_factory=Scaling)

    @property
    def features(self) -> int:
        """The number of columns of the table."""
        if self.columns is not None:
            return len(self.columns)
        return len(self.scaling.centre) if self.directions is None else self.directions.shape[1]

    def fit(self, X: Any) -> NDArray[np.float32]:
        """Learn the encoding from the training rows, and return them encoded."""
        self.columns, self.directions = None, None
        if isinstance(X, pd.DataFrame) and not _has_only_numbers(X):
            self.columns = _fit_columns(X)
        elif issparse(X) and X.shape[1] > WIDE:
            from sklearn.decomposition import TruncatedSVD

            size = min(SPARSE_COMPONENTS, X.shape[0] - 1)
            self.directions = TruncatedSVD(size, random_state=0).fit(X).components_.astype(np.float32)
        parts = self._unscaled_parts(X)
        unscaled = np.concatenate(parts, axis=1)
        self.scaling.fit(unscaled, self._blocks(parts))
        if not self.scaling.width:
            raise InvalidValueError(
                "every column is constant or empty in the training rows, so there is nothing to learn from; add "
                "columns that differ between rows"
            )
        return self.scaling.transform(unscaled)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return rows, encoded."""
        if self.columns is None:
            return self.scaling.transform(np.concatenate(self._unscaled_parts(X), axis=1))
        # Columns are scaled one at a time, which takes less time and memory than in fit and gives the same numbers.
        out = np.empty((len(X), self.scaling.width), dtype=np.float32)
        start = 0
        for positions, numbers in _encode_columns(_as_frame(X), self.columns):
            scaling, places = column_scaling(self.scaling, slice(start, start + numbers.shape[1]))
            scaled = scaling.transform(numbers)
            put_columns(out, places, scaled if positions is None else scaled[positions])
            start += numbers.shape[1]
        return out

    def count_unseen(self, X: Any) -> dict[str, int]:
        """Count the rows whose category did not occur in training.

        Args:
            X: Rows with the columns of the training rows.

        Returns:
            For each column that has such rows, its name and their number.
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

    def _unscaled_parts(self, X: Any) -> list[Floats]:
        """Return the columns before scaling: one array per column of a DataFrame, otherwise a single array."""
        if self.directions is not None:
            parts = [np.asarray(X @ self.directions.T, dtype=np.float64)]
        elif issparse(X):
            parts = [np.asarray(X.toarray(), dtype=np.float64)]
        elif self.columns is not None or isinstance(X, pd.DataFrame):
            encoded = _encode_columns(_as_frame(X), self.columns or [Number()] * X.shape[1])
            parts = [numbers if positions is None else numbers[positions] for positions, numbers in encoded]
        else:
            parts = [np.asarray(X, dtype=np.float64)]
        check_finite(parts)
        return parts or [np.zeros((len(X), 0))]

    def _blocks(self, parts: list[Floats]) -> list[slice]:
        """Return the ranges of columns that are scaled by one number."""
        if self.directions is not None:
            return [slice(None)]
        known = [column for column in self.columns or [] if column is not None]
        ends = np.cumsum([part.shape[1] for part in parts])
        columns = zip(known, parts, ends, strict=False)
        return [slice(end - part.shape[1], end) for column, part, end in columns if column.shares_scale]


def _as_frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)


def _has_only_numbers(frame: pd.DataFrame) -> bool:
    return all(pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype) for dtype in frame.dtypes)


def check_finite(parts: Sequence[Floats]) -> None:
    """Raise an error if there are infinite values."""
    if any(np.isinf(part).any() for part in parts):
        raise InvalidValueError("Input X contains infinity; replace infinite values, by NaN if they are unknown")


def _encode_columns(
    frame: pd.DataFrame, columns: Sequence[Column | None]
) -> list[tuple[NDArray[np.int64] | None, Floats]]:
    """Encode each column that has an encoder. One error names all columns in which text stands in place of a number."""
    encoded, failed = [], []
    for at, column in enumerate(columns):
        try:
            if column is not None:
                encoded.append(column.encode_distinct(frame.iloc[:, at]))
        except NotANumber as error:
            failed.append(f"{frame.columns[at]} ({error})")
    if failed:
        raise InvalidValueError(
            f"columns that held numbers in fit hold something else now: {', '.join(failed)}. Write them as numbers, or "
            "leave an entry empty where it is not known"
        )
    check_finite([numbers for _, numbers in encoded])
    return encoded


def _fit_columns(frame: pd.DataFrame) -> list[Column | None]:
    """Fit an encoder for each column, chosen by the type that skrub detects. A column without entries gets None."""
    from skrub import TableVectorizer  # slow to import, and not needed for numbers

    plain = pd.DataFrame({str(at): plain_column(frame.iloc[:, at]) for at in range(frame.shape[1])})
    with np.errstate(over="ignore"):  # skrub converts to float32, but only its types are used
        vectorizer = TableVectorizer(**dict.fromkeys(OF_SKRUB, "passthrough")).fit(plain)
    columns: list[Column | None] = [None] * frame.shape[1]
    for kind, names in vectorizer.kind_to_columns_.items():
        for name in names:
            column: Column = OF_SKRUB[kind]()
            if isinstance(column, Date):
                steps = vectorizer.all_processing_steps_[name]
                column.format = next((step.format_ for step in steps if getattr(step, "format_", None)), None)
            columns[int(name)] = column.fit(plain[name])
    return columns
