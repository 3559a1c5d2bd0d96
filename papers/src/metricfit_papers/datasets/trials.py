"""The trials of a dataset under a protocol: inputs, labels, and which rows are for training, validation and test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.data import folds, split
from metricfit_papers.datasets import Table
from metricfit_papers.datasets.dataset_files import find_image_task, load_table, read_split_columns, require_folder
from metricfit_papers.datasets.preparations import PREPARATIONS, Rows
from metricfit_papers.images.image_tasks import ImageTask
from metricfit_papers.specs.table_spec import DatasetSpec, ProtocolSpec

Parts = tuple[Rows, Rows, Rows]


@dataclass(frozen=True)
class Trial:
    """The rows of one trial.

    Attributes:
        number: Number of the trial; it seeds the weights and the order of the samples.
        x: Inputs of all rows, standardised on the training rows of the trial.
        y: Labels of all rows.
        train: Numbers of the training rows.
        validation: Numbers of the validation rows; the training rows where the protocol has none.
        test: Numbers of the test rows.
        every_test: Numbers of more test rows, with ``test`` among them, where a task has them.
    """

    number: int
    x: Tensor
    y: Tensor
    train: Tensor
    validation: Tensor
    test: Tensor
    every_test: Tensor | None = None

    @property
    def every_test_rows(self) -> Tensor:
        """Numbers of all test rows, in order."""
        return self.test if self.every_test is None else self.every_test

    def test_rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the test rows."""
        return self.x[self.test], self.y[self.test]

    def validation_rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the validation rows."""
        return self.x[self.validation], self.y[self.validation]


def make_trials(
    dataset: DatasetSpec, folder: str | None, prepare: str, protocol: ProtocolSpec, trials: int, beside: str
) -> list[Trial]:
    """Make all trials of a dataset; if only weights differ between them, they share their tensors.

    Args:
        dataset: Which dataset.
        folder: The folder with the datasets, if any.
        prepare: One of PREPARATIONS; ignored for images.
        protocol: How trials differ.
        trials: Number of trials.
        beside: The folder of the table's file, where a user's data file may be.

    Returns:
        The trials, in the order of their numbers.
    """
    task = find_image_task(dataset)
    if task is not None:
        return _image_trials(task, require_folder(folder, dataset), trials, protocol)
    table = load_table(dataset, folder, beside)
    read_split_columns(dataset, table, protocol)  # refuses a file without the columns by which rows are split
    y = torch.tensor(table.y)  # a copy: pandas may lend an array that must not be written to
    encode = PREPARATIONS[prepare](table)
    result: list[Trial] = []
    tensors: tuple[Any, ...] = ()
    for number, (train, validation, test) in enumerate(_split_trials(table, protocol, trials)):
        if not tensors or protocol.varied != "weights":
            x = torch.from_numpy(encode(train))
            watched = validation if len(validation) else train
            tensors = (x, y, *(torch.from_numpy(rows) for rows in (train, watched, test)))
        result.append(Trial(number, *tensors))
    return result


def _image_trials(task: ImageTask, folder: str, trials: int, protocol: ProtocolSpec) -> list[Trial]:
    """Make trials that share all images, as bytes."""
    x, y = map(torch.from_numpy, task.images(folder))
    draws = enumerate(task.trials(folder, trials, protocol))
    return [Trial(number, x, y, *map(torch.from_numpy, draw)) for number, draw in draws]


def _split_trials(table: Table, protocol: ProtocolSpec, trials: int) -> Iterator[Parts]:
    """Yield training, validation and test rows of each trial; the same split for all if only weights differ."""
    if protocol.varied == "folds":
        yield from _split_folds(table, protocol, trials)
        return
    parts: Parts | None = None
    for trial in range(trials):
        if parts is None or protocol.varied == "splits":
            parts = _split_once(table, protocol, trial)
        yield parts


def _split_once(table: Table, protocol: ProtocolSpec, trial: int) -> Parts:
    everything = np.arange(len(table.y))
    if protocol.published_test and table.published_split is not None:
        test = everything[table.published_split == "test"]
        rest = everything[table.published_split != "test"]
        share = protocol.fractions[0] / (protocol.fractions[0] + protocol.fractions[1])
        train, validation = _cut(table, rest, (share, 1 - share), protocol.split, trial)
        return train, validation, test
    fractions = tuple(fraction for fraction in protocol.fractions if fraction > 0)
    parts = _cut(table, everything, fractions, protocol.split, trial)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else (parts[0], np.empty(0, np.int64), parts[1])


def _cut(table: Table, rows: Rows, fractions: tuple[float, ...], how: str, seed: int) -> list[Rows]:
    """Split rows into parts of these fractions."""
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


def _split_folds(table: Table, protocol: ProtocolSpec, trials: int) -> Iterator[Parts]:
    """Yield each fold as the test rows once; the validation rows are a part of the rest."""
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
