"""Conversion of a table to numbers for a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import InvalidStateError, InvalidValueError


class Preparation:
    """Encode text as one-hot columns, drop constant columns, standardise and clip, as learned from the training rows.

    A text column becomes one 0/1 column per category of the training rows. A missing entry is a category too, and an
    unknown category is all zeros. Columns that are constant in the training rows are dropped. The others, including the
    0/1 columns, are standardised and clipped to plus or minus ``clip``. A missing number becomes 0, the mean.

    Args:
        clip: Largest absolute value after standardisation; infinity for no limit.

    Raises:
        ValueError: ``clip`` is not above 0.

    Example:
        >>> import pandas as pd
        >>> train = pd.DataFrame({"size": [1.0, 3.0], "same": [7, 7], "kind": ["a", "b"]})
        >>> preparation = Preparation().fit(train)
        >>> preparation.columns, preparation.transform(train).tolist()
        (['size', 'kind=a', 'kind=b'], [[-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])
        >>> preparation.transform(pd.DataFrame({"size": [99.0], "same": [7], "kind": ["unseen"]})).tolist()
        [[5.0, -1.0, -1.0]]
    """

    def __init__(self, clip: float = 5.0) -> None:
        if not clip > 0:
            raise InvalidValueError(f"clip must be above 0 (infinity for none), got {clip}")
        self.clip = float(clip)
        self.categories: dict[str, list[str]] = {}
        self.inputs: list[str] = []
        self.columns: list[str] = []
        self.mean: NDArray[np.float64] | None = None
        self.deviation: NDArray[np.float64] | None = None

    def fit(self, X: Any) -> Preparation:
        """Learn categories, means and deviations from the training rows.

        Args:
            X: A DataFrame or an array ``(n, columns)``.

        Returns:
            This object.

        Raises:
            ValueError: The table is empty, column names repeat, all columns are constant, or a column holds dates or
                infinite values.
        """
        frame = _frame(X)
        if frame.empty:
            raise InvalidValueError(f"Preparation needs rows and columns to learn from, got {frame.shape}")
        self.inputs = list(frame.columns)
        dates = [name for name in self.inputs if frame[name].dtype.kind in "mM"]
        if dates:
            raise InvalidValueError(f"dates and times in {', '.join(dates)}; turn them into numbers before Preparation")
        text = [name for name in self.inputs if not pd.api.types.is_numeric_dtype(frame[name])]
        self.categories = {name: sorted(_text(frame[name]).unique()) for name in text}
        numbers = self._numbers(frame)
        if np.isinf(numbers.to_numpy()).any():
            raise InvalidValueError(f"infinite values in {_infinite(numbers)}; replace them before Preparation")
        with np.errstate(invalid="ignore"):
            spread = (numbers.max() > numbers.min()).to_numpy()
        self.columns = [name for name, varies in zip(numbers.columns, spread, strict=True) if varies]
        if not self.columns:
            raise InvalidValueError("every column is constant in the training part; there is nothing to learn from")
        varying = numbers[self.columns]
        self.mean, self.deviation = varying.mean().to_numpy(), varying.std(ddof=0).to_numpy()
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Convert rows to numbers.

        Args:
            X: A DataFrame or an array with the columns that ``fit`` saw.

        Returns:
            A float32 array ``(n, len(columns))``.

        Raises:
            RuntimeError: ``fit`` was not called.
            ValueError: A column is missing, or a column of numbers now holds text.
        """
        if self.mean is None or self.deviation is None:
            raise InvalidStateError("fit the Preparation on the training part before transform")
        frame = _frame(X)
        missing = [name for name in self.inputs if name not in frame.columns]
        if missing:
            raise InvalidValueError(f"columns that fit saw are missing: {', '.join(missing)}")
        numbers = self._numbers(frame)[self.columns].to_numpy()
        standard = (numbers - self.mean) / self.deviation
        clipped = np.where(np.isnan(standard), 0.0, np.clip(standard, -self.clip, self.clip))
        return clipped.astype(np.float32)

    def _numbers(self, frame: Any) -> Any:
        """Return all columns as float64, with one column per category of text."""
        parts: dict[str, Any] = {}
        for name in self.inputs:
            if name in self.categories:
                text = _text(frame[name])
                parts |= {f"{name}={category}": text == category for category in self.categories[name]}
            elif pd.api.types.is_numeric_dtype(frame[name]):
                parts[name] = frame[name]
            else:
                raise InvalidValueError(f"column {name!r} held numbers in fit and holds {frame[name].dtype} now")
        return pd.DataFrame(parts).astype("float64")


def _frame(X: Any) -> Any:
    """Return a DataFrame whose column names are text, which JSON and the one-hot names need."""
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    frame = frame.rename(columns=str)
    if not frame.columns.is_unique:
        raise InvalidValueError(
            f"column names must differ, {', '.join(frame.columns[frame.columns.duplicated()])} repeat"
        )
    return frame


def _text(column: Any) -> Any:
    return column.astype(object).where(column.notna(), "missing").astype(str)


def _infinite(numbers: Any) -> str:
    return ", ".join(numbers.columns[np.isinf(numbers.to_numpy()).any(axis=0)])
