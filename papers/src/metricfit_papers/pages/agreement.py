"""How many published numbers are reproduced: within two of their standard deviations."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from metricfit_papers.specs.table_spec import PublishedNumber, TableSpec

DEVIATIONS = 2.0
#: The largest deviation that is printed as 0.00.
ROUNDED = 0.005


def agreement(spec: TableSpec, datasets: dict[str, Any]) -> str:
    """Describe how many published numbers of each dataset are reproduced; empty if none has a deviation.

    If some columns are published without deviations, the sentence names those with deviations. Runs with fewer epochs
    than the table are left out, because they were not trained to the end.
    """
    parts = []
    for dataset, rows in datasets.items():
        agreeing, published = count_agreeing(spec, dataset, rows)
        if published:
            parts.append(f"{agreeing} of {published} on {spec.datasets[dataset].title}")
    if not parts:
        return ""
    subject = f"Within two published deviations (0.005 where 0.00 is printed){_of_columns(spec)}"
    return f"{subject}: {'; '.join(parts)}."


def count_agreeing(spec: TableSpec, dataset: str, rows: dict[str, Any], *, any_length: bool = False) -> tuple[int, int]:
    """Return how many published numbers of these rows are reproduced, and how many can be compared."""
    results = list(_agreeing(spec, dataset, rows, any_length))
    return sum(results), len(results)


def _of_columns(spec: TableSpec) -> str:
    """Describe which columns have published deviations; empty if all have."""
    published_columns = {column for _, _, column in spec.published if spec.columns[column].shown}
    counted = {column for (_, _, column), published in spec.published.items() if published.std is not None}
    if published_columns <= counted:
        return ""
    titles = [f'"{spec.columns[column].title}"' for column in spec.columns if column in published_columns & counted]
    return f", in {' and '.join(titles)} alone, because the other columns are published without deviations"


def _agreeing(spec: TableSpec, dataset: str, rows: dict[str, Any], any_length: bool) -> Iterator[bool]:
    for row, measured in rows.items():
        if not any_length and "epochs" in measured.get("run", {}).get("smaller", ""):
            continue
        for column, values in measured["values"].items():
            published = spec.published.get((dataset, row, column))
            if values and published is not None and published.std is not None and spec.columns[column].shown:
                yield agrees(published, values)


def agrees(published: PublishedNumber, values: list[float]) -> bool:
    """Return whether the mean of the trials is within two published deviations.

    >>> agrees(PublishedNumber(0.63, 0.02), [0.66, 0.68]), agrees(PublishedNumber(0.63, 0.00), [0.64, 0.65])
    (True, False)
    """
    assert published.std is not None
    return abs(statistics.fmean(values) - published.mean) <= DEVIATIONS * max(published.std, ROUNDED) + 1e-9
