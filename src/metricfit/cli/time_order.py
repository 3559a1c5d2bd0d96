"""Rows in the order of time: sorted by the column that ``--time`` names, which is not learned from."""

from __future__ import annotations

import pandas as pd

from metricfit.cli.exit_codes import UserError
from metricfit.cli.terminal import print_message
from metricfit.data.column_names import did_you_mean
from metricfit.data.row_times import first_part_of_dates, order_by_time
from metricfit.errors import quote


def sort_by_time(X: pd.DataFrame, y: pd.Series, column: str, source: str) -> tuple[pd.DataFrame, pd.Series]:
    """Sort rows by a column of times, and take it out of the features; a message says so.

    Args:
        X: The features.
        y: The labels.
        column: Name of the column: dates, numbers, or text such as 2024-12-31.
        source: Name of the table, for messages.

    Returns:
        The other features and the labels, earliest first. Rows of the same time keep their order.

    Raises:
        UserError: There is no such column, or no other one.
        InvalidValueError: A time is missing, all are equal, or text is no date in that form.
    """
    if column not in X.columns:
        raise UserError(f"{source} has no column {quote(column)} for --time.{did_you_mean(column, X.columns)}")
    if X.shape[1] == 1:
        raise UserError(
            f"{source} has no column except the target and {quote(column)}: there is nothing to learn from."
        )
    order = order_by_time(X[column])
    first, last = (str(X[column].iloc[order[end]]).removesuffix(" 00:00:00") for end in (0, -1))
    part = None if X[column].dtype.kind in "biufM" else first_part_of_dates(X[column])
    read = "" if part is None else f", which is read with the {part} first"
    print_message(
        f"Rows are in the order of {quote(column)}{read}, from {first} to {last}: every fold is judged by a model of "
        f"earlier rows. {quote(column)} itself is not learned from."
    )
    return X.drop(columns=column).iloc[order].reset_index(drop=True), y.iloc[order].reset_index(drop=True)
