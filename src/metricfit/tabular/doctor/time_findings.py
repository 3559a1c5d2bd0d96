"""Times: entries that are none, rows out of order, and tables that overlap in time."""

from __future__ import annotations

import pandas as pd

from metricfit.errors import quote
from metricfit.tabular.doctor.column_kinds import as_times, kind_of
from metricfit.tabular.doctor.finding import Finding, describe_share, list_names

#: Distinct numbers of a column from which their order is no accident.
FEWEST_IN_ORDER = 30


def find_time_problems(X: pd.DataFrame, time: str | None) -> list[Finding]:
    """Find what is wrong with a column of times; without one, columns of dates that could be.

    Args:
        X: The features.
        time: Name of the column; None if rows have no order.

    Returns:
        The findings.
    """
    if time is None:
        return [*_unused_dates(X), *_ordering_columns(X)]
    column, found = X[time], []
    missing = int(column.isna().sum())
    if missing:
        found.append(
            Finding(
                "time",
                "serious",
                f"The time {quote(time)} is missing in {describe_share(missing, len(X))}.",
                "Remove these rows, or give each a time.",
                (time,),
            )
        )
    if missing == len(column):
        return found
    times = as_times(column.dropna())
    if times is None:
        example = next(
            (each for each in column.dropna() if as_times(pd.Series([each])) is None), column.dropna().iloc[0]
        )
        return [
            *found,
            Finding(
                "time",
                "serious",
                f"The time {quote(time)} holds {quote(str(example), 40)}, which is no date of the form 2024-12-31 or "
                "2024-12-31 18:30, and no number.",
                "Write all times in that form. Dates such as 31.12.2024 and 31/12/2024 are read if the column tells "
                "which number is the day.",
                (time,),
            ),
        ]
    if times.nunique() == 1:
        found.append(
            Finding(
                "time", "serious", f"All rows have one {quote(time)}.", "They have no order; leave it out.", (time,)
            )
        )
    elif not times.is_monotonic_increasing:
        later = int((times.to_numpy()[1:] < times.to_numpy()[:-1]).sum())
        found.append(
            Finding(
                "time",
                "note",
                f"The rows are not in the order of {quote(time)}: {later:,} of them are earlier than the row before.",
                "fit --time sorts them; sort them yourself before you split the table by position.",
                (time,),
            )
        )
    return found


def find_overlap_in_time(X: pd.DataFrame, further: pd.DataFrame, time: str, name: str) -> list[Finding]:
    """Find out whether a further table begins before the first one ends.

    Args:
        X: The features of the first table.
        further: The further table.
        time: Name of the column of times.
        name: Name of the further table.

    Returns:
        One finding, or none.
    """
    if time not in further.columns:
        return []
    first, second = as_times(X[time].dropna()), as_times(further[time].dropna())
    if first is None or second is None or not len(first) or not len(second):
        return []
    if (first.dtype.kind == "M") != (second.dtype.kind == "M"):
        return []
    first, second = (pd.to_datetime(each, utc=True) if each.dtype.kind == "M" else each for each in (first, second))
    early = int((second < first.max()).sum())
    if not early:
        return []
    return [
        Finding(
            "time",
            "serious",
            f"{describe_share(early, len(further))} of {name} are earlier than the last row to train on "
            f"({str(first.max()).removesuffix(' 00:00:00+00:00')}).",
            "A model that is judged on them knows their future: split the tables at one time.",
            (time,),
            name,
        )
    ]


def _ordering_columns(X: pd.DataFrame) -> list[Finding]:
    """Find columns of repeated numbers that the rows are sorted by, such as times or the numbers of visits."""
    ordering = [
        name
        for name in X.columns
        if kind_of(X[name]) == "numbers"
        and X[name].iloc[:FEWEST_IN_ORDER].is_monotonic_increasing
        and X[name].is_monotonic_increasing
        and FEWEST_IN_ORDER <= X[name].nunique() < len(X)
    ]
    if not ordering:
        return []
    name = ordering[0]
    return [
        Finding(
            "ordered_rows",
            "note",
            f"The rows are in the order of {list_names(ordering)}.",
            f"If it is a time and new rows will be later, give --time {name}; if rows of one value belong together, "
            f"give --group {name}.",
            tuple(ordering),
        )
    ]


def _unused_dates(X: pd.DataFrame) -> list[Finding]:
    dates = [name for name in X.columns if kind_of(X[name]) == "dates"]
    if not dates:
        return []
    verb = "holds" if len(dates) == 1 else "hold"
    return [
        Finding(
            "dates",
            "note",
            f"{list_names(dates)} {verb} dates.",
            f"If new rows will be later than these, give --time {dates[0]}: every fold is then judged by a model of "
            "earlier rows.",
            tuple(dates),
        )
    ]
