"""A table's results as plain values, and the files that they are written to."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from metricfit._files import hash_bytes, write_file
from metricfit_papers.results.markdown import format_results
from metricfit_papers.results.table_run import TableResult
from metricfit_papers.specs.table_spec import TableSpec

FEW = 4


def to_plain_values(result: TableResult, command: str) -> dict[str, Any]:
    """Return what a page needs as plain values: one value per trial, seconds, epochs, command, machine, versions."""
    datasets: dict[str, Any] = {}
    for (dataset, row), measured in result.rows.items():
        datasets.setdefault(dataset, {})[row] = {
            "values": {column: [_six_digits(value) for value in trials] for column, trials in measured.values.items()},
            "seconds": round(measured.seconds, 1),
            "epochs": measured.epochs,
            "machine": measured.machine,
            "versions": measured.versions,
        }
        if measured.chosen and result.spec.rows[row].own_trials:
            datasets[dataset][row]["chosen"] = _rounded(measured.chosen)
    average = {"average": average_over_sets(datasets)} if result.spec.averaged else {}
    return {
        "table": result.spec.name,
        "protocol": result.protocol,
        "trials": result.trials,
        "smaller": result.smaller,
        "command": command,
        "datasets": datasets,
        **average,
    }


def _rounded(plain: Any) -> Any:
    """Return plain values with their fractions rounded."""
    if isinstance(plain, dict):
        return {key: _rounded(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_rounded(value) for value in plain]
    return _six_digits(plain) if isinstance(plain, float) else plain


def _six_digits(value: float) -> float:
    """Round to six significant digits, instead of decimal places, because p values can be small."""
    return float(f"{value:.6g}")


def average_over_sets(datasets: dict[str, Any]) -> dict[str, Any]:
    """Return for each row the mean of each column in each dataset, and the seconds of all datasets.

    >>> row = {"values": {"f1": [0.5, 0.7]}, "seconds": 2.0}
    >>> average_over_sets({"one": {"BCE": row}, "two": {"BCE": row}})
    {'BCE': {'values': {'f1': [0.6, 0.6]}, 'seconds': 4.0}}
    """
    first = next(iter(datasets.values()))
    averages: dict[str, Any] = {}
    for name, first_row in first.items():
        rows = [rows[name] for rows in datasets.values()]
        values = {key: [round(statistics.fmean(row["values"][key]), 6) for row in rows] for key in first_row["values"]}
        averages[name] = {"values": values, "seconds": round(sum(row["seconds"] for row in rows), 1)}
    return averages


def write_results(spec: TableSpec, plain: dict[str, Any], folder: str | os.PathLike[str]) -> Path:
    """Write the results as Markdown and as JSON; the file names contain the size and the part of the table."""
    stem = ", ".join([plain["protocol"], *([plain["smaller"]] if plain["smaller"] else []), *_parts(spec, plain)])
    table_folder = Path(folder) / spec.name
    write_file(table_folder / f"{stem}.json", json.dumps(plain, indent=1, ensure_ascii=False).encode())
    write_file(table_folder / f"{stem}.md", format_results(spec, plain).encode())
    return table_folder / f"{stem}.md"


def _parts(spec: TableSpec, plain: dict[str, Any]) -> Iterator[str]:
    """Yield the datasets, and a hash of the rows, if they are not all of the table."""
    datasets = list(plain["datasets"])
    if datasets != list(spec.datasets):
        yield "+".join(datasets) if len(datasets) <= FEW else f"{len(datasets)} datasets {_digest(datasets)}"
    rows = list(next(iter(plain["datasets"].values())))
    if rows != [row.name for row in spec.shown(plain["protocol"])]:
        yield f"rows {_digest(rows)}"


def _digest(names: Sequence[str]) -> str:
    return hash_bytes("/".join(names).encode(), length=8)
