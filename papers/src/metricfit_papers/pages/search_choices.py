"""A table in Markdown of the settings that searches chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from metricfit_papers.results.markdown import markdown_line
from metricfit_papers.specs.table_spec import TableSpec


def choices(spec: TableSpec, datasets: Mapping[str, Any]) -> str:
    """Make a table of datasets and rows with the settings that were chosen for them; empty if there are none.

    Published choices, if the table's file has them, are a column of their own.
    """
    lines = [
        markdown_line(
            [
                *(spec.datasets[dataset].title, spec.rows[row].title, words),
                *([spec.searched.get((dataset, row), "-")] if spec.searched else []),
            ]
        )
        for dataset, rows in datasets.items()
        for row, measured in rows.items()
        if (words := "; ".join(describe_choices(measured.get("chosen", {}))))
    ]
    head = ["dataset", "row", "chosen", *(["published"] if spec.searched else [])]
    return "\n".join([markdown_line(head), markdown_line(["---"] * len(head)), *lines]) if lines else ""


def describe_choices(chosen: Mapping[str, Any]) -> Iterator[str]:
    """Describe each choice; lists, such as recorded paths, are left out.

    >>> chosen = {"base": {"margin": 0.1}, "constraint": {"mu": 0.3, "rho": 2}, "validation AUC": 0.91234}
    >>> list(describe_choices(chosen))
    ['base: margin 0.1', 'constraint: mu 0.3, rho 2', 'validation AUC 0.9123']
    """
    for name, value in chosen.items():
        if isinstance(value, Mapping):
            words = ", ".join(describe_choices(value))
            if words:
                yield f"{name}: {words}"
        elif not isinstance(value, list):
            yield f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
