"""One thing that looks wrong in a table, and what the columns of a table hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.columns import read_dates
from metricfit.errors import quote

Severity = Literal["serious", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")
#: The kinds of findings, in the order in which they are listed within one severity.
KINDS = (
    "target",
    "missing_labels",
    "leak",
    "too_few_rows",
    "missing_columns",
    "changed_type",
    "unseen_labels",
    "time",
    "shared_rows",
    "similar_labels",
    "identifier",
    "unnamed_column",
    "repeated_identifier",
    "few_rows",
    "conflicting_rows",
    "unseen_categories",
    "numbers_as_text",
    "mostly_missing",
    "constant_column",
    "duplicate_columns",
    "free_text",
    "many_values",
    "copied_rows",
    "dates",
    "ordered_rows",
)
#: Names that a message lists.
LISTED = 5


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong in a table.

    Attributes:
        kind: What it is about, such as "leak" or "identifier".
        severity: "serious" (the result would be wrong or impossible), "warning" (the result may mislead) or "note".
        message: What was found.
        remedy: What to do about it.
        columns: The columns it is about.
        table: The name of the table it is about; None for the one to train on.

    Example:
        >>> finding = Finding("constant_column", "note", "'country' has one value.", "Remove it.", ("country",))
        >>> print(finding)
        'country' has one value. Remove it.
    """

    kind: str
    severity: Severity
    message: str
    remedy: str
    columns: tuple[str, ...] = ()
    table: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Describe the finding in plain values.

        Returns:
            A dictionary that JSON can hold.
        """
        return asdict(self) | {"columns": list(self.columns)}

    def __str__(self) -> str:
        """Return the message and the remedy."""
        return f"{self.message} {self.remedy}".strip()


def by_seriousness(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, the most serious first; findings of one severity by their kind.

    Example:
        >>> leak, copy = (Finding(kind, "warning", "", "") for kind in ("leak", "copied_rows"))
        >>> [finding.kind for finding in by_seriousness([copy, leak])]
        ['leak', 'copied_rows']
    """
    return tuple(sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), KINDS.index(each.kind))))


def list_names(names: Sequence[object], limit: int = LISTED) -> str:
    """Quote names for a message: a few of them, and how many there are beyond.

    Example:
        >>> list_names(["a", "b", "c"]), list_names(["a", "b", "c"], 1)
        ("'a', 'b' and 'c'", "'a' and 2 more")
    """
    quoted = [quote(name, 40) for name in names[:limit]]
    rest = [] if len(names) <= limit else [f"{len(names) - limit} more"]
    *first, last = quoted + rest
    return f"{', '.join(first)} and {last}" if first else last


def describe_share(count: int, total: int) -> str:
    """Write a count and its share.

    Example:
        >>> describe_share(12, 5000), describe_share(199, 200)
        ('12 of 5,000 rows (0.24 %)', '199 of 200 rows (99.5 %)')
    """
    share = 100 * count / max(total, 1)
    return (
        f"{count:,} of {total:,} rows ({share:.3g} %)"
        if share >= 10
        else f"{count:,} of {total:,} rows ({share:.2g} %)"
    )


Kind = Literal["numbers", "dates", "words"]
#: Entries that are looked at to tell dates from words.
LOOKED_AT = 50


def kind_of(column: pd.Series) -> Kind:
    """Say what a column holds; text such as 2024-12-31 or 31.12.2024 is dates.

    Example:
        >>> [kind_of(pd.Series(each)) for each in ([1.5, 2], ["2024-12-31", "2025-01-01"], ["a", "b"], [True, False])]
        ['numbers', 'dates', 'words', 'words']
    """
    if pd.api.types.is_bool_dtype(column):
        return "words"
    if pd.api.types.is_numeric_dtype(column):
        return "numbers"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "words"
    entries = column.dropna().iloc[:LOOKED_AT]
    return "dates" if len(entries) and as_times(entries) is not None else "words"


def as_times(column: pd.Series) -> pd.Series | None:
    """Return dates, or numbers as they are; None if an entry is text that is no date, or could be two.

    Missing entries stay missing.

    Example:
        >>> as_times(pd.Series(["2024-12-31", "31.12.2024"])) is None
        True
    """
    if pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return column
    times = read_dates(column.dropna().astype(object))
    return None if times is None else times.reindex(column.index)


def are_written_dates(column: pd.Series) -> bool:
    """Return whether the first entries are dates as people write them, with the day or the month first.

    Example:
        >>> are_written_dates(pd.Series(["31.12.2024", "1.1.2025"])), are_written_dates(pd.Series(["10-A", "11-B"]))
        (True, False)
    """
    entries = column.dropna().iloc[:LOOKED_AT].astype(str)
    return bool(entries.str.match(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?!\d)").all())


def as_numbers(column: pd.Series) -> NDArray[np.float64] | None:
    """Return the entries of a column of numbers or dates, missing and infinite ones as NaN; None for words."""
    kind = kind_of(column)
    if kind == "words":
        return None
    if kind == "numbers":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.asarray(np.where(np.isfinite(numbers), numbers, np.nan))
    times = as_times(column)
    if times is None:
        return None
    numbers = times.astype("int64").to_numpy(dtype=np.float64)
    return np.asarray(np.where(times.isna(), np.nan, numbers))


def as_codes(column: pd.Series) -> NDArray[np.int64]:
    """Return one whole number per entry, the same for equal entries, in the order of their first appearance.

    Example:
        >>> as_codes(pd.Series(["b", "a", None, "b"])).tolist()
        [0, 1, 2, 0]
    """
    values: Any = column
    if pd.api.types.is_object_dtype(column):
        values = column.where(column.isna(), column.astype(str))
    codes, _ = pd.factorize(values, use_na_sentinel=False)
    return np.asarray(codes, dtype=np.int64)


def column_hashes(column: pd.Series) -> NDArray[np.uint64]:
    """Return one number per entry; equal entries have equal ones, whatever the type of their column is."""
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # -0 and 0 are equal
        return pd.util.hash_array(np.where(np.isnan(numbers), np.nan, numbers))
    text = column.astype(object)
    return pd.util.hash_array(text.where(text.isna(), text.astype(str)).to_numpy(), categorize=True)
