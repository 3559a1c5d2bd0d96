"""What differs between the table to train on and further ones: columns, types, labels, categories."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from metricfit.data.column_names import did_you_mean
from metricfit.data.labels import quote_label
from metricfit.errors import quote
from metricfit.tabular.doctor.column_kinds import are_written_dates, kind_of
from metricfit.tabular.doctor.finding import Finding, describe_share, list_names
from metricfit.tabular.doctor.repeated_rows import find_shared_rows
from metricfit.tabular.doctor.time_findings import find_overlap_in_time

#: Columns in which more than this share of the entries differ are free text or identifiers, not categories.
MOSTLY_DISTINCT = 0.5
#: A share of rows with unseen categories that is worth a warning.
WORTH_A_WARNING = 0.01


def find_differences(
    X: pd.DataFrame,
    y: pd.Series,
    further: pd.DataFrame,
    name: str,
    *,
    time: str | None = None,
    described: Sequence[str] | None = None,
) -> list[Finding]:
    """Find what a model of the first table would meet in a further one that it has not seen.

    Args:
        X: The features of the table to train on.
        y: Its labels.
        further: The other table, with or without labels.
        name: Its name, for messages.
        time: Name of the column of times, if rows have an order.
        described: The columns by which rows are compared; by default all.

    Returns:
        The findings, in no order.
    """
    found = []
    lacking = [column for column in X.columns if column not in further.columns]
    if lacking:
        hint = did_you_mean(lacking[0], [column for column in further.columns if column not in X.columns])
        found.append(
            Finding(
                "missing_columns",
                "serious",
                f"{name} lacks {len(lacking)} of the {X.shape[1]} columns to learn from: {list_names(lacking)}.{hint}",
                "predict needs the columns of training; add them, or train without them.",
                tuple(lacking),
                name,
            )
        )
    if y.name in further.columns:
        found += _unseen_labels(y, further[y.name], name)
    shared = [column for column in X.columns if column in further.columns]
    for column in shared:
        found += _changed_type(X[column], further[column], name) or _unseen(X[column], further[column], name)
    compared = X if described is None else X[list(described)]
    if not lacking and compared.shape[1]:
        found += find_shared_rows(compared, further, name)
    return found + ([] if time is None else find_overlap_in_time(X, further, time, name))


def _unseen_labels(y: pd.Series, labels: pd.Series, name: str) -> list[Finding]:
    unseen = [label for label in labels.dropna().unique().tolist() if not (y == label).any()]
    if not unseen:
        return []
    listed = ", ".join(map(quote_label, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
    return [
        Finding(
            "unseen_labels",
            "serious",
            f"{name} has labels that the table to train on lacks: {listed}.",
            "evaluate refuses them; write the labels of both tables alike.",
            (str(y.name),),
            name,
        )
    ]


def _changed_type(column: pd.Series, other: pd.Series, name: str) -> list[Finding]:
    if not column.notna().any() or not other.notna().any():
        return []
    before, after = kind_of(column), kind_of(other)
    if before == after:
        return []
    example = quote(str(other.dropna().iloc[0]), 40)
    return [
        Finding(
            "changed_type",
            "serious" if before == "numbers" else "warning",
            f"{quote(column.name)} holds {before}, and in {name} {after} such as {example}.",
            "Write the column alike in both tables.",
            (str(column.name),),
            name,
        )
    ]


def _unseen(column: pd.Series, other: pd.Series, name: str) -> list[Finding]:
    """Find categories that the table to train on lacks."""
    if kind_of(column) != "words" or column.nunique() > MOSTLY_DISTINCT * len(column) or are_written_dates(column):
        return []
    seen = set(column.dropna().astype(str))
    words = other.dropna().astype(str)
    counts = words[~words.isin(seen)].value_counts()
    if not len(counts):
        return []
    rows, one = int(counts.sum()), len(counts) == 1
    return [
        Finding(
            "unseen_categories",
            "warning" if rows >= WORTH_A_WARNING * len(other) else "note",
            f"{quote(column.name)} has {len(counts):,} {'category' if one else 'categories'} in {name} that the table "
            f"to train on lacks: {list_names(counts.index.tolist(), 3)}, in {describe_share(rows, len(other))}.",
            "The model treats them as unknown; check the spelling, and add rows with them if you can.",
            (str(column.name),),
            name,
        )
    ]
