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
    """All that a page needs as plain values: one value per trial, seconds, epochs, command, machine and versions."""
    datasets: dict[str, Any] = {}
    for (dataset, row), measured in result.rows.items():
        datasets.setdefault(dataset, {})[row] = {
            "values": {column: [_six_digits(each) for each in of] for column, of in measured.values.items()},
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


def _rounded(given: Any) -> Any:
    """Plain values with their fractions rounded."""
    if isinstance(given, dict):
        return {key: _rounded(value) for key, value in given.items()}
    if isinstance(given, list):
        return [_rounded(value) for value in given]
    return _six_digits(given) if isinstance(given, float) else given


def _six_digits(value: float) -> float:
    """A number with six significant digits, which a small p value needs too."""
    return float(f"{value:.6g}")


def average_over_sets(datasets: dict[str, Any]) -> dict[str, Any]:
    """For each row, the mean of each column in each dataset, and the seconds of all datasets.

    >>> row = {"values": {"f1": [0.5, 0.7]}, "seconds": 2.0}
    >>> average_over_sets({"one": {"BCE": row}, "two": {"BCE": row}})
    {'BCE': {'values': {'f1': [0.6, 0.6]}, 'seconds': 4.0}}
    """
    first = next(iter(datasets.values()))
    found: dict[str, Any] = {}
    for name, of_first in first.items():
        rows = [rows[name] for rows in datasets.values()]
        values = {key: [round(statistics.fmean(row["values"][key]), 6) for row in rows] for key in of_first["values"]}
        found[name] = {"values": values, "seconds": round(sum(row["seconds"] for row in rows), 1)}
    return found


def write_results(spec: TableSpec, plain: dict[str, Any], folder: str | os.PathLike[str]) -> Path:
    """Write the results as Markdown and as JSON; the names of the files tell the size and the part of the table."""
    stem = ", ".join([plain["protocol"], *([plain["smaller"]] if plain["smaller"] else []), *_parts(spec, plain)])
    where = Path(folder) / spec.name
    write_file(where / f"{stem}.json", json.dumps(plain, indent=1, ensure_ascii=False).encode())
    write_file(where / f"{stem}.md", format_results(spec, plain).encode())
    return where / f"{stem}.md"


def _parts(spec: TableSpec, plain: dict[str, Any]) -> Iterator[str]:
    """Which datasets, and a hash of which rows, where they are not all."""
    datasets = list(plain["datasets"])
    if datasets != list(spec.datasets):
        yield "+".join(datasets) if len(datasets) <= FEW else f"{len(datasets)} datasets {_digest(datasets)}"
    rows = list(next(iter(plain["datasets"].values())))
    if rows != [row.name for row in spec.shown(plain["protocol"])]:
        yield f"rows {_digest(rows)}"


def _digest(names: Sequence[str]) -> str:
    return hash_bytes("/".join(names).encode(), length=8)
