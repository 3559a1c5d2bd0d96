"""Checks of the target, the rows, their order in time, and further tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.data.columns import check_classes, did_you_mean, quote_label
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.guarantees.guarantee_checks import checked_guarantee
from metricfit.errors import InvalidValueError, MetricfitError, quote
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.doctor.finding import (
    Finding,
    are_written_dates,
    as_codes,
    as_times,
    describe_share,
    kind_of,
    list_names,
)

#: Classes of fewer rows are warned about.
FEW_ROWS = 10
#: The confidence at which requirements are judged that were asked for without one.
USUAL_CONFIDENCE = 0.95


def find_missing_labels(y: pd.Series) -> list[Finding]:
    """Find rows without a label, with which ``fit`` refuses to begin."""
    missing = int(y.isna().sum())
    if not missing:
        return []
    return [
        Finding(
            "missing_labels",
            "serious",
            f"The target {quote(y.name)} is missing in {describe_share(missing, len(y))}.",
            "Give these rows a label, or leave them out: --skip-unlabelled. The other checks are without them.",
            (str(y.name),),
        )
    ]


def find_bad_classes(y: pd.Series, source: str) -> list[Finding]:
    """Find labels that cannot be learned, that differ by blanks only, and classes of few rows.

    Args:
        y: The labels, none missing.
        source: Name of the table, for messages.

    Returns:
        The findings, in no order.
    """
    try:
        check_classes(y, source)
    except MetricfitError as error:
        return [Finding("target", "serious", str(error), "", (str(y.name),))]
    found = []
    by_text: dict[str, list[str]] = {}
    for label in y.unique():
        by_text.setdefault(str(label).strip().casefold(), []).append(quote(str(label)))
    for alike in by_text.values():
        if len(alike) > 1:
            how = "blanks" if len({each.strip("'\" ") for each in alike}) == 1 else "blanks or capital letters"
            found.append(
                Finding(
                    "similar_labels",
                    "warning",
                    f"The labels {' and '.join(alike)} differ only by {how}, and count as different classes.",
                    "Write them alike if they mean the same.",
                    (str(y.name),),
                )
            )
    counts = y.value_counts()
    if int(counts.iloc[-1]) < FEW_ROWS:
        found.append(
            Finding(
                "few_rows",
                "warning",
                f"The class {quote_label(counts.index[-1])} has {int(counts.iloc[-1])} rows.",
                "Decisions and values that rest on so few rows are uncertain; collect more of them if you can.",
                (str(y.name),),
            )
        )
    return found


def find_too_few_rows(
    y: pd.Series, positive: object, requirements: Sequence[Requirement], confidence: float | None
) -> list[Finding]:
    """Find requirements that the rows are too few for, whatever the model is.

    Args:
        y: The labels.
        positive: The positive class of two; None for several classes.
        requirements: The requirements.
        confidence: The probability with which all must hold; None if they need only be met on held-out rows.

    Returns:
        One finding, or none. Without a confidence it is a warning that the requirements cannot be promised, at 95 %,
        if they have exact bounds.
    """
    if not requirements:
        return []
    labels = sorted(y.unique().tolist(), key=lambda label: (label == positive, label))
    numbers = np.array(y.map({label: number for number, label in enumerate(labels)}), dtype=np.int64)
    asked = class_requirements(requirements, len(labels), names=labels)
    try:
        checked_guarantee(asked, torch.from_numpy(numbers), USUAL_CONFIDENCE if confidence is None else confidence)
    except InfeasibleError as error:
        if confidence is not None:
            return [Finding("too_few_rows", "serious", f"{error}.", "Ask for less, or collect more rows.")]
        return [
            Finding(
                "too_few_rows",
                "warning",
                f"A requirement that is met on these rows may well fail on new ones: {error}.",
                f"Ask for less, or collect more rows and give --confidence {USUAL_CONFIDENCE:g}.",
            )
        ]
    except InvalidValueError:
        if confidence is not None:
            raise
    return []


Integers = NDArray[np.int64]

#: A share of the rarest class, or of the rows, from which contradictions and copies are worth a warning.
WORTH_A_WARNING = 0.01
#: A column with this share of distinct entries makes it unlikely that two rows are equal by chance.
MOSTLY_DISTINCT = 0.5
#: Cells that are compared, and rows by which chance is judged.
MOST_CELLS, ROWS_JUDGED = 10_000_000, 5_000


def find_repeated_rows(X: pd.DataFrame, y: pd.Series) -> list[Finding]:
    """Find rows with equal features: those with different labels, and copies.

    Args:
        X: The features.
        y: The labels.

    Returns:
        At most two findings.
    """
    most = MOST_CELLS // X.shape[1]
    if len(X) > most:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
        X, y = X.iloc[chosen], y.iloc[chosen]
    hashes = row_hashes(X)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    if sizes.max() == 1:
        return []
    codes = as_codes(y)[order]
    mixed = np.minimum.reduceat(codes, starts) != np.maximum.reduceat(codes, starts)
    by_chance = not _has_distinct_entries(X)
    found = _contradictions(codes, np.repeat(mixed, sizes), np.repeat(starts, sizes), by_chance) if mixed.any() else []
    copies = int((sizes - 1).sum())
    if not by_chance:
        found.append(
            Finding(
                "copied_rows",
                "warning" if copies / len(X) >= WORTH_A_WARNING else "note",
                f"{describe_share(copies, len(X))} are copies of other rows.",
                "metricfit keeps copies in one fold. Check that they do not come from a join.",
            )
        )
    return found


def _contradictions(codes: Integers, mixed: NDArray[np.bool_], sets: Integers, by_chance: bool) -> list[Finding]:
    """Describe rows with equal features and different labels, and how many of them any model decides wrongly."""
    together = pd.DataFrame({"set": sets[mixed], "label": codes[mixed]})
    sizes = together.value_counts().groupby("set")
    wrong = int((sizes.sum() - sizes.max()).sum())
    rarest = int(np.bincount(codes).min())
    aside = " With so few distinct values per column, different rows can look alike." if by_chance else ""
    return [
        Finding(
            "conflicting_rows",
            "warning" if wrong >= WORTH_A_WARNING * rarest and not by_chance else "note",
            f"{describe_share(len(together), len(codes))} have the same values as rows of another class: whatever the "
            f"model, at least {wrong:,} {'is' if wrong == 1 else 'are'} decided wrongly.{aside}",
            "Look for wrong labels, or for a column that is missing.",
        )
    ]


def find_shared_rows(X: pd.DataFrame, further: pd.DataFrame, name: str) -> list[Finding]:
    """Find rows of a further table that the first one has too.

    Args:
        X: The features of the first table.
        further: The further table; it has these columns, in any order.
        name: Its name.

    Returns:
        One finding, or none.
    """
    if not _has_distinct_entries(X):
        return []  # different rows can look alike
    shared = int(np.isin(row_hashes(further[list(X.columns)]), row_hashes(X)).sum())
    if not shared:
        return []
    share = shared / len(further)
    return [
        Finding(
            "shared_rows",
            "serious" if share >= 0.1 else "warning",
            f"{describe_share(shared, len(further))} of {name} are in the table to train on too.",
            "A model is better on rows that it was trained on: remove them from one of the tables.",
            table=name,
        )
    ]


def row_hashes(X: pd.DataFrame) -> NDArray[np.uint64]:
    """Return one number per row; equal rows have equal ones, whatever the types of their columns are.

    Example:
        >>> first, second = row_hashes(pd.DataFrame({"a": [1, 1], "b": ["x", "x"]}))
        >>> bool(first == second)
        True
    """
    total = np.zeros(len(X), dtype=np.uint64)
    for name in X.columns:
        column = X[name]
        if pd.api.types.is_numeric_dtype(column):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # -0 and 0 are equal
            hashed = pd.util.hash_array(np.where(np.isnan(numbers), np.nan, numbers))
        else:
            text = column.astype(object)
            hashed = pd.util.hash_array(text.where(text.isna(), text.astype(str)).to_numpy(), categorize=True)
        total = total * np.uint64(1_000_003) + hashed
    return total


def _has_distinct_entries(X: pd.DataFrame) -> bool:
    head = X.iloc[:ROWS_JUDGED]
    return any(head[name].nunique() >= MOSTLY_DISTINCT * len(head) for name in head.columns)


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
