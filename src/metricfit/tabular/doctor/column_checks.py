"""Columns that a model should not learn from, or cannot: identifiers, constants, copies, numbers written as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import numpy as np
import pandas as pd

from metricfit.errors import quote
from metricfit.tabular.doctor.finding import Finding, are_written_dates, as_codes, describe_share, kind_of, list_names
from metricfit.tabular.encoding.columns import are_categories

#: Columns of fewer rows may differ in every row by chance.
FEWEST_OF_IDENTIFIERS = 30
#: Names that identifiers usually have.
NAMED_LIKE_AN_IDENTIFIER = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|index|rowid|row_?(nr|no|number))$", re.IGNORECASE
)
CAMEL_CASE_ID = re.compile(r"[a-z]I[dD]$")
#: Whole numbers from a range of at most 10 times as many, which would repeat by chance in all but one of e^10 tables.
CLOSE_NUMBERS, FEWEST_CLOSE = 10, 200
#: A share of missing entries that leaves little to learn, and a share of numbers that makes text numbers.
MOSTLY_MISSING, MOSTLY_NUMBERS = 0.95, 0.8
#: Columns of more are not compared with one another entry by entry.
ROWS_COMPARED = 2_000
#: Columns of fewer words are categories, as skrub has it.
FEWEST_TEXTS = 40
#: Sets of equal columns that a message lists.
SETS_LISTED = 3


def check_columns(X: pd.DataFrame, *, known: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Find columns that look like identifiers, hold nothing to learn from, or repeat others.

    Args:
        X: The features.
        known: Columns that the user named as groups or times, which may be identifiers.

    Yields:
        The findings, in no order.
    """
    columns = [name for name in X.columns if name not in known]
    constant = [name for name in columns if _is_constant(X[name])]
    varying = [name for name in columns if name not in constant]
    if constant:
        yield _constant_columns(X, constant)
    missing = {name: int(X[name].isna().sum()) for name in varying}
    hollow = [name for name in varying if missing[name] >= MOSTLY_MISSING * len(X)]
    if hollow:
        worst = max(hollow, key=missing.__getitem__)
        yield Finding(
            "mostly_missing",
            "note",
            f"{list_names(hollow)} {'is' if len(hollow) == 1 else 'are'} mostly missing, {quote(worst)} in "
            f"{describe_share(missing[worst], len(X))}.",
            "Check that the column was read and joined as it should be; a missing entry is learned from too.",
            tuple(hollow),
        )
    identifiers: list[str] = []
    for name in varying:
        if name.startswith("Unnamed: "):
            yield Finding(
                "unnamed_column",
                "warning",
                f"A column without a name, here {quote(name)}, is learned from like any other.",
                f"If it holds row numbers (pandas writes them without index=False), {_leave_out(name)}.",
                (name,),
            )
        naming = list(_identifier(X[name], name))
        identifiers += [name] * len(naming)
        yield from naming
        yield from _numbers_as_text(X[name], name)
    yield from _free_text(X, [name for name in varying if name not in identifiers])
    yield from _duplicates(X[varying])


def _is_constant(column: pd.Series) -> bool:
    first = column.iloc[:1].isna().item()
    head = column.iloc[:ROWS_COMPARED]
    if head.notna().any() if first else head.nunique(dropna=False) > 1:
        return False
    return bool(column.isna().all() if first else column.nunique(dropna=False) == 1)


def _constant_columns(X: pd.DataFrame, constant: list[str]) -> Finding:
    message = f"{list_names(constant)} each have one value in every row."
    if len(constant) == 1:
        value = X[constant[0]].iloc[:1].tolist()[0]
        holds = "is empty" if pd.isna(value) else f"has the value {quote(value, 40)} in every row"
        message = f"{quote(constant[0])} {holds}."
    remedy = f"There is nothing to learn from {'it' if len(constant) == 1 else 'them'}; check that the table is whole."
    return Finding("constant_column", "note", message, remedy, tuple(constant))


def _leave_out(name: str) -> str:
    return f"leave it out: --drop {shlex.quote(name)}"


def _identifier(column: pd.Series, name: str) -> Iterator[Finding]:
    """Find out whether a column names the row."""
    if len(column) < FEWEST_OF_IDENTIFIERS:
        return
    named = bool(NAMED_LIKE_AN_IDENTIFIER.search(name) or CAMEL_CASE_ID.search(name))
    kind = kind_of(column)
    if kind == "words" and _is_one_word_per_row(column) and not are_written_dates(column):
        yield Finding(
            "identifier",
            "warning",
            f"The column {quote(name)} has a different word in every row, as identifiers do.",
            f"New rows will have words that no model has seen; if it is an identifier, {_leave_out(name)}.",
            (name,),
        )
    elif kind == "numbers" and _counts_rows(column, named):
        yield Finding(
            "identifier",
            "warning",
            f"The column {quote(name)} has a different whole number in every row, as row numbers and identifiers do.",
            f"A model that learns from it learns the order of rows; if it is an identifier, {_leave_out(name)}.",
            (name,),
        )


def _is_one_word_per_row(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(column):
        return False
    head = column.iloc[:ROWS_COMPARED]
    return _differ(head) and _differ(column)


def _differ(words: pd.Series) -> bool:
    """Return whether all entries are words without blanks, all different."""
    return bool(
        words.notna().all()
        and words.is_unique
        and all(isinstance(word, str) and not any(map(str.isspace, word)) for word in words)
    )


def _counts_rows(column: pd.Series, named: bool) -> bool:
    """Return whether whole numbers all differ, although they lie so close that counts would repeat."""
    head = column.iloc[:ROWS_COMPARED]
    if head.isna().any() or not head.is_unique or not (np.mod(head.to_numpy(dtype=np.float64), 1) == 0).all():
        return False
    if column.isna().any() or not column.is_unique:
        return False
    numbers = column.to_numpy(dtype=np.float64)
    ordered = bool((np.diff(numbers) > 0).all())
    span = float(numbers.max() - numbers.min()) + 1
    close = span <= CLOSE_NUMBERS * len(numbers) and len(numbers) >= FEWEST_CLOSE
    return bool((np.mod(numbers, 1) == 0).all()) and (named or close or (ordered and span <= 1.05 * len(numbers)))


def _numbers_as_text(column: pd.Series, name: str) -> Iterator[Finding]:
    """Find text that is mostly numbers: the entries that are not make the whole column text."""
    is_text = not (isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(column))
    if not is_text or kind_of(column) != "words":
        return
    present = column.dropna()
    head = present.iloc[:ROWS_COMPARED]
    if not len(head) or pd.to_numeric(head, errors="coerce").notna().mean() < MOSTLY_NUMBERS:
        return
    others = present[pd.to_numeric(present, errors="coerce").isna()]
    if 0 < len(others) <= (1 - MOSTLY_NUMBERS) * len(present):
        listed = list_names(others.value_counts().index.tolist(), 3)
        yield Finding(
            "numbers_as_text",
            "warning",
            f"{quote(name)} is read as text, because {describe_share(len(others), len(column))} hold {listed} and "
            "not numbers.",
            "Leave such entries empty, so that the column holds numbers.",
            (name,),
        )


def _free_text(X: pd.DataFrame, names: list[str]) -> Iterator[Finding]:
    """Find columns of words that are encoded by their letters, because their values repeat too rarely to be known."""
    free = []
    for name in names:
        if kind_of(X[name]) == "words" and not are_written_dates(X[name]):
            values = X[name].nunique()
            if values >= FEWEST_TEXTS and not are_categories(len(X), values):
                free.append(name)
    if free:
        one = len(free) == 1
        options = " ".join(f"--drop {shlex.quote(name)}" for name in free[:SETS_LISTED])
        yield Finding(
            "free_text",
            "note",
            f"{list_names(free)} {'holds' if one else 'hold'} text that hardly repeats. It is encoded by its letters, "
            "which cannot be exported to ONNX.",
            f"For fit --onnx leave {'it' if one else 'them'} out: {options}{' ...' * (len(free) > SETS_LISTED)}. "
            "metricfit.export.mlflow runs such models too.",
            tuple(free),
        )


def _duplicates(X: pd.DataFrame) -> Iterator[Finding]:
    """Find columns that are the same, and columns that name the same things by other words."""
    heads: dict[bytes, list[str]] = {}
    for name in X.columns:
        heads.setdefault(as_codes(X[name].iloc[:ROWS_COMPARED]).tobytes(), []).append(name)
    equal, renamed = [], []
    for names in heads.values():
        alike: dict[bytes, list[str]] = {}
        for name in names if len(names) > 1 else ():
            alike.setdefault(as_codes(X[name]).tobytes(), []).append(name)
        for group in alike.values():
            if len(group) > 1 and _are_equal(X, group):
                equal.append(group)
            elif len(group) > 1 and not X[group[0]].is_unique:  # two columns of different entries say nothing
                renamed.append(group)
    for groups, how in ((equal, "equal in every row"), (renamed, "different names of the same entries")):
        if groups:
            listed = "; ".join(list_names(group) for group in groups[:SETS_LISTED])
            more = f"; and {len(groups) - SETS_LISTED} more such sets" if len(groups) > SETS_LISTED else ""
            yield Finding(
                "duplicate_columns",
                "note",
                f"Columns are {how}: {listed}{more}.",
                "Keep one column of each set.",
                tuple(name for group in groups for name in group),
            )


def _are_equal(X: pd.DataFrame, names: list[str]) -> bool:
    return all(X[name].astype(object).equals(X[names[0]].astype(object)) for name in names[1:])
