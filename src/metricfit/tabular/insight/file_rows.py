"""Held-out rows of Parquet files to judge a model on; the columns of rows are read when they are needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from metricfit.data.parquet_table import ParquetTable
from metricfit.errors import InvalidValueError
from metricfit.tabular.insight.held_out_decisions import held_out_costs, held_out_rows
from metricfit.tabular.insight.judged_rows import JudgedRows
from metricfit.tabular.large.held_out_part import stratified_sample

#: Held-out rows that are read to measure the importance of columns.
SAMPLE_ROWS = 100_000


def judged_file_rows(model: Any, table: ParquetTable) -> JudgedRows:
    """Return all held-out rows of Parquet files, with the logits of ``fit``.

    Args:
        model: The fitted model, not a loaded one.
        table: The table that was passed to ``fit``.

    Raises:
        InvalidValueError: This is not the table of ``fit``, or the model was loaded.
    """
    places = getattr(model, "_places", None)
    if places is None or places.total != len(table):
        raise InvalidValueError("the rows of files are judged by the model that was fitted on these files")
    held_out = held_out_rows(model)
    return JudgedRows(
        model,
        table.rows(places.rows),
        held_out.y.numpy(),
        None if held_out.weight is None else held_out.weight.double().numpy(),
        held_out.groups,
        places.rows,
        places.folds,
        held_out_costs(model),
        model._fold_scorers(),
        held_out.logits,
    )


def read_sample(rows: JudgedRows) -> JudgedRows:
    """Read the columns of a sample of the rows, in which each class has its share."""
    drawn = stratified_sample(np.arange(len(rows)), rows.y, SAMPLE_ROWS, 0)
    sample = rows.take(drawn)
    return replace(sample, table=sample.table.reset_index(drop=True))
