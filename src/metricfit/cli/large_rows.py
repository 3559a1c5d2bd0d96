"""The rows of large tables: ``fit`` reads those of Parquet files in batches, ``compare`` reads a sample of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from metricfit.cli.column_choice import EVERYTHING, ColumnChoice
from metricfit.cli.command_rows import CommandRows, check_groups, name_data, print_findings, read_rows
from metricfit.cli.exit_codes import UserError
from metricfit.cli.terminal import print_message
from metricfit.data.labels import check_classes, split_target
from metricfit.data.parquet_table import ParquetTable, large_parquet_table
from metricfit.data.text_format import TextOptions
from metricfit.errors import quote
from metricfit.tabular.families.family import Integers
from metricfit.tabular.large import row_sources
from metricfit.tabular.large.held_out_part import stratified_sample

#: Rows that are looked at for findings about the table.
EXAMINED = 100_000


def read_large_rows(
    data: Sequence[Path],
    target: str,
    group: str | None,
    written: TextOptions,
    time: str | None,
    choice: ColumnChoice = EVERYTHING,
) -> CommandRows | None:
    """Return the features, the labels and the groups of a large Parquet table.

    Args:
        data: The files.
        target: Name of the column with the labels.
        group: Name of the column with the groups, or None.
        written: What the user said about text files.
        time: Name of a column to sort by; such tables are read at once.
        choice: Which columns are not learned from.

    Returns:
        None if the table is small, or no Parquet table.

    Raises:
        UserError: The choice cannot be followed in a large table, or names columns that are not there.
    """
    if time is not None or written != TextOptions():
        return None
    table = large_parquet_table(list(data), row_sources.LARGE_ROWS)
    if table is None:
        return None
    source = name_data(data)
    if group is not None and group == target:
        raise UserError(f"--group and --target both name {quote(group)}; choose another column for the groups.")
    if choice.category or choice.skip_unlabelled:
        raise UserError(
            f"{source} has {len(table):,} rows and is read in batches, where --category and --skip-unlabelled do not "
            "apply: write codes as a column of categories (pyarrow: dictionary_encode), and leave such rows out."
        )
    head = table.head()
    choice.check(list(head.columns), source, {"--target": target, "--group": group})
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
    findings = print_findings(choice.apply(table.sample(EXAMINED), target, source), data, target, groups=group)
    unused = (target, group, *choice.drop)
    features = ParquetTable(table.files, [name for name in there if name not in unused])
    return CommandRows(features, y, groups, findings)


def say_read_at_once(data: Sequence[Path], rows: int) -> None:
    """Say that a large table is in memory as a whole, and what to do about it."""
    if rows > row_sources.LARGE_ROWS:
        print_message(
            f"{name_data(data)} has {rows:,} rows, which are read at once. Parquet files are read in batches, in a "
            "fraction of the memory, unless rows are sorted by --time."
        )


class SampledRows(NamedTuple):
    """The rows that methods are compared on.

    Attributes:
        rows: The rows.
        table_rows: The number of rows of the table.
        note: What was left out; None if these are all rows.
    """

    rows: CommandRows
    table_rows: int
    note: str | None


def read_compared_rows(
    data: Sequence[Path],
    target: str,
    group: str | None,
    written: TextOptions,
    time: str | None,
    *,
    subject_to: Sequence[str] | None,
    choice: ColumnChoice = EVERYTHING,
    most: int,
) -> SampledRows:
    """Read a table; of one with more than this many rows, a sample in which each class has its share.

    Of a table with groups, whole groups are drawn. Rows stay in their order.
    """
    found = read_large_rows(data, target, group, written, time, choice)
    if found is None:
        found = read_rows(data, target, group, written, time, subject_to=subject_to, choice=choice)
    X, y, groups, findings = found
    if len(y) <= most:
        if isinstance(X, ParquetTable):
            X = X.rows(np.arange(len(y))).take(np.arange(len(y)))
        return SampledRows(CommandRows(X, y, groups, findings), len(y), None)
    index = (
        sample_of_groups(groups, most)
        if groups is not None
        else stratified_sample(np.arange(len(y)), pd.factorize(y)[0].astype(np.int64), most, 0)
    )
    X = X.rows(index).take(np.arange(len(index))) if isinstance(X, ParquetTable) else X.iloc[index]
    rows = CommandRows(
        X.reset_index(drop=True),
        y.iloc[index].reset_index(drop=True),
        None if groups is None else groups.iloc[index].reset_index(drop=True),
        findings,
    )
    check_classes(rows.y, f"A sample of {name_data(data)}")
    note = f"The methods are compared on a random sample of {len(index):,} of {len(y):,} rows; --max-rows sets its size"
    return SampledRows(rows, len(y), note)


def sample_of_groups(groups: pd.Series, most: int) -> Integers:
    """Draw whole groups of at most this many rows together, at least two groups; return their rows in order."""
    numbers, names = pd.factorize(groups)
    sizes = np.bincount(numbers)
    order = np.random.default_rng(0).permutation(len(names))
    drawn = order[: max(2, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]
    return np.flatnonzero(np.isin(numbers, drawn)).astype(np.int64)
