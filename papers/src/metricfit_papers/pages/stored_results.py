"""The results that the pages show: taken from run folders, stored in ``papers/results/NAME.json``.

In memory: for each protocol, dataset and row the values of every trial, and under ``run`` the run they come from. On
disk each run stands once, in the list ``runs``, and a row has its number there. Rows that were run again replace those
of as many trials or fewer.
"""

from __future__ import annotations

import json
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
        kept = read(path) if path.exists() else {"table": name, "protocols": {}}
        for found in sorted((folder / name).glob("*.json")):
            merge(kept, json.loads(found.read_text(encoding="utf-8")))
        write(path, kept)
        taken.append(name)
    return taken


def merge(kept: Results, plain: dict[str, Any]) -> None:
    """Add a run's rows, each with the run it comes from."""
    run = {key: plain[key] for key in ("trials", "smaller")} | {"command": without_folders(plain["command"])}
    protocol = kept["protocols"].setdefault(plain["protocol"], {})
    for dataset, rows in plain["datasets"].items():
        for row, measured in rows.items():
            before = protocol.setdefault(dataset, {}).get(row)
            if before is None or _size(before["run"]) <= _size(run):
                where = {key: measured[key] for key in ("machine", "versions")}
                numbers = {key: given for key, given in measured.items() if key not in where}
                protocol[dataset][row] = numbers | {"run": run | where}


def _size(run: dict[str, Any]) -> tuple[int, bool]:
    return run["trials"], "epochs" not in run["smaller"]


def without_folders(command: str) -> str:
    """A command with FOLDER for the folder of the data, and without those of results: it trains all it shows.

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


def write(path: Path, kept: Results) -> None:
    """Store the results of a table."""
    runs: list[dict[str, Any]] = []

    def number(run: dict[str, Any]) -> int:
        if run not in runs:
            runs.append(run)
        return runs.index(run)

    protocols = _with_runs(kept["protocols"], number)
    text = _text({"table": kept["table"], "runs": runs, "protocols": protocols}, "\n")
    write_file(path, f"{text}\n".encode())


def read(path: Path) -> Results:
    """A table's results as they were before they were written."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return {"table": found["table"], "protocols": _with_runs(found["protocols"], found["runs"].__getitem__)}


def _with_runs(protocols: dict[str, Any], exchange: Callable[[Any], Any]) -> dict[str, Any]:
    """The same with something else for every row's run."""
    return {
        protocol: {
            dataset: {row: measured | {"run": exchange(measured["run"])} for row, measured in rows.items()}
            for dataset, rows in datasets.items()
        }
        for protocol, datasets in protocols.items()
    }


def _text(given: Any, line: str) -> str:
    r"""JSON with a line for each entry of a dictionary and each dictionary of a list; other lists are one line.

    >>> print(_text({"values": {"f1": [0.5, 0.25]}, "epochs": []}, "\n"))
    {
     "values": {
      "f1": [0.5, 0.25]
     },
     "epochs": []
    }
    """
    inner = line + " "
    if given and isinstance(given, dict):
        entries = [f"{_text(key, inner)}: {_text(value, inner)}" for key, value in given.items()]
        return "{" + inner + f",{inner}".join(entries) + line + "}"
    if given and isinstance(given, list) and all(isinstance(each, dict) for each in given):
        return "[" + inner + f",{inner}".join(_text(each, inner) for each in given) + line + "]"
    return json.dumps(given, ensure_ascii=False)


def of_protocols(spec: TableSpec, found: Results) -> list[tuple[str, Any]]:
    """What was measured under each protocol, in the order of the table's file."""
    return [(name, found["protocols"][name]) for name in spec.protocols if name in found["protocols"]]


def paths_of(spec: TableSpec, found: Results) -> dict[str, dict[str, list[float]]]:
    """For each row how its first trial went, epoch by epoch: on training batches, and what was watched."""
    return {
        row: rows[row]["chosen"]["path"]
        | {f"validation {name}": values for name, values in rows[row]["chosen"]["watched"].items()}
        for of in found["protocols"].values()
        for rows in of.values()
        for row in spec.rows
        if "path" in rows.get(row, {}).get("chosen", {})
    }
