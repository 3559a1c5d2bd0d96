"""The trials of a dataset under a protocol: rows as numbers, and which are trained on, watched and tested."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.data import Preparation, Table, folds, load, split
from metricfit.data.loading import file_of
from metricfit_papers.datasets.published_sets import bridging_the_gap
from metricfit_papers.images.image_tasks import ImageTask
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import made
from metricfit_papers.specs.table_spec import Dataset, Protocol

Rows = NDArray[np.int64]
Parts = tuple[Rows, Rows, Rows]


@dataclass(frozen=True)
class Trial:
    """One trial's rows as numbers, standardised on its training rows; where validation rows are none, training rows."""

    number: int
    x: Tensor
    y: Tensor
    train: Tensor
    validation: Tensor
    test: Tensor
    every_test: Tensor | None = None

    @property
    def every_test_rows(self) -> Tensor:
        """Numbers of the test rows and, where a task has more of them, of those too; in order."""
        return self.test if self.every_test is None else self.every_test

    def test_rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels."""
        return self.x[self.test], self.y[self.test]

    def validation_rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels."""
        return self.x[self.validation], self.y[self.validation]


def trials_of(
    dataset: Dataset, folder: str | None, prepare: str, protocol: Protocol, trials: int, beside: str
) -> list[Trial]:
    """All trials; where only weights differ, they share their tensors.

    Args:
        dataset: which.
        folder: of the data files.
        prepare: one of PREPARATIONS.
        protocol: how trials differ.
        trials: how many.
        beside: the folder of the table's file, where a user's data file may be.
    """
    task = _image_task(dataset)
    if task is not None:
        return _trials_of_images(task, _given(folder, dataset), trials, protocol)
    table = table_of(dataset, folder, beside)
    y = torch.tensor(table.y)  # a copy: pandas may lend an array that must not be written to
    numbers = PREPARATIONS[prepare](table)
    found: list[Trial] = []
    kept: tuple[Any, ...] = ()
    for number, parts in enumerate(_parts(table, protocol, trials)):
        if not kept or protocol.varied != "weights":
            train, validation, test = parts
            x = torch.from_numpy(numbers(train))
            watched = validation if len(validation) else train
            kept = (x, y, *(torch.from_numpy(rows) for rows in (train, watched, test)))
        found.append(Trial(number, *kept))
    return found


def _trials_of_images(task: ImageTask, folder: str, trials: int, protocol: Protocol) -> list[Trial]:
    """Trials that share all images, as bytes."""
    x, y = map(torch.from_numpy, task.images(folder))
    drawn = enumerate(task.trials(folder, trials, protocol))
    return [Trial(number, x, y, *map(torch.from_numpy, each)) for number, each in drawn]


def _image_task(dataset: Dataset) -> ImageTask | None:
    found = None if dataset.made is None else made(dataset.made, vocabulary.DATASETS)
    return found if isinstance(found, ImageTask) else None


def _given(folder: str | None, dataset: Dataset) -> str:
    if folder is None:
        raise ValueError(
            f"{dataset.title} is read from a folder: give --data FOLDER. docs/reproduction/data.md says which file "
            "goes where and how to get it"
        )
    return folder


@lru_cache(maxsize=2)
def table_of(dataset: Dataset, folder: str | None, beside: str) -> Table:
    """The dataset's table; the two that were read last are kept in memory."""
    if dataset.made is not None:
        table: Table = made(dataset.made, vocabulary.DATASETS)
        return table
    if dataset.file is not None:
        return _own_table(dataset, folder, beside)
    return load(dataset.name, _given(folder, dataset))


def check_there(dataset: Dataset, folder: str | None, beside: str) -> None:
    """An error that says how to get the dataset, if its file is missing."""
    if dataset.file is not None:
        _own_file(dataset, folder, beside)
    elif dataset.made is None:
        file_of(dataset.name, _given(folder, dataset))


def content_of(dataset: Dataset, folder: str | None, beside: str) -> str | None:
    """A hash of a user's file, or how much of an image set is there; others are known to be as they should."""
    task = _image_task(dataset)
    if task is not None:
        return task.content(_given(folder, dataset))
    if dataset.file is None:
        return None
    return hashlib.sha256(_own_file(dataset, folder, beside).read_bytes()).hexdigest()[:16]


def images_of(dataset: Dataset, folder: str | None) -> str | None:
    """The fingerprint of an image set's pixels; None of tables."""
    task = _image_task(dataset)
    return None if task is None else fingerprint(task.images(_given(folder, dataset))[0])


def fingerprint(numbers: NDArray[Any]) -> str:
    """Sixteen characters that differ where the numbers do."""
    return hashlib.sha256(numbers.tobytes()).hexdigest()[:16]


def part_of(dataset: Dataset, folder: str | None) -> str:
    """How much of an image set is there, in words, if it is not whole and the task would use all of it."""
    task = _image_task(dataset)
    return "" if task is None else task.part(_given(folder, dataset))


def _own_file(dataset: Dataset, folder: str | None, beside: str) -> Path:
    assert dataset.file is not None
    places = [Path(each) / dataset.file for each in (folder, beside) if each is not None]
    path = next((each for each in places if each.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{dataset.title}: there is no file {' or '.join(map(str, places))}")
    return path


def _own_table(dataset: Dataset, folder: str | None, beside: str) -> Table:
    path = _own_file(dataset, folder, beside)
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    if dataset.target not in frame.columns:
        raise ValueError(f"{path} has no column {dataset.target!r}, only {', '.join(map(str, frame.columns))}")
    labels = frame[dataset.target].astype(str) == str(dataset.positive)
    if not 0 < labels.sum() < len(labels):
        raise ValueError(f"in {path} {labels.sum()} of {len(labels)} rows have {dataset.target} = {dataset.positive}")
    features = frame.drop(columns=dataset.target)
    return Table(dataset.name, features, labels.to_numpy().astype(np.int64), str(dataset.positive), str(path))


def _parts(table: Table, protocol: Protocol, trials: int) -> Iterator[Parts]:
    """Training, validation and test rows of each trial; of the first alone where only weights differ."""
    if protocol.varied == "folds":
        yield from _folds(table, protocol, trials)
        return
    parts: Parts | None = None
    for trial in range(trials):
        if parts is None or protocol.varied == "splits":
            parts = _split(table, protocol, trial)
        yield parts


def _split(table: Table, protocol: Protocol, trial: int) -> Parts:
    everything = np.arange(len(table.y))
    if protocol.published_test and table.published_split is not None:
        test = everything[table.published_split == "test"]
        rest = everything[table.published_split != "test"]
        share = protocol.fractions[0] / (protocol.fractions[0] + protocol.fractions[1])
        train, validation = _cut(table, rest, (share, 1 - share), protocol.split, trial)
        return train, validation, test
    given = [each for each in protocol.fractions if each > 0]
    parts = _cut(table, everything, tuple(given), protocol.split, trial)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else (parts[0], np.empty(0, np.int64), parts[1])


def _cut(table: Table, rows: Rows, fractions: tuple[float, ...], how: str, seed: int) -> list[Rows]:
    """Parts of these rows."""
    if how == "random":
        shuffled = np.random.default_rng(seed).permutation(rows)
        ends = np.round(np.cumsum(fractions)[:-1] * len(rows)).astype(int)
        return [np.sort(part) for part in np.split(shuffled, ends)]
    apart = how == "apart"
    groups = None if table.groups is None or not apart else table.groups[rows]
    of_rows = split(
        table.X.iloc[rows], table.y[rows], fractions, seed=seed, groups=groups, keep_duplicates_together=apart
    )
    return [rows[part] for part in of_rows]


def _folds(table: Table, protocol: Protocol, trials: int) -> Iterator[Parts]:
    """Each fold the test rows once; validation rows are a part of the rest."""
    apart = protocol.split == "apart"
    groups = table.groups if apart else None
    share = protocol.fractions[1] / (protocol.fractions[0] + protocol.fractions[1])
    for trial, (rest, test) in enumerate(
        folds(table.X, table.y, trials, seed=0, groups=groups, keep_duplicates_together=apart)
    ):
        if share == 0:
            yield rest, np.empty(0, np.int64), test
        else:
            train, validation = _cut(table, rest, (1 - share, share), protocol.split, trial)
            yield train, validation, test


Numbers = Callable[[Rows], NDArray[np.float32]]


def _as_bridging_the_gap(table: Table) -> Numbers:
    """As Tsoi et al.: text as the rank of its category, every column centred and scaled on the training rows."""
    values = _ranked(table)

    def numbers(train: Rows) -> NDArray[np.float32]:
        mean, deviation = values[train].mean(0), values[train].std(0)
        scaled: NDArray[np.float32] = ((values - mean) / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
        return scaled

    return numbers


def _not_scaled(table: Table) -> Numbers:
    """As Tsoi et al., but for the centring and scaling."""
    values = _ranked(table).astype(np.float32)
    return lambda train: values


def _ranked(table: Table) -> NDArray[np.float64]:
    """The columns that Tsoi et al. use, text as the rank of its category."""
    four = ("adult", "creditcard", "cocktailparty", "mammography")
    frame = bridging_the_gap(table).X if table.name in four else table.X
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    frame = frame.assign(**{name: frame[name].astype("category").cat.codes for name in text})
    values: NDArray[np.float64] = frame.to_numpy(dtype=np.float64)
    return values


def _one_hot(table: Table) -> Numbers:
    """As in this project's study: one-hot text, constant columns dropped, standardised, cut to plus or minus 5."""
    return lambda train: Preparation().fit(table.X.iloc[train]).transform(table.X)


#: How images are prepared: not at all, their networks take bytes.
PIXELS = "pixels"
PREPARATIONS: dict[str, Callable[[Table], Numbers]] = {
    "bridging the gap": _as_bridging_the_gap,
    "bridging the gap, not scaled": _not_scaled,
    "one-hot": _one_hot,
}
