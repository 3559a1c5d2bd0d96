"""Tables of many sets: rows against one of them over the sets, and each column set by set."""

from __future__ import annotations

import statistics
from typing import Any

from metricfit.stats import compare
from metricfit_papers.results.writing import line
from metricfit_papers.specs.table_spec import Row, TableSpec

FEWEST = 2


def main_rows(spec: TableSpec, plain: dict[str, Any]) -> list[Row]:
    """The rows without tags that all sets have."""
    sets = plain["datasets"].values()
    return [row for row in spec.rows.values() if not row.tags and all(row.name in of for of in sets)]


def against(spec: TableSpec, plain: dict[str, Any]) -> str:
    """A table in Markdown: for each row and column the mean difference to the row ``against``, and how often it won.

    Differences are of the means over trials, set by set; p is Wilcoxon's over the sets.
    """
    assert spec.against is not None
    sets = plain["datasets"]
    if len(sets) < FEWEST or not all(spec.against in of for of in sets.values()):
        return ""
    title = spec.rows[spec.against].title
    lines = [line([f"less {title}", *(column.title for column in spec.columns.values())])]
    lines.append(line(["---", *["---:"] * len(spec.columns)]))
    for row in main_rows(spec, plain):
        if row.name != spec.against:
            cells = [_difference(sets, row.name, spec.against, column) for column in spec.columns]
            lines.append(line([row.title, *cells]))
    head = f"**Against {title}**: mean difference over {len(sets)} sets (better : worse on so many; Wilcoxon's p)"
    return "\n".join([head, "", *lines])


def _difference(sets: dict[str, Any], one: str, other: str, column: str) -> str:
    both = [[statistics.fmean(of[name]["values"][column]) for of in sets.values()] for name in (one, other)]
    found = compare(both[0], both[1], samples=1)
    return f"{found.difference:+.3f} ({found.wins} : {found.losses}, p = {found.p_value:.2g})"


def by_set(spec: TableSpec, plain: dict[str, Any], column: str) -> str:
    """A column's means in Markdown, a line a set, of the rows without tags."""
    rows = main_rows(spec, plain)
    lines = [line([spec.columns[column].title, *(row.title for row in rows)]), line(["---", *["---:"] * len(rows)])]
    for name, of in plain["datasets"].items():
        means = [statistics.fmean(of[row.name]["values"][column]) for row in rows]
        lines.append(line([spec.datasets[name].title, *(f"{mean:.3f}" for mean in means)]))
    return "\n".join(lines)
