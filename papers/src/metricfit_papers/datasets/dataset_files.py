"""The files of a table's datasets: finding them, reading them, and recognising their content."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit._files import hash_bytes
from metricfit.errors import InvalidValueError
from metricfit_papers.datasets import Table, load
from metricfit_papers.datasets.catalogue import CATALOGUE, find_dataset_file
from metricfit_papers.images.image_tasks import ImageTask
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import build_object
from metricfit_papers.specs.table_spec import DatasetSpec, ProtocolSpec


@lru_cache(maxsize=2)
def load_table(dataset: DatasetSpec, folder: str | None, beside: str) -> Table:
    """Read a dataset that is a table; the two that were read last are kept in memory.

    Args:
        dataset: Which dataset.
        folder: The folder with the datasets, if any.
        beside: The folder of the table's file, where a user's data file may be.

    Returns:
        The table, its columns as the publisher has them.
    """
    if dataset.made is not None:
        table: Table = build_object(dataset.made, vocabulary.DATASETS)
        return table
    if dataset.file is not None:
        return _read_user_table(dataset, folder, beside)
    return load(dataset.name, require_folder(folder, dataset))


def find_image_task(dataset: DatasetSpec) -> ImageTask | None:
    """Return the image task of a dataset; None for a dataset that is a table."""
    built = None if dataset.made is None else build_object(dataset.made, vocabulary.DATASETS)
    return built if isinstance(built, ImageTask) else None


def data_name(dataset: DatasetSpec) -> str | None:
    """Return the name by which the data of a dataset are fetched; None if they are generated or the user's."""
    task = find_image_task(dataset)
    if task is not None:
        return task.origin
    return None if dataset.made is not None or dataset.file is not None else dataset.name


def require_folder(folder: str | None, dataset: DatasetSpec) -> str:
    """The folder with the datasets, or an error that asks for it."""
    if folder is None:
        raise InvalidValueError(
            f"{dataset.title} is read from a folder: give --data FOLDER, or --fetch to download the data. "
            "papers/pages/data.md says which file goes where"
        )
    return folder


def check_dataset_file(dataset: DatasetSpec, folder: str | None, beside: str, protocol: ProtocolSpec) -> None:
    """Raise an error with how to get the dataset, if its file or a column that the protocol needs is missing."""
    if dataset.file is not None:
        _find_user_file(dataset, folder, beside)
    elif dataset.made is None:
        find_dataset_file(dataset.name, require_folder(folder, dataset))
        read_split_columns(dataset, load_table(dataset, folder, beside), protocol)


def read_split_columns(dataset: DatasetSpec, table: Table, protocol: ProtocolSpec) -> dict[str, NDArray[Any]]:
    """Return the columns that decide where the protocol puts a row: the published split and the groups.

    Args:
        dataset: Which dataset.
        table: Its rows.
        protocol: How they are split.

    Returns:
        The columns by name; empty if the protocol or the dataset uses no such column.

    Raises:
        InvalidValueError: The file lacks one of these columns, so that the rows would be split otherwise.
    """
    columns = {}
    for column, attribute in _split_columns(dataset, protocol).items():
        values = getattr(table, attribute)
        if values is None:
            raise InvalidValueError(
                f"{dataset.title}: the file has no column {column!r}, by which the protocol {protocol.name} splits "
                f"the rows. Move the file away and run: metricfit datasets --fetch {dataset.name}"
            )
        columns[column] = values
    return columns


def _split_columns(dataset: DatasetSpec, protocol: ProtocolSpec) -> dict[str, str]:
    """Return the attribute of `Table` for each column by which the protocol splits a dataset of the catalogue."""
    if dataset.made is not None or dataset.file is not None:
        return {}
    entry = CATALOGUE[dataset.name]
    columns = {}
    if protocol.published_test and entry.published_split is not None:
        columns[entry.published_split] = "published_split"
    if protocol.split == "apart" and entry.groups is not None:
        columns[entry.groups] = "groups"
    return columns


def content_key(dataset: DatasetSpec, folder: str | None, beside: str, protocol: ProtocolSpec) -> Any:
    """Return what distinguishes two versions of a dataset, as part of the name of a cell.

    This is a hash of a user's file, how much of an image set is present, or hashes of the columns by which the
    protocol splits the rows. It is None for other datasets, whose content is verified when they are read. Results can
    be shown without the data, so a missing file counts as one with the published columns.
    """
    task = find_image_task(dataset)
    if task is not None:
        return task.content(require_folder(folder, dataset))
    if dataset.file is not None:
        return hash_bytes(_find_user_file(dataset, folder, beside).read_bytes())
    used = _split_columns(dataset, protocol)
    if not used:
        return None
    try:
        table = load_table(dataset, folder, beside)
    except (FileNotFoundError, InvalidValueError):  # what is wrong is reported if the rows are needed
        return {column: known for column, known in CATALOGUE[dataset.name].hashes if column in used}
    columns = read_split_columns(dataset, table, protocol)
    return {column: hash_column(values) for column, values in columns.items()}


def hash_column(values: NDArray[Any]) -> str:
    """Return a hash of a column's values that does not depend on its type.

    >>> hash_column(np.array([1, 2])) == hash_column(np.array(["1", "2"]))
    True
    """
    return hash_bytes("\n".join(map(str, values)).encode())


def image_fingerprint(dataset: DatasetSpec, folder: str | None) -> str | None:
    """Return the fingerprint of the pixels of an image set; None for a dataset that is a table."""
    task = find_image_task(dataset)
    return None if task is None else fingerprint(task.images(require_folder(folder, dataset))[0])


def fingerprint(numbers: NDArray[Any]) -> str:
    """Return sixteen characters that differ if the numbers differ."""
    return hash_bytes(numbers.tobytes())


def describe_part(dataset: DatasetSpec, folder: str | None) -> str:
    """Describe how much of an image set is present; empty if it is complete."""
    task = find_image_task(dataset)
    return "" if task is None else task.part(require_folder(folder, dataset))


def _find_user_file(dataset: DatasetSpec, folder: str | None, beside: str) -> Path:
    assert dataset.file is not None
    places = [Path(place) / dataset.file for place in (folder, beside) if place is not None]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{dataset.title}: there is no file {' or '.join(map(str, places))}")
    return path


def _read_user_table(dataset: DatasetSpec, folder: str | None, beside: str) -> Table:
    path = _find_user_file(dataset, folder, beside)
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    if dataset.target not in frame.columns:
        raise InvalidValueError(f"{path} has no column {dataset.target!r}, only {', '.join(map(str, frame.columns))}")
    labels = frame[dataset.target].astype(str) == str(dataset.positive)
    if not 0 < labels.sum() < len(labels):
        raise InvalidValueError(
            f"in {path} {labels.sum()} of {len(labels)} rows have {dataset.target} = {dataset.positive}"
        )
    features = frame.drop(columns=dataset.target)
    return Table(dataset.name, features, labels.to_numpy().astype(np.int64), str(dataset.positive), str(path))
