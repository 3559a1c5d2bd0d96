"""The encoding of a table as nodes: the columns as the user has them go in, numbers on one scale come out.

Everything is computed in double precision and in the order of ``tabular.encoding``, so that the encoded columns, which
are in single precision, are the same to the last bit, and the splits of trees decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from metricfit.errors import ExportError, quote
from metricfit.export.onnx.graph import ML, Graph
from metricfit.tabular.encoding.columns import Category, Column, Date, Number, Text, as_text
from metricfit.tabular.encoding.encoder import CLIP, LARGEST, Scaling, TableEncoder

SECONDS_PER_DAY = 86400.0
#: What an input holds, by the kind of the column.
MEANINGS = {
    "number": "a number; NaN if it is missing",
    "category": "text; empty if it is missing",
    "text": "text, one of the training texts; others count as missing; empty if it is missing",
    "date": "seconds since 1970-01-01 00:00 UTC; NaN if it is missing",
    "array": "all columns side by side; NaN if a number is missing",
}
ARRAY_INPUT = "X"


@dataclass(frozen=True)
class Input:
    """One input of the graph.

    Attributes:
        name: Its name, which is the column's name.
        kind: "number", "category", "text", "date", or "array" for all columns of an array.
        position: The position of the column in the table; of an array, 0.
        width: The number of columns that it holds: 1, except for an array.
    """

    name: str
    kind: str
    position: int = 0
    width: int = 1

    @property
    def type(self) -> str:
        """The type of its tensor."""
        return "string" if self.kind in ("category", "text") else "double"

    def values(self, X: Any, encoder: TableEncoder | None) -> NDArray[Any]:
        """Return what this input gets for the rows of a table, ``(n, width)``."""
        if self.kind == "array" and not isinstance(X, pd.DataFrame):
            return np.asarray(X.toarray() if issparse(X) else X, dtype=np.float64)
        if self.kind == "array":
            return np.concatenate([Number().transform(X.iloc[:, at]) for at in range(self.width)], axis=1)
        column = X.iloc[:, self.position]
        if self.type == "string":
            return np.array([text or "" for text in as_text(column)], dtype=object)[:, None]
        if self.kind == "date":
            known = (encoder.columns or [])[self.position] if encoder is not None else None
            assert isinstance(known, Date)
            return known.seconds(column)[:, None]
        return Number().transform(column)


def inputs_of(encoder: TableEncoder, names: Sequence[str] | None) -> list[Input]:
    """Return the inputs for the columns of which something is known.

    Args:
        encoder: The fitted encoder.
        names: The names of the columns; None for an array.

    Raises:
        ExportError: A column cannot be exported; all such columns are named.
    """
    if encoder.columns is None and names is None:
        return [Input(ARRAY_INPUT, "array", width=encoder.features)]
    names = names if names is not None else [f"x{position}" for position in range(encoder.features)]
    columns: Sequence[Column | None] = encoder.columns or [Number()] * len(names)
    text = [
        name for name, column in zip(names, columns, strict=True) if isinstance(column, Text) and not column.categories
    ]
    if text:
        raise ExportError(
            f"free text, which is encoded by hashing its characters, cannot be written as ONNX: {_listed(text)}. Train "
            f"without {'these columns' if len(text) > 1 else 'this column'}, or save the model for MLflow "
            "(metricfit.export.mlflow.save_model), which runs Python"
        )
    both = [
        name
        for name, column in zip(names, columns, strict=True)
        if isinstance(column, Category) and {None, ""} <= set(column.categories)
    ]
    if both:
        raise ExportError(
            f"columns with both empty text and missing values in training: {_listed(both)}. The empty string stands "
            "for a missing value in ONNX; write both in the same way and train again"
        )
    unnamed = [position for position, name in enumerate(names) if not name]
    if unnamed:
        raise ExportError(f"column {unnamed[0]} has no name, and inputs of ONNX need one; rename it and train again")
    return [
        Input(name, column.kind, position)
        for position, (name, column) in enumerate(zip(names, columns, strict=True))
        if column is not None
    ]


def encode(graph: Graph, encoder: TableEncoder, inputs: Sequence[Input]) -> str:
    """Add the inputs and the encoding.

    Returns:
        The encoded columns ``(rows, width)`` in single precision.
    """
    parts = []
    for entry in inputs:
        tensor = graph.input(entry.name, entry.type, entry.width)
        column = encoder.columns[entry.position] if encoder.columns is not None else None
        if isinstance(column, Category):
            tensor = _category(graph, tensor, column)
        elif isinstance(column, Text):
            tensor = _known_text(graph, tensor, column)
        elif isinstance(column, Date):
            tensor = _date(graph, tensor)
        parts.append(tensor)
    table = graph.join(parts)
    if encoder.directions is not None:
        table = graph.node("MatMul", table, graph.weights(encoder.directions.T))
    return _scale(graph, table, encoder.scaling)


def _codes(graph: Graph, text: str, categories: Sequence[str | None], unknown: int) -> str:
    """Return the position of each text among the categories."""
    return graph.node(
        "LabelEncoder",
        text,
        domain=ML,
        keys_strings=[category or "" for category in categories],
        values_int64s=list(range(len(categories))),
        default_int64=unknown,
    )


def _known_text(graph: Graph, text: str, column: Text) -> str:
    """Look up the numbers of a known text; the last ones, for missing text, stand for all others."""
    codes = _codes(graph, text, column.categories, unknown=len(column.categories))
    numbers = graph.weights(column.transform(pd.Series([*column.categories, None], dtype=object)))
    places = graph.node("Squeeze", codes, [1])
    return graph.node("Gather", numbers, places, axis=0)


def _category(graph: Graph, text: str, column: Category) -> str:
    codes = _codes(graph, text, column.categories, unknown=-1)
    first = 1 if len(column.categories) == 2 else 0
    known = np.arange(first, len(column.categories), dtype=np.int64)[None]
    return graph.cast(graph.node("Equal", codes, known), "double")


def _date(graph: Graph, seconds: str) -> str:
    """Days since 1970, the month, the day of the month and of the week, and the hour.

    The day in the civil calendar is found as in Hinnant, "chrono-compatible low-level date algorithms": years begin in
    March, so that the leap day is the last of the year.
    """
    add, subtract, times = (partial(graph.node, operator) for operator in ("Add", "Sub", "Mul"))

    def whole(a: str, b: float) -> str:
        """Return a / b, rounded down."""
        return graph.node("Floor", graph.node("Div", a, b))

    days = graph.node("Div", seconds, SECONDS_PER_DAY)
    day = graph.node("Floor", days)
    hour = whole(subtract(seconds, times(day, SECONDS_PER_DAY)), 3600)
    since_monday = add(day, 3)  # 1970-01-01 was a Thursday
    weekday = subtract(since_monday, times(whole(since_monday, 7), 7))
    since_march = add(day, 719468)  # days since 0000-03-01
    era = whole(since_march, 146097)
    of_era = subtract(since_march, times(era, 146097))
    leap_days = add(subtract(whole(of_era, 36524), whole(of_era, 1460)), times(whole(of_era, 146096), -1))
    year = whole(add(of_era, leap_days), 365)
    of_year = subtract(of_era, subtract(add(times(year, 365), whole(year, 4)), whole(year, 100)))
    march_based = whole(add(times(of_year, 5), 2), 153)
    of_month = add(subtract(of_year, whole(add(times(march_based, 153), 2), 5)), 1)
    is_late = graph.node("Less", march_based, 10)
    month = graph.node("Where", is_late, add(march_based, 3), add(march_based, -9))
    return graph.join([days, month, of_month, weekday, hour])


def _scale(graph: Graph, table: str, scaling: Scaling) -> str:
    """Add what ``Scaling.transform`` does."""
    kept = np.flatnonzero(scaling.spread > 0)
    parts = []
    if len(kept):
        x = graph.columns(table, kept)
        z = graph.node("Sub", x, scaling.centre[kept])
        z = graph.clip(graph.node("Div", z, scaling.spread[kept]), -LARGEST, LARGEST)
        share = graph.node("Div", z, CLIP)
        root = graph.node("Sqrt", graph.node("Add", 1, graph.node("Mul", share, share)))
        scaled = graph.node("Where", graph.node("IsNaN", x), 0, graph.node("Div", z, root))
        parts.append(graph.cast(scaled, "float"))
    if scaling.flagged.any():
        told = graph.columns(table, np.flatnonzero(scaling.flagged))
        parts.append(graph.cast(graph.node("IsNaN", told), "float"))
    return graph.join(parts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")


def has_unknown_text(X: Any, inputs: Sequence[Input], encoder: TableEncoder | None) -> NDArray[np.bool_]:
    """Return which rows have text that the graph does not know, and the model encodes by its characters."""
    unknown = np.zeros(X.shape[0], dtype=bool)
    columns = (encoder.columns if encoder is not None else None) or []
    for entry in inputs:
        column = columns[entry.position] if entry.kind == "text" else None
        if isinstance(column, Text):
            known = {*column.categories, ""}
            unknown |= [text not in known for text in entry.values(as_frame(X), encoder)[:, 0]]
    return unknown


def as_frame(X: Any) -> Any:
    """Return a checked table as a DataFrame, for inputs by column."""
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)


MADE_UP_ROWS = 512
UNSEEN = "never seen in training"


def made_up_rows(encoder: TableEncoder, names: Sequence[str] | None, rows: int = MADE_UP_ROWS) -> Any:
    """Make rows that look like training rows: numbers around the median, known and unknown categories, missing.

    Args:
        encoder: The fitted encoder.
        names: The names of the columns; None for an array.
        rows: The number of rows.

    Returns:
        A DataFrame, or an array if the model was trained on one.
    """
    generator = np.random.default_rng(0)
    centre, spread = encoder.scaling.centre, encoder.scaling.spread
    if encoder.columns is None:
        shape = (rows, encoder.features)
        if encoder.directions is not None:
            return generator.normal(size=shape) * (generator.random(shape) < 0.05)
        numbers = centre + spread * generator.normal(size=shape) * 1.5
        numbers[generator.random(shape) < 0.05] = np.nan
        return numbers if names is None else pd.DataFrame(numbers, columns=list(names))
    columns, first = {}, 0
    for position, column in enumerate(encoder.columns):
        name = position if names is None else names[position]
        columns[name] = _made_up_column(generator, column, centre[first:], spread[first:], rows)
        first += _width(column)
    return pd.DataFrame(columns)


def _made_up_column(generator: Any, column: Column | None, centre: Any, spread: Any, rows: int) -> Any:
    if column is None:
        return [None] * rows
    missing = generator.random(rows) < 0.05
    if isinstance(column, (Category, Text)):
        unseen = [UNSEEN] if isinstance(column, Category) else []
        known = np.array([*column.categories, *unseen, None], dtype=object)
        return pd.Series(known[generator.integers(len(known), size=rows)], dtype=object)
    numbers = centre[0] + spread[0] * generator.normal(size=rows) * 1.5
    if isinstance(column, Date):
        seconds = pd.Series(np.floor(numbers * 86400)).clip(-2e9, 4e9)
        return pd.to_datetime(seconds.mask(missing), unit="s", utc=True)
    return np.where(missing, np.nan, numbers)


def _width(column: Column | None) -> int:
    if column is None:
        return 0
    if isinstance(column, Category):
        return 1 if len(column.categories) == 2 else len(column.categories)
    if isinstance(column, Text):
        return len(column.directions)
    return 5 if isinstance(column, Date) else 1
