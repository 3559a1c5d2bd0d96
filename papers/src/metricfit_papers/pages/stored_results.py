"""The results that the pages show: taken from run folders and stored in ``papers/results/NAME.json``.

In memory they are, for each protocol, dataset and row, the values of all trials and under ``run`` the run they come
from. In the file each run is stored once, in the list ``runs``, and a row has the run's position in the list. A row
that was run again replaces the earlier one, unless the earlier one has more epochs, or as many and more trials.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metricfit._files import write_file
from metricfit_papers.pages.repository import RESULTS
from metricfit_papers.specs.table_spec import TableSpec

Results = dict[str, Any]


def take(folder: Path, results: Path = RESULTS) -> list[str]:
    """Merge the results of a run folder into the stored ones, and return the names of the tables."""
    taken = []
    for name in sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != "cells"):
        path = results / f"{name}.json"
        stored = read(path) if path.exists() else {"table": name, "protocols": {}}
        for file in sorted((folder / name).glob("*.json")):
            merge(stored, json.loads(file.read_text(encoding="utf-8")))
        write(path, stored)
        taken.append(name)
    return taken


def merge(stored: Results, plain: dict[str, Any]) -> None:
    """Add the rows of a run, each with the run it comes from."""
    run = {key: plain[key] for key in ("trials", "smaller")} | {"command": without_folders(plain["command"])}
    protocol = stored["protocols"].setdefault(plain["protocol"], {})
    for dataset, rows in plain["datasets"].items():
        for row, measured in rows.items():
            before = protocol.setdefault(dataset, {}).get(row)
            if before is None or _size(before["run"]) <= _size(run):
                environment = {key: measured[key] for key in ("machine", "versions")}
                numbers = {key: value for key, value in measured.items() if key not in environment}
                protocol[dataset][row] = numbers | {"run": run | environment}


def _size(run: dict[str, Any]) -> tuple[float, int]:
    return epochs_limit(run), run["trials"]


def epochs_limit(run: dict[str, Any]) -> float:
    """Return the maximum number of epochs of a stored run; infinity if it was the table's.

    >>> epochs_limit({"smaller": "1 of 5 trials, at most 15 of 120 epochs"}), epochs_limit({"smaller": "1 of 5 trials"})
    (15.0, inf)
    """
    limit = re.search(r"at most ([\d,]+)(?: of .*)? epochs", run["smaller"])
    return float(limit[1].replace(",", "")) if limit else math.inf


def without_folders(command: str) -> str:
    """Return a command with FOLDER for the data folder and without result folders, so that it trains all rows.

    >>> without_folders("metricfit reproduce btg-1 --data some/data --out here --from there --finished --jobs 2")
    'metricfit reproduce btg-1 --data FOLDER --jobs 2'
    """
    words = [word for word in shlex.split(command) if word != "--finished"]
    for option in ("--out", "--from"):
        while option in words:
            del words[words.index(option) : words.index(option) + 2]
    if "--data" in words:
        words[words.index("--data") + 1] = "FOLDER"
    return shlex.join(words)


def write(path: Path, stored: Results) -> None:
    """Store the results of a table."""
    runs: list[dict[str, Any]] = []

    def number(run: dict[str, Any]) -> int:
        if run not in runs:
            runs.append(run)
        return runs.index(run)

    protocols = _with_runs(stored["protocols"], number)
    text = _text({"table": stored["table"], "runs": runs, "protocols": protocols}, "\n")
    write_file(path, f"{text}\n".encode())


def read(path: Path) -> Results:
    """Read the results of a table."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {"table": content["table"], "protocols": _with_runs(content["protocols"], content["runs"].__getitem__)}


def _with_runs(protocols: dict[str, Any], exchange: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the protocols with the run of every row exchanged."""
    return {
        protocol: {
            dataset: {row: measured | {"run": exchange(measured["run"])} for row, measured in rows.items()}
            for dataset, rows in datasets.items()
        }
        for protocol, datasets in protocols.items()
    }


def _text(value: Any, line: str) -> str:
    r"""Return JSON with one line per entry of a dictionary and per dictionary of a list; other lists are one line.

    >>> print(_text({"values": {"f1": [0.5, 0.25]}, "epochs": []}, "\n"))
    {
     "values": {
      "f1": [0.5, 0.25]
     },
     "epochs": []
    }
    """
    inner = line + " "
    if value and isinstance(value, dict):
        entries = [f"{_text(key, inner)}: {_text(entry, inner)}" for key, entry in value.items()]
        return "{" + inner + f",{inner}".join(entries) + line + "}"
    if value and isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return "[" + inner + f",{inner}".join(_text(item, inner) for item in value) + line + "]"
    return json.dumps(value, ensure_ascii=False)


def of_protocols(spec: TableSpec, results: Results) -> list[tuple[str, Any]]:
    """Return the results under each protocol, in the order of the table's file."""
    return [(name, results["protocols"][name]) for name in spec.protocols if name in results["protocols"]]


def curves_of(spec: TableSpec, datasets: Results) -> dict[str, dict[str, list[list[float]]]]:
    """Return for each row of paths its values by trial and epoch: on training batches, validation and test rows.

    Args:
        spec: The table.
        datasets: What is stored under one protocol. If it has only the first trial, the values are lists of one.
    """
    curves = {}
    for rows in datasets.values():
        for row in spec.rows:
            chosen = rows.get(row, {}).get("chosen", {})
            if "path" in chosen:
                watched = {f"validation {name}": values for name, values in chosen["watched"].items()}
                first = {name: [values] for name, values in (chosen["path"] | watched).items()}
                curves[row] = first | chosen.get("curves", {}) | chosen.get("tests", {})
    return curves


def curves_on_test(spec: TableSpec, datasets: Results) -> dict[str, dict[str, list[list[float]]]]:
    """Return the curves of the rows that have numbers on the test rows; older results have none."""
    return {row: curves for row, curves in curves_of(spec, datasets).items() if "test metric" in curves}


def paths_of(spec: TableSpec, datasets: Results) -> dict[str, dict[str, list[float]]]:
    """Return for each row the values of its first trial by epoch."""
    return {
        row: {name: trials[0] for name, trials in curves.items()} for row, curves in curves_of(spec, datasets).items()
    }
