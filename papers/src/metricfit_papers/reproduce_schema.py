"""What ``metricfit reproduce`` and ``metricfit datasets`` print with ``--json``."""

from __future__ import annotations

from typing import Any, TypedDict

from metricfit.cli.schemas import Schema, output_schema


class Row(TypedDict):
    """A measured row of a table.

    Attributes:
        values: One value per trial, by the name of the column.
        seconds: Seconds of training.
        epochs: Number of epochs of each trial.
        machine: The machine.
        versions: Versions of the packages.
        chosen: What a search chose; null if nothing was searched.
    """

    values: dict[str, list[float | None]]
    seconds: float
    epochs: list[int]
    machine: str
    versions: dict[str, str]
    chosen: dict[str, Any] | None


class Average(TypedDict):
    """The means of a row over its trials.

    Attributes:
        values: One value per dataset, by the name of the column.
        seconds: Seconds of training, of all datasets.
    """

    values: dict[str, list[float | None]]
    seconds: float


class ProtocolResult(TypedDict):
    """The results of a protocol.

    Attributes:
        table: Name of the table.
        protocol: Name of the protocol.
        trials: Number of trials.
        smaller: How much smaller the run is than the table, in words; empty if it is not.
        command: The command that was run.
        datasets: The results on each dataset, by its name.
        average: For each row the means over its trials, one per dataset; null if the table has no such average.
        file: The file of the results.
    """

    table: str
    protocol: str
    trials: int
    smaller: str
    command: str
    datasets: dict[str, dict[str, Row]]
    average: dict[str, Average] | None
    file: str


class Copied(TypedDict):
    """What was copied from a folder.

    Attributes:
        source: The folder.
        copied: Cells that were copied.
        here: Cells that were finished here already.
        unfinished: Cells that are not finished there.
        damaged: Cells that cannot be read.
    """

    source: str
    copied: int
    here: int
    unfinished: list[str]
    damaged: list[str]


class Run(TypedDict):
    """How much of the published size was run for the pages, in words; empty if nothing was.

    Attributes:
        protocols: The protocols that were run.
        datasets: Datasets, such as `3 of 4`.
        trials: Trials.
        epochs: Epochs of the longest training.
        smaller: What is smaller than published.
        minutes: Minutes of training.
    """

    protocols: str
    datasets: str
    trials: str
    epochs: str
    smaller: str
    minutes: str


class TableData(TypedDict):
    """Data that a table needs.

    Attributes:
        name: Name for `metricfit datasets --fetch`.
        present: Whether they are in the folder.
        fetch: Whether they can be downloaded by a program.
    """

    name: str
    present: bool
    fetch: bool


class ListedTable(TypedDict):
    """A table of ``--list``.

    Attributes:
        name: Name of the table.
        title: Its title.
        paper: The paper.
        where: Where it is in the paper.
        protocols: Names of the protocols.
        datasets: Names of the datasets.
        rows: Names of the rows.
        run: How much of the published size was run for the pages, in words; empty if nothing was.
        data: The data that it needs.
    """

    name: str
    title: str
    paper: str
    where: str
    protocols: list[str]
    datasets: list[str]
    rows: list[str]
    run: Run
    data: list[TableData]


class Result(TypedDict):
    """What ``reproduce --json`` prints.

    Attributes:
        table: Name of the table; null for `--list`, and if cells are only copied.
        protocols: The results of each protocol.
        copied: What was copied from each folder of `--from`.
        tables: The tables of `--list`; otherwise null.
    """

    table: str | None
    protocols: list[ProtocolResult]
    copied: list[Copied]
    tables: list[ListedTable] | None


def reproduce_schema() -> Schema:
    """Return the JSON Schema of the output of ``metricfit reproduce --json``."""
    return output_schema("reproduce", Result)


class Dataset(TypedDict):
    """A dataset of the papers and studies.

    Attributes:
        name: Name for `metricfit_papers.datasets.load`.
        rows: Number of rows or images.
        positives: Number of positives; null for images of several classes.
        positive: What the positive class means; empty for images of several classes.
        source: Where it comes from.
        fetch: Whether `--fetch` downloads it.
    """

    name: str
    rows: int
    positives: int | None
    positive: str
    source: str
    fetch: bool


class FetchedDataset(TypedDict):
    """A dataset of ``--fetch``.

    Attributes:
        name: Name of the dataset.
        path: Its file or folder.
        licence: Its licence, in words.
        new: Whether it was downloaded; false if it was there already.
    """

    name: str
    path: str
    licence: str
    new: bool


class DatasetList(TypedDict):
    """What ``datasets --json`` prints.

    Attributes:
        datasets: The datasets; empty with `--fetch`.
        fetched: The datasets of `--fetch`.
    """

    datasets: list[Dataset]
    fetched: list[FetchedDataset]


def datasets_schema() -> Schema:
    """Return the JSON Schema of the output of ``metricfit datasets --json``."""
    return output_schema("datasets", DatasetList)
