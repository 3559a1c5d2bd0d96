"""Conversions of a table's columns to numbers, which ``prepare`` selects in a table's file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit_papers.datasets import Preparation, Table
from metricfit_papers.datasets.published_sets import bridging_the_gap

Rows = NDArray[np.int64]
#: A function from the positions of the training rows to the inputs of all rows.
Encoder = Callable[[Rows], NDArray[np.float32]]

#: The value for images, which are not prepared at all: their networks take bytes.
PIXELS = "pixels"
BRIDGING_THE_GAP_SETS = ("adult", "creditcard", "cocktailparty", "mammography")


def _standardised_ranks(table: Table) -> Encoder:
    """Encode as Tsoi et al.: text as the rank of its category, all columns standardised on the training rows."""
    values = _ranks(table)

    def encode(train: Rows) -> NDArray[np.float32]:
        mean, deviation = values[train].mean(0), values[train].std(0)
        scaled: NDArray[np.float32] = ((values - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
        return scaled

    return encode


def _plain_ranks(table: Table) -> Encoder:
    """Encode as Tsoi et al., without standardising."""
    values = _ranks(table).astype(np.float32)
    return lambda train: values


def _ranks(table: Table) -> NDArray[np.float64]:
    """Return the columns that Tsoi et al. use, with text as the rank of its category."""
    frame = bridging_the_gap(table).X if table.name in BRIDGING_THE_GAP_SETS else table.X
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    frame = frame.assign(**{name: frame[name].astype("category").cat.codes for name in text})
    values: NDArray[np.float64] = frame.to_numpy(dtype=np.float64)
    return values


def _one_hot(table: Table) -> Encoder:
    """Encode as this project's study: one-hot text, no constant columns, standardised, clipped to plus or minus 5."""
    return lambda train: Preparation().fit(table.X.iloc[train]).transform(table.X)


PREPARATIONS: dict[str, Callable[[Table], Encoder]] = {
    "bridging the gap": _standardised_ranks,
    "bridging the gap, not scaled": _plain_ranks,
    "one-hot": _one_hot,
}
