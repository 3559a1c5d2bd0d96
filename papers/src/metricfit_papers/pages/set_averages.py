"""Tables of many datasets: rows compared with one row over the datasets, and each column dataset by dataset."""

from __future__ import annotations

import statistics
from typing import Any

from metricfit.stats import compare
from metricfit_papers.results.markdown import markdown_line
from metricfit_papers.specs.table_spec import RowSpec, TableSpec

FEWEST = 2


def main_rows(spec: TableSpec, plain: dict[str, Any]) -> list[RowSpec]:
    """Return the rows without tags that all sets have."""
    sets = plain["datasets"].values()
    return [row for row in spec.rows.values() if not row.tags and all(row.name in rows for rows in sets)]


def against(spec: TableSpec, plain: dict[str, Any]) -> str:
    """Make a table in Markdown: for each row and column the mean difference to the row ``against``, and the wins.

    Differences are between the means over trials of each set; p is Wilcoxon's over the sets.
    """
    assert spec.against is not None
    sets = plain["datasets"]
    if len(sets) < FEWEST or not all(spec.against in rows for rows in sets.values()):
        return ""
    title = spec.rows[spec.against].title
    lines = [markdown_line([f"minus {title}", *(column.title for column in spec.columns.values())])]
    lines.append(markdown_line(["---", *["---:"] * len(spec.columns)]))
    for row in main_rows(spec, plain):
        if row.name != spec.against:
            cells = [_difference(sets, row.name, spec.against, column) for column in spec.columns]
            lines.append(markdown_line([row.title, *cells]))
    head = (
        f"**Against {title}**: mean difference over {len(sets)} sets (number of sets where it is better : worse; "
        "Wilcoxon's p)"
    )
    return "\n".join([head, "", *lines])


def _difference(sets: dict[str, Any], row: str, base: str, column: str) -> str:
    means = [[statistics.fmean(rows[name]["values"][column]) for rows in sets.values()] for name in (row, base)]
    comparison = compare(means[0], means[1], samples=1)
    return f"{comparison.difference:+.3f} ({comparison.wins} : {comparison.losses}, p = {comparison.p_value:.2g})"


def by_set(spec: TableSpec, plain: dict[str, Any], column: str) -> str:
    """Make a table in Markdown of the means of a column: one line per dataset, with the rows without tags."""
    rows = main_rows(spec, plain)
    lines = [
        markdown_line([spec.columns[column].title, *(row.title for row in rows)]),
        markdown_line(["---", *["---:"] * len(rows)]),
    ]
    for name, measured in plain["datasets"].items():
        means = [statistics.fmean(measured[row.name]["values"][column]) for row in rows]
        lines.append(markdown_line([spec.datasets[name].title, *(f"{mean:.3f}" for mean in means)]))
    return "\n".join(lines)
