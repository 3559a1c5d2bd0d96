"""How much of a table its stored results hold: protocols, datasets, trials and epochs beside those published."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from metricfit_papers import TableSpec
from metricfit_papers.pages import stored_results
from metricfit_papers.pages.stored_results import Results
from metricfit_papers.specs.run_sizes import RunSize

Rows = list[tuple[str, str, dict[str, Any]]]


def measure_size(spec: TableSpec, results: Results | None) -> RunSize:
    """Describe what was run of a table, in words."""
    if results is None:
        return RunSize()
    rows = _rows(spec, results)
    trials = sorted({measured["run"]["trials"] for _, _, measured in rows})
    return RunSize(
        protocols=", ".join(name for name, _ in stored_results.of_protocols(spec, results)),
        datasets=f"{len({dataset for dataset, _, _ in rows})} of {len(spec.datasets)}",
        trials=" or ".join(map(str, trials)) + f" of {spec.trials}",
        epochs=count_epochs(spec, [measured for _, _, measured in rows]),
        smaller=describe_smaller(spec, rows),
        minutes=f"{training_minutes(spec, results):,.0f}",
    )


def training_minutes(spec: TableSpec, results: Results) -> float:
    """Return the minutes of training behind a table; rows that share networks count once."""
    seconds = [measured["seconds"] for _, row, measured in _rows(spec, results) if spec.rows[row].own_trials]
    return float(sum(seconds)) / 60


def _rows(spec: TableSpec, results: Results) -> Rows:
    return [
        (dataset, row, measured)
        for _, datasets in stored_results.of_protocols(spec, results)
        for dataset, dataset_rows in datasets.items()
        for row, measured in dataset_rows.items()
    ]


def count_epochs(spec: TableSpec, measured: list[dict[str, Any]]) -> str:
    """Return the epochs of the longest training and of the table; a constraint's come after its base's.

    Where some rows have a limit that is smaller than the table's, these limits come first: "30 or 103 of 1,000".
    """
    limits = {limit for row in measured if (limit := stored_results.epochs_limit(row["run"])) < math.inf}
    longest = max(epochs for row in measured for epochs in row["epochs"])
    most = max(training.epochs for row in spec.rows.values() for training in row.training.values())
    numbers = sorted({*map(int, limits), longest})
    text = " or ".join(f"{number:,}" for number in numbers)
    return f"{text} of {most:,}" + (f" + {most:,}" if longest > most else "")


def describe_smaller(spec: TableSpec, rows: Rows) -> str:
    """Describe how much smaller runs were than the table, with their datasets if other datasets differ."""
    titles_by_size: dict[str, dict[str, None]] = {}
    for dataset, _, measured in rows:
        titles_by_size.setdefault(measured["run"]["smaller"], {})[spec.datasets[dataset].title] = None
    if len(titles_by_size) == 1:
        return next(iter(titles_by_size)) or "no"
    occurrences = Counter(title for titles in titles_by_size.values() for title in titles)
    parts = []
    for size, titles in titles_by_size.items():
        named = [f"{title} in some rows" if occurrences[title] > 1 else title for title in titles]
        named = ["some rows"] if len(occurrences) == 1 else named
        parts += [f"{', '.join(named)}: {size}"] if size else []
    return "; ".join(parts)
