"""Tables of many datasets: rows compared with one row over the datasets, and each column dataset by dataset."""

from __future__ import annotations

import statistics
from typing import Any

from metricfit.stats import compare
from metricfit_papers.results.markdown import markdown_line
from metricfit_papers.specs.table_spec import RowSpec, TableSpec

FEWEST = 2


def main_rows(spec: TableSpec, plain: dict[str, Any]) -> list[RowSpec]:
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
    lines = [markdown_line([f"less {title}", *(column.title for column in spec.columns.values())])]
    lines.append(markdown_line(["---", *["---:"] * len(spec.columns)]))
    for row in main_rows(spec, plain):
        if row.name != spec.against:
            cells = [_difference(sets, row.name, spec.against, column) for column in spec.columns]
            lines.append(markdown_line([row.title, *cells]))
    head = f"**Against {title}**: mean difference over {len(sets)} sets (better : worse on so many; Wilcoxon's p)"
    return "\n".join([head, "", *lines])


def _difference(sets: dict[str, Any], one: str, other: str, column: str) -> str:
    both = [[statistics.fmean(of[name]["values"][column]) for of in sets.values()] for name in (one, other)]
    found = compare(both[0], both[1], samples=1)
    return f"{found.difference:+.3f} ({found.wins} : {found.losses}, p = {found.p_value:.2g})"


def by_set(spec: TableSpec, plain: dict[str, Any], column: str) -> str:
    """The means of a column in Markdown, one line per dataset, of the rows without tags."""
    rows = main_rows(spec, plain)
    lines = [
        markdown_line([spec.columns[column].title, *(row.title for row in rows)]),
        markdown_line(["---", *["---:"] * len(rows)]),
    ]
    for name, of in plain["datasets"].items():
        means = [statistics.fmean(of[row.name]["values"][column]) for row in rows]
        lines.append(markdown_line([spec.datasets[name].title, *(f"{mean:.3f}" for mean in means)]))
    return "\n".join(lines)
