"""Rows that look like those of training, to compare an export with the model where the user passes none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from metricfit.tabular.encoding.columns import Category, Column, Date, Text
from metricfit.tabular.encoding.encoder import TableEncoder

MADE_UP_ROWS = 512
UNSEEN = "never seen in training"


def made_up_rows(encoder: TableEncoder, names: Sequence[str] | None, rows: int = MADE_UP_ROWS) -> Any:
    """Make rows that look like those of training: numbers around the median, known and unknown categories, missing.

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
