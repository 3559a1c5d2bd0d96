"""One thing that looks wrong in a table, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

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
    """Sort findings, the most serious first; those of one severity by their kind.

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
