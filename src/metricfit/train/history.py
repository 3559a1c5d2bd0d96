"""History: a table with one row per epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from metricfit.errors import UnknownNameError
from metricfit.metrics.registry import resolve_aliases

Row = dict[str, Any]


class History(Sequence[Row]):
    """A table of training with one row per epoch. ``history["train_loss"]`` is a column, ``history[0]`` a row.

    Args:
        rows: One dictionary per epoch, from the names of columns to their values.

    Raises:
        KeyError: There is no column of this name.

    Example:
        >>> history = History([{"epoch": 0, "train_loss": 0.5}, {"epoch": 1, "train_loss": 0.25}])
        >>> history["train_loss"]
        [0.5, 0.25]
        >>> print(history)
        epoch  train_loss
            0         0.5
            1        0.25
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = [{name: _from_json(value) for name, value in row.items()} for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, key: Any) -> Any:
        """Return a row by number, rows by slice, or a column by name, which may have an alias of a metric, "dice"."""
        if not isinstance(key, str):
            return self.rows[key]
        columns = self.columns
        name = key if key in columns else resolve_aliases(key)
        if name not in columns:
            raise UnknownNameError(f"no column {key!r}; there are {', '.join(columns)}")
        return [row.get(name) for row in self.rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and repr(self.rows) == repr(other.rows)  # so that NaN equals NaN

    __hash__ = None  # type: ignore[assignment]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame.

        Returns:
            A DataFrame with one row per epoch.
        """
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        cells = [self.columns, *([_text(row.get(name)) for name in self.columns] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.columns)})"


def _from_json(value: Any) -> Any:
    """Return thresholds of labels as the tuple that they were before a checkpoint stored them as JSON."""
    return tuple(value) if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple) and value:  # thresholds of labels
        return f"{min(value):.4g} to {max(value):.4g}"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
