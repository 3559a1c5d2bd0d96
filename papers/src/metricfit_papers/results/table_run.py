"""Running a table: one cell per dataset and trained row, whose report has the numbers of all its trials."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from metricfit._files import hash_bytes
from metricfit.errors import InvalidValueError
from metricfit.runs import cells
from metricfit_papers.datasets.dataset_files import (
    check_dataset_file,
    content_key,
    describe_part,
    fingerprint,
    image_fingerprint,
)
from metricfit_papers.datasets.preparations import PIXELS
from metricfit_papers.datasets.trials import make_trials
from metricfit_papers.rows.job import RowJob
from metricfit_papers.rows.row_kinds import KINDS
from metricfit_papers.specs.column_names import DELONG, SECONDS
from metricfit_papers.specs.table_spec import RowSpec, TableSpec

CELLS = "cells"  # the folder of the cells, in the folder of the run
NAMED = 3


class UnfinishedCellsError(cells.CellError):
    """Cells are not finished, and training was not allowed.

    Args:
        missing: The cells that are not finished.
        total: Number of cells of the table.
        folder: Folder of the run.

    Example:
        >>> error = UnfinishedCellsError([cells.Cell(("adult", "paper", "BCE"), {})], 4, "runs")
        >>> len(error.missing), error.total
        (1, 4)
    """

    def __init__(self, missing: Sequence[cells.Cell], total: int, folder: str | os.PathLike[str]) -> None:
        named = "; ".join(map(str, missing[:NAMED]))
        more = f"; and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        super().__init__(
            f"{len(missing)} of {total} cells are not finished in {folder}: {named}{more}. To train them, leave out "
            "--finished (in Python, train=False); --from copies the finished cells of another folder"
        )
        self.missing, self.total = list(missing), total


class MissingDataError(FileNotFoundError):
    """Datasets are missing, and nothing was trained.

    Args:
        missing: One line per dataset, which says how to get it.
        others: Names of the other datasets of the run.

    Example:
        >>> print(MissingDataError(["adult is not in data"], ["mammography"]))
        adult is not in data
        To run the others only: --only mammography
    """

    def __init__(self, missing: Sequence[str], others: Sequence[str]) -> None:
        remedy = [f"To run the others only: {' '.join(f'--only {name}' for name in others)}"] if others else []
        super().__init__("\n".join([*missing, *remedy]))
        self.missing = list(missing)
        self.others = list(others)


@dataclass(frozen=True)
class MeasuredRow:
    """What was measured for a row on a dataset.

    Attributes:
        values: For each column one value per trial.
        seconds: Seconds of training.
        epochs: Number of epochs of each trial.
        machine: The machine, in words.
        versions: Versions of the packages.
        data: Fingerprint of the data.
        chosen: What a search chose.
    """

    values: dict[str, list[float]]
    seconds: float
    epochs: list[int]
    machine: str
    versions: dict[str, str]
    data: str
    chosen: dict[str, Any]


@dataclass(frozen=True)
class TableResult:
    """The measured numbers of a table under a protocol.

    Attributes:
        spec: The table.
        protocol: Name of the protocol.
        trials: Number of trials.
        epochs: Maximum number of epochs, if it is not the table's.
        rows: The measured rows, by dataset and row.
        parts: Descriptions of the image sets that are not complete.

    Example:
        >>> from metricfit_papers import find_table
        >>> TableResult(find_table("btg-1"), "paper", trials=2, epochs=None, rows={}).smaller
        '2 of 10 trials'
    """

    spec: TableSpec
    protocol: str
    trials: int
    epochs: int | None
    rows: dict[tuple[str, str], MeasuredRow]
    parts: tuple[str, ...] = ()

    @property
    def smaller(self) -> str:
        """How much smaller the run is than the table's file says, in words; empty if it is not smaller."""
        parts = [] if self.trials >= self.spec.trials else [f"{self.trials} of {self.spec.trials} trials"]
        longest = sorted(set(self._epochs_of_file()))
        if self.epochs is not None and longest and self.epochs < longest[-1]:
            parts.append(f"at most {self.epochs} of {' or '.join(f'{epochs:,}' for epochs in longest)} epochs")
        return ", ".join([*parts, *self.parts])

    def _epochs_of_file(self) -> Iterator[int]:
        rows = self.spec.rows
        for name in {name for _, name in self.rows}:
            for source in _with_numbers(rows[name]):
                yield from (training.epochs for training in rows[rows[source].of or source].training.values())


def run_table(
    spec: TableSpec,
    protocol: str,
    folder: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    trials: int | None = None,
    epochs: int | None = None,
    only: Collection[str] = (),
    rows: Collection[str] = (),
    without: Collection[str] = (),
    jobs: int = 1,
    backend: str = "loky",
    device: str | None = None,
    watch: cells.Watch | None = None,
    train: bool = True,
) -> TableResult:
    """Train the cells that are not finished in the folder, and return the complete table.

    Args:
        spec: The table.
        protocol: Name of one of its protocols.
        folder: Folder of the run, which keeps the cells.
        data: Folder with the datasets.
        trials: Number of trials; by default the table's.
        epochs: Maximum number of epochs, where it is to be smaller than the table's.
        only: Names of the datasets to run; by default all.
        rows: Names of the rows to run; by default all.
        without: Tags or names of rows to leave out.
        jobs: Number of cells to run at the same time.
        backend: Backend of joblib.
        device: Where networks are trained; by default a GPU if there is one.
        watch: Called after every cell.
        train: Whether to train; False raises UnfinishedCellsError where cells are not finished.

    Returns:
        The measured rows, and how much smaller the run was than the table.

    Raises:
        ValueError: A name is unknown, or no row is left.
        FileNotFoundError: Datasets are missing; the message names all of them and how to get them.
        UnfinishedCellsError: Cells are not finished and ``train`` is False.
        CellError: A cell failed, or was trained on other images.

    Example:
        >>> import tempfile
        >>> from metricfit_papers import find_table
        >>> small = {"trials": 1, "epochs": 1, "only": ["synthetic_05"], "rows": ["BCE, B = 4096"], "device": "cpu"}
        >>> result = run_table(find_table("btg-5"), "paper", tempfile.mkdtemp(), **small)
        >>> list(result.rows)
        [('synthetic_05', 'BCE, B = 4096')]
    """
    _check_words(spec, protocol, only, rows, without)
    check_device(device)
    number, epochs = trials or spec.trials, spec.protocols[protocol].limit(epochs)
    datasets = [name for name in spec.datasets if not only or name in only]
    shown = choose_rows(spec, protocol, rows, without)
    if not shown:
        raise InvalidValueError(
            f"no row of {spec.name} is left: the chosen rows have no numbers under {protocol}, or are excluded"
        )
    sources = [spec.rows[name] for name in dict.fromkeys(name for row in shown for name in _with_numbers(row))]
    trained = list(dict.fromkeys(row.of or row.name for row in sources))
    data_folder = None if data is None else str(data)
    all_cells = {
        (dataset, row): _cell(spec, protocol, dataset, spec.rows[row], number, epochs, data_folder)
        for dataset in datasets
        for row in trained
    }
    root = Path(folder) / CELLS
    reports = cells.read_reports(all_cells.values(), root)
    missing = [cell for cell in all_cells.values() if cell.name not in reports]
    if missing and not train:
        raise UnfinishedCellsError(missing, len(all_cells), folder)
    _check_data(spec, protocol, dict.fromkeys(cell.name[0] for cell in missing), datasets, data_folder)
    _check_images(spec, all_cells, reports, data_folder)
    work = partial(run_cell, spec, protocol, data_folder, device, root)
    reports = cells.run(all_cells.values(), work, root, jobs=jobs, backend=backend, watch=watch)
    measured = {
        (dataset, row.name): _measured(spec, protocol, row, reports[all_cells[dataset, row.of or row.name].name])
        for dataset in datasets
        for row in sources
    }
    for dataset in datasets:
        for row in shown:
            if row.gathers:
                by_column = {column: measured[dataset, name] for column, name in row.gathers.items()}
                once = {spec.rows[name].of or name: measured[dataset, name] for name in row.gathers.values()}
                measured[dataset, row.name] = _gathered(by_column, sum(part.seconds for part in once.values()))
    rows_shown = {(dataset, row.name): measured[dataset, row.name] for dataset in datasets for row in shown}
    parts = filter(None, (describe_part(spec.datasets[name], data_folder) for name in datasets))
    return TableResult(spec, protocol, number, epochs, rows_shown, tuple(dict.fromkeys(parts)))


def choose_rows(spec: TableSpec, protocol: str, rows: Collection[str], without: Collection[str]) -> list[RowSpec]:
    """Return the rows that a run shows: those with numbers under the protocol that are chosen and not left out."""
    chosen = [row for row in spec.shown(protocol) if not rows or row.name in rows]
    return [row for row in chosen if row.name not in without and not set(row.tags) & set(without)]


def _check_data(
    spec: TableSpec, protocol: str, needed: Iterable[str], datasets: Sequence[str], data: str | None
) -> None:
    """Report all missing datasets in one error, before anything is trained."""
    missing = {}
    for name in needed:
        try:
            check_dataset_file(spec.datasets[name], data, str(Path(spec.file).parent), spec.protocols[protocol])
        except FileNotFoundError as error:
            missing[name] = str(error)
    if missing:
        raise MissingDataError(list(missing.values()), [name for name in datasets if name not in missing])


def _check_images(
    spec: TableSpec,
    all_cells: dict[tuple[str, str], cells.Cell],
    reports: dict[tuple[str, ...], dict[str, Any]],
    data: str | None,
) -> None:
    """Refuse finished cells of other images than those in the folder; a cell's name contains only their number."""
    fingerprints: dict[str, str | None] = {}
    for (dataset, _), cell in all_cells.items():
        if cell.name in reports:
            if dataset not in fingerprints:
                fingerprints[dataset] = image_fingerprint(spec.datasets[dataset], data)
            if fingerprints[dataset] not in (None, reports[cell.name].get("data")):
                raise cells.CellError(
                    f"{cell} was trained on other images than those in {data}; give another --out, or remove its "
                    "folder to train it again"
                )


def _with_numbers(row: RowSpec) -> Collection[str]:
    """Return the names of the rows whose numbers a row shows."""
    return row.gathers.values() if row.gathers else [row.name]


def _gathered(by_column: dict[str, MeasuredRow], seconds: float) -> MeasuredRow:
    """Return a row whose columns come from several rows; its epochs come from the first."""
    values = {column: measured.values[column] for column, measured in by_column.items()}
    return replace(next(iter(by_column.values())), values=values, seconds=seconds)


def _cell(
    spec: TableSpec, protocol: str, dataset: str, row: RowSpec, trials: int, epochs: int | None, data: str | None
) -> cells.Cell:
    """Make a cell, named by what its numbers depend on: tables that have a row in common share its cells."""
    settings = spec.cell(protocol, dataset, row, trials, epochs)
    where = str(Path(spec.file).parent)
    settings["content"] = content_key(spec.datasets[dataset], data, where, spec.protocols[protocol])
    digest = hash_bytes(json.dumps(settings, sort_keys=True).encode(), length=8)
    size = f"{trials} trials" + ("" if epochs is None else f", {epochs} epochs")
    return cells.Cell((dataset, protocol, row.name, f"{size} {digest}"), settings)


def run_cell(
    spec: TableSpec, protocol: str, data: str | None, device: str | None, root: Path, cell: cells.Cell
) -> dict[str, Any]:
    """Run one cell, and return its report: for each view and column one value per trial.

    Networks of images take long; they keep checkpoints in the folder of the cell until they are finished.
    """
    dataset, row = spec.datasets[cell.name[0]], spec.rows[cell.name[2]]
    how = spec.protocols[protocol]
    training = row.training.get(protocol)
    if training is not None and cell.spec["epochs"] is not None:
        training = replace(training, epochs=min(training.epochs, cell.spec["epochs"]))
    metrics = {key: column.metric for key, column in spec.columns.items()}
    checkpoints = cell.folder(root) / "training" if spec.prepare == PIXELS else None
    job = RowJob(row, how, training, row.loss.get(protocol), metrics, spec.views(), device, checkpoints)
    trials = make_trials(dataset, data, spec.prepare, how, cell.spec["trials"], str(Path(spec.file).parent))
    trained = KINDS[row.kind](job, trials)
    if checkpoints is not None:
        shutil.rmtree(checkpoints, ignore_errors=True)
    values: dict[str, dict[str, list[float]]] = {view: {} for view in spec.views()}
    for view, columns in values.items():
        for column, metric in metrics.items():
            columns[column] = [
                trial.seconds_per_epoch if metric == SECONDS else trial.values[view][column]
                for trial in trained
                if not metric.startswith(DELONG) or column in trial.values[view]  # there may be nothing to compare with
            ]
    return {
        "values": values,
        "epochs": [trial.epochs for trial in trained],
        "chosen": dict(trained[0].chosen),
        "machine": machine(device),
        "data": fingerprint(trials[0].x.numpy()),
    }


def _measured(spec: TableSpec, protocol: str, row: RowSpec, report: dict[str, Any]) -> MeasuredRow:
    view = row.decided_under(spec.protocols[protocol])
    if not {"values", "epochs", "machine", "data"} <= set(report):
        raise cells.CellError(
            f"the report of {row.of or row.name} is not one of a table; remove its cell to run it again"
        )
    settled = {key: report[key] for key in ("seconds", "epochs", "machine", "versions", "data")}
    return MeasuredRow(values=report["values"][view], chosen=report.get("chosen", {}), **settled)


def check_device(device: str | None) -> None:
    """Raise an error for a device that does not exist."""
    if device not in (None, "cpu") and not (str(device).split(":")[0] == "cuda" and torch.cuda.is_available()):
        allowed = "cpu or cuda" if torch.cuda.is_available() else "cpu, because torch finds no GPU"
        raise InvalidValueError(f"the device must be {allowed}; got {device!r}")


def machine(device: str | None = None) -> str:
    """Describe the machine in words: its GPU, unless networks are trained on the CPU, and its cores."""
    cores = f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} CPU cores"
    if device == "cpu" or not torch.cuda.is_available():
        return cores
    return f"{torch.cuda.get_device_name()}, {cores}"


def _check_words(
    spec: TableSpec, protocol: str, only: Collection[str], rows: Collection[str], without: Collection[str]
) -> None:
    if protocol not in spec.protocols:
        raise InvalidValueError(f"{spec.name} has no protocol {protocol!r}; it has {', '.join(spec.protocols)}")
    tags = {tag for row in spec.rows.values() for tag in row.tags}
    allowed = ((only, spec.datasets, "dataset"), (rows, spec.rows, "row"), (without, {*tags, *spec.rows}, "row or tag"))
    for names, known, kind in allowed:
        for name in names:
            if name not in known:
                raise InvalidValueError(f"{spec.name} has no {kind} {name!r}; it has {', '.join(sorted(known))}")
