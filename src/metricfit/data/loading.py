"""Datasets by name: from a folder, or from OpenML."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml

from metricfit._files import new_file
from metricfit.data.catalogue import CATALOGUE, Entry, entry
from metricfit.data.limits import checked_chunks, read_parquet
from metricfit.data.table import Table
from metricfit.errors import InvalidValueError

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".csv.xz")


def load(name: str, folder: str | PathLike[str], *, verify: bool = True) -> Table:
    """The dataset ``name`` from its file in ``folder``, its columns as the origin has them.

    The file is ``tabular/NAME`` or ``imblearn_bench/NAME``, as .parquet, .csv, .csv.gz or .csv.xz, with the label in a
    column ``target`` of 0 and 1 or in the origin's own column. Nothing is downloaded; `fetch` does that. ``verify``
    compares the numbers of rows and positives with the known ones. `Preparation` turns the columns into numbers.

    >>> load("mammography", "/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: mammography is not in /nowhere: no file tabular/mammography with the ending .parquet, .csv, ...
    """
    known = entry(name)
    return _table(name, known, _read(name, Path(folder)), str(known.source), verify)


def fetch(name: str, folder: str | PathLike[str] | None = None, *, verify: bool = True) -> Table:
    """The dataset ``name`` from OpenML, kept in ``folder`` or in scikit-learn's own.

    For adult, creditcard, mammography and phoneme. OpenML's credit card set has no ``Time``, and its Adult set does
    not say which rows UCI put in the test set: `Table.published_split` is None.
    """
    known = entry(name)
    if known.openml is None:
        there = ", ".join(sorted(each for each, given in CATALOGUE.items() if given.openml is not None))
        raise InvalidValueError(
            f"{name} is not fetched from OpenML, only {there}; download it from {known.source} and use load()"
        )
    bunch = fetch_openml(data_id=known.openml, as_frame=True, data_home=None if folder is None else str(folder))
    return _table(name, known, bunch.frame, f"https://www.openml.org/d/{known.openml}", verify)


def download(name: str, folder: str | PathLike[str], *, verify: bool = True) -> Path:
    """Fetch the dataset ``name`` from OpenML and write it where `load` looks for it in ``folder``; the file's path.

    For those that `fetch` knows. A file that is there already is left alone.
    """
    known = entry(name)
    there = next((path for path in _places(known, Path(folder)) if path.is_file()), None)
    if there is not None:
        return there
    table = fetch(name, verify=verify)
    path = Path(folder) / f"{known.file}.csv"
    with new_file(path) as unfinished:
        table.X.assign(target=table.y).to_csv(unfinished, index=False)
    return path


def _places(known: Entry, folder: Path) -> list[Path]:
    return [folder / (known.file + suffix) for suffix in SUFFIXES]


def file_of(name: str, folder: str | PathLike[str]) -> Path:
    """The dataset's file in ``folder``; an error that says what to download and where to put it, if there is none."""
    known = entry(name)
    for path in _places(known, Path(folder)):
        if path.is_file():
            return path
    own = "" if known.label == "target" else f" or in the origin's {known.label!r}"
    openml = f"; or call metricfit.data.loading.download({name!r}, {str(folder)!r})" if known.openml is not None else ""
    raise FileNotFoundError(
        f"{name} is not in {folder}: no file {known.file} with the ending {', '.join(SUFFIXES)}. Download it from "
        f"{known.source} and put it there, labels in a column 'target' of 0 and 1{own}{openml}"
    )


def _read(name: str, folder: Path) -> Any:
    path = file_of(name, folder)
    if path.suffix == ".parquet":
        return read_parquet(path)
    for _ in checked_chunks(path):  # before pandas unpacks it
        pass
    return pd.read_csv(path)


def _table(name: str, known: Entry, frame: Any, source: str, verify: bool) -> Table:
    label = next((column for column in ("target", known.label) if column in frame.columns), None)
    if label is None:
        raise InvalidValueError(
            f"{name} has neither a column 'target' nor {known.label!r}, only {', '.join(frame.columns)}"
        )
    y = _zero_one(name, known, frame[label], label)
    if verify and (len(y), int(y.sum())) != (known.rows, known.positives):
        raise InvalidValueError(
            f"{name} should have {known.rows} rows with {known.positives} positives, this one has {len(y)} with "
            f"{int(y.sum())}; get it from {known.source}, or pass verify=False if it is meant to differ"
        )
    beside = {key: column for key in ("groups", "published_split") if (column := getattr(known, key)) in frame.columns}
    arrays = {key: frame[column].to_numpy() for key, column in beside.items()}
    features = frame.drop(columns=[label, *beside.values(), *known.drop], errors="ignore")
    for column in features.columns:
        if isinstance(features[column].dtype, pd.CategoricalDtype):
            features[column] = features[column].astype(features[column].cat.categories.dtype)
    return Table(name, features.reset_index(drop=True), y, known.positive, source, **arrays)


def _zero_one(name: str, known: Entry, column: Any, label: str) -> Any:
    """Labels as 0 and 1; text is stripped of the quotes and stops that some copies carry."""
    if column.isna().any():
        raise InvalidValueError(
            f"{name} has {int(column.isna().sum())} rows without a label in the column {label!r}; drop them"
        )
    text = column.astype(str).str.strip(" '.")
    positive = "1" if label == "target" else known.label_of_positive
    if text.nunique() > 2:
        raise InvalidValueError(f"{name} should have two labels in the column {label!r}, it has {text.nunique()}")
    if label == "target" and not text.isin(["0", "1"]).all():
        raise InvalidValueError(
            f"the column 'target' of {name} holds {', '.join(sorted(text.unique()))}; make it 0 and 1"
        )
    return (text == positive).to_numpy().astype(np.int64)
