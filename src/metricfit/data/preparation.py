"""From a table to numbers a network can take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.errors import InvalidStateError, InvalidValueError


class Preparation:
    """One-hot text, constant columns dropped, standardised, clipped; all learned from the training part alone.

    The protocol of this project's study: a text column becomes a 0/1 column for each category of the training part
    (a missing entry is a category too, an unknown one is all zeros); columns that are constant there are dropped; the
    others, 0/1 ones included, lose their mean and are divided by their standard deviation; then everything is cut to
    plus or minus ``clip``. A missing number becomes 0, the mean. Written by hand because what was learned must go into
    a JSON file, not a pickle: `state` and `from_state`.

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
        """Learn categories, means and deviations from the training rows."""
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
        kept = numbers[self.columns]
        self.mean, self.deviation = kept.mean().to_numpy(), kept.std(ddof=0).to_numpy()
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Rows as a float32 array ``(n, len(columns))``."""
        if self.mean is None or self.deviation is None:
            raise InvalidStateError("fit the Preparation on the training part before transform")
        frame = _frame(X)
        missing = [name for name in self.inputs if name not in frame.columns]
        if missing:
            raise InvalidValueError(f"columns that were there in fit are missing: {', '.join(missing)}")
        numbers = self._numbers(frame)[self.columns].to_numpy()
        standard = (numbers - self.mean) / self.deviation
        cut: NDArray[np.float32] = np.where(np.isnan(standard), 0.0, np.clip(standard, -self.clip, self.clip)).astype(
            np.float32
        )
        return cut

    def fit_transform(self, X: Any) -> NDArray[np.float32]:
        """`fit`, then `transform` of the same rows."""
        return self.fit(X).transform(X)

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        if self.mean is None or self.deviation is None:
            raise InvalidStateError("fit the Preparation before asking for its state")
        return {
            "clip": self.clip,
            "inputs": self.inputs,
            "categories": self.categories,
            "columns": self.columns,
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Preparation:
        """The preparation that `state` described."""
        made = cls(state["clip"])
        made.inputs, made.categories, made.columns = state["inputs"], state["categories"], state["columns"]
        made.mean, made.deviation = np.asarray(state["mean"]), np.asarray(state["deviation"])
        return made

    def _numbers(self, frame: Any) -> Any:
        """Every column as float64, text as one column for each category."""
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
    """A DataFrame with names that are text, as JSON and one-hot names need."""
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
