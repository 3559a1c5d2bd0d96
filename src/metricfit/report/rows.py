"""A plain table, for whatever else a command has to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metricfit.report import words
from metricfit.report.page import Section


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, lead: str = "") -> Section:
    """A section with a table; floats are written as metrics' values, None is left empty.

    >>> table("Folds", ["fold", "F1"], [["1", 0.7123], ["2", None]]).context["rows"][0][1].text
    '0.712'
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{title!r}: a row has {len(row)} cells, for {len(columns)} columns: {row!r}")
    cells = [list(map(Cell, row)) for row in rows]
    numeric = [any(row[at].number for row in cells) for at in range(len(columns))]
    return Section(title, "table.html", {"columns": list(zip(columns, numeric, strict=True)), "rows": cells}, lead)


class Cell:
    """What a cell says, and whether it is a number."""

    def __init__(self, given: Any) -> None:
        self.number = isinstance(given, (int, float)) and not isinstance(given, bool)
        self.value = given
        self.text = "" if given is None else words.value(given) if isinstance(given, float) else str(given)
