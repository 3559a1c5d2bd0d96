"""Tables with rows trained with and without a constraint: what the constraint changed over all losses."""

from __future__ import annotations

import statistics
from typing import Any

from metricfit.stats import compare
from metricfit_papers.results.markdown import markdown_line
from metricfit_papers.specs.column_names import FPR_AT, ON_ALL
from metricfit_papers.specs.table_spec import UNCONSTRAINED, TableSpec

FEWEST = 2
SHARED = (
    "Wilcoxon's p is over losses that share their splits and test images: it measures how consistently they change, "
    "and is no evidence about other images."
)


def describe_constraint_effects(spec: TableSpec, datasets: dict[str, Any]) -> str:
    """Make a table in Markdown: for each dataset and column the means over the losses without and with a constraint.

    It is empty if no row was trained both without and with a constraint. A note below says what Wilcoxon's p means.
    """
    columns = [key for key, column in spec.shown_columns.items() if _kind(column.metric) in ("auroc", *FPR_AT)]
    lines = []
    for dataset, rows in datasets.items():
        both = constraint_pairs(spec, rows)
        for column in columns if len(both) >= FEWEST else []:
            without, with_ = (
                [statistics.fmean(rows[pair[side]]["values"][column]) for pair in both] for side in (0, 1)
            )
            comparison = compare(with_, without, samples=1, minimize=_kind(spec.columns[column].metric) in FPR_AT)
            means = [f"{statistics.fmean(values):.3f}" for values in (without, with_)]
            change = f"{statistics.fmean(with_) - statistics.fmean(without):+.3f}"
            cells = [spec.datasets[dataset].title, spec.columns[column].title, *means, change]
            lines.append(
                markdown_line([*cells, f"{comparison.wins} : {comparison.losses}", f"{comparison.p_value:.2g}"])
            )
    if not lines:
        return ""
    head = ["dataset", "mean over the losses of", "without", "with", "change", "better : worse", "Wilcoxon's p"]
    table = [markdown_line(head), markdown_line(["---", "---", *["---:"] * 5]), *lines]
    return "\n".join(["**With the constraint and without**", "", *table, "", SHARED])


def constraint_pairs(spec: TableSpec, rows: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs of rows without and with the constraint that were run."""
    bases = {row.of: row.name for row in spec.rows.values() if row.decided == UNCONSTRAINED and row.of is not None}
    return [(base, row) for row, base in bases.items() if {row, base} <= set(rows)]


def _kind(metric: str) -> str:
    return metric.removesuffix(ON_ALL)
