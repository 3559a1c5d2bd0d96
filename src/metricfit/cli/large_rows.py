"""The rows of a large Parquet table that ``fit`` trains on: only the labels and groups are read at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from metricfit.cli.command_rows import check_groups, name_data, print_findings
from metricfit.cli.exit_codes import UserError
from metricfit.cli.terminal import print_message
from metricfit.data.labels import check_classes, split_target
from metricfit.data.parquet_table import ParquetTable, large_parquet_table
from metricfit.data.text_format import TextOptions
from metricfit.errors import quote
from metricfit.tabular.large import row_sources

#: Rows that are looked at for findings about the table.
EXAMINED = 100_000


def read_large_rows(
    data: Sequence[Path], target: str, group: str | None, written: TextOptions, time: str | None
) -> tuple[ParquetTable, pd.Series, pd.Series | None] | None:
    """Return the features, the labels and the groups of a large Parquet table.

    Args:
        data: The files.
        target: Name of the column with the labels.
        group: Name of the column with the groups, or None.
        written: What the user said about text files.
        time: Name of a column to sort by; such tables are read at once.

    Returns:
        None if the table is small, or no Parquet table.
    """
    if time is not None or written != TextOptions():
        return None
    table = large_parquet_table(list(data), row_sources.LARGE_ROWS)
    if table is None:
        return None
    source = name_data(data)
    if group is not None and group == target:
        raise UserError(f"--group and --target both name {quote(group)}; choose another column for the groups.")
    head = table.head()
    split_target(head, target, source)  # a missing column is reported with the names of the others
    there = [name for name in table.columns if name in head.columns]  # an index of pandas is no column
    print_message(
        f"{source} has {len(table):,} rows: it is read in batches, and what looks wrong is looked for in a sample."
    )
    _, y = split_target(pd.DataFrame({target: table[target], "": 0}), target, source)
    check_classes(y, source)
    groups = None
    if group is not None:
        check_groups(head if group not in head.columns else pd.DataFrame({group: table[group]}), group, source)
        groups = table[group]
    print_findings(table.sample(EXAMINED), data, target, groups=group)
    return ParquetTable(table.files, [name for name in there if name not in (target, group)]), y, groups
