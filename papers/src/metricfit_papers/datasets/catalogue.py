"""Datasets that can be loaded by name: the catalogue, their files in a folder, and tables made from them."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.data.reading import read_file
from metricfit.errors import InvalidValueError


@dataclass(frozen=True, eq=False)
class Table:
    """A dataset for binary classification.

    Args:
        name: Name of the dataset.
        X: A pandas DataFrame of the features.
        y: Labels 0 and 1.
        positive: What the label 1 means.
        source: Where the dataset comes from.
        groups: Rows with the same group belong on one side of a split; None if there are no groups.
        published_split: "train" or "test" for each row, if the publishers divide the dataset; otherwise None.

    Example:
        >>> import pandas as pd
        >>> Table("example", pd.DataFrame({"a": [1.0, 2.0]}), np.array([0, 1]), "a large value", "this page")
        Table('example', 2 x 1, 50.00% positive: a large value)
    """

    name: str
    X: Any
    y: NDArray[np.int64]
    positive: str
    source: str
    groups: NDArray[Any] | None = None
    published_split: NDArray[Any] | None = None

    def __repr__(self) -> str:
        """Return the name, the size and the share of positives, without the rows."""
        rows, columns = self.X.shape
        return f"Table({self.name!r}, {rows} x {columns}, {self.y.mean():.2%} positive: {self.positive})"


class Entry(NamedTuple):
    """One dataset: the expected content of its file, and where to get it."""

    file: str
    rows: int
    positives: int
    positive: str
    source: str
    label: str = "target"
    label_of_positive: str = "1"
    openml: int | None = None
    drop: tuple[str, ...] = ()
    groups: str | None = None
    published_split: str | None = None
    hashes: tuple[tuple[str, str], ...] = ()  # of the published split and the groups, by the name of the column
    by_hand: str = ""  # how a person gets it, if no program can download it


CATALOGUE = {
    "mammography": Entry(
        *("tabular/mammography", 11183, 260, "a microcalcification", "https://www.openml.org/d/310"),
        label="class",
        openml=310,
    ),
    "phoneme": Entry(
        *("tabular/phoneme", 5404, 1586, "an oral vowel, class 2", "https://www.openml.org/d/1489"),
        label="Class",
        label_of_positive="2",
        openml=1489,
    ),
    "adult": Entry(
        *("tabular/adult", 48842, 11687, "income above 50,000 dollars", "https://archive.ics.uci.edu/dataset/2/adult"),
        label="class",
        label_of_positive=">50K",
        openml=1590,
        published_split="split",
        hashes=(("split", "1f9cbec3d31f0db9"),),
    ),
    "creditcard": Entry(
        *("tabular/creditcard", 284807, 492, "a fraud", "https://www.kaggle.com/datasets/mlg-ulb/creditcardfraud"),
        label="Class",
        openml=1597,
    ),
    "cocktailparty": Entry(
        *("tabular/cocktailparty_dyads", 4800, 1454, "two people who are not in the same group"),
        "https://github.com/vrichter/group-assignment-datasets, whose pairs papers/pages/data.md builds",
        drop=("timestamp_us", "person1", "person2", "imputed"),
        groups="frame",
        hashes=(("frame", "ca8afeb66de56c59"),),
    ),
    "diabetes_100k": Entry(
        *("tabular/diabetes_100k", 100000, 8500, "diabetes"),
        "https://www.kaggle.com/datasets/iammustafatz/diabetes-prediction-dataset",
        label="diabetes",
        by_hand="Kaggle asks for an account: open "
        "https://www.kaggle.com/datasets/iammustafatz/diabetes-prediction-dataset, log in, "
        "click Download, and unpack diabetes_prediction_dataset.csv",
    ),
}

# imbalanced-learn's benchmark, Zenodo 61452: rows and positives.
_ZENODO = {
    "abalone": (4177, 391),
    "abalone_19": (4177, 32),
    "arrhythmia": (452, 25),
    "car_eval_34": (1728, 134),
    "car_eval_4": (1728, 65),
    "coil_2000": (9822, 586),
    "ecoli": (336, 35),
    "isolet": (7797, 600),
    "letter_img": (20000, 734),
    "libras_move": (360, 24),
    "oil": (937, 41),
    "optical_digits": (5620, 554),
    "ozone_level": (2536, 73),
    "pen_digits": (10992, 1055),
    "protein_homo": (145751, 1296),
    "satimage": (6435, 626),
    "scene": (2407, 177),
    "sick_euthyroid": (3163, 293),
    "solar_flare_m0": (1389, 68),
    "spectrometer": (531, 45),
    "thyroid_sick": (3772, 231),
    "us_crime": (1994, 150),
    "webpage": (34780, 981),
    "wine_quality": (4898, 183),
    "yeast_me2": (1484, 51),
    "yeast_ml8": (2417, 178),
}
CATALOGUE |= {
    name: Entry(
        *(f"imblearn_bench/{name}", rows, positives, "the rare class of imbalanced-learn's benchmark"),
        "https://zenodo.org/records/61452",
    )
    for name, (rows, positives) in _ZENODO.items()
}

STUDY = (
    *("ecoli", "libras_move", "oil", "solar_flare_m0", "yeast_me2", "car_eval_4", "car_eval_34", "us_crime"),
    *("ozone_level", "sick_euthyroid", "thyroid_sick", "abalone", "wine_quality", "phoneme", "optical_digits"),
    *("satimage", "coil_2000", "pen_digits", "mammography"),
)
"""The 19 datasets of the study of losses and recipes in this project's documentation."""


def names() -> list[str]:
    """List the datasets that `load` can read.

    Returns:
        The names in alphabetical order.

    Example:
        >>> "mammography" in names(), len(names())
        (True, 32)
    """
    return sorted(CATALOGUE)


def find_entry(name: str) -> Entry:
    """Return the catalogue entry of a dataset; raises ValueError for an unknown name."""
    if name not in CATALOGUE:
        raise InvalidValueError(f"no dataset is called {name!r}; there are {', '.join(names())}")
    return CATALOGUE[name]


SUFFIXES = (".parquet", ".csv", ".csv.gz", ".csv.xz")


def load(name: str, folder: str | PathLike[str], *, verify: bool = True) -> Table:
    """Load a dataset from its file in a folder, with the original columns.

    The file is ``tabular/NAME`` or ``imblearn_bench/NAME`` with the ending .parquet, .csv, .csv.gz or .csv.xz. Labels
    are in a column ``target`` of 0 and 1 (or -1 and 1), or in the original column. Nothing is downloaded;
    `metricfit_papers.datasets.fetching.fetch` does that.
    `Preparation` turns the columns into numbers.

    Args:
        name: Name of the dataset; `names` lists them.
        folder: The folder with the files.
        verify: Check the number of rows and positives.

    Returns:
        The dataset.

    Raises:
        FileNotFoundError: The file is missing; the message says where to get it.
        ValueError: The name is unknown, or the file has other content than expected.

    Example:
        >>> load("mammography", "/nowhere")
        Traceback (most recent call last):
        FileNotFoundError: mammography is not in /nowhere: metricfit datasets --fetch mammography --data ...
    """
    entry = find_entry(name)
    return make_table(name, entry, read_file(find_dataset_file(name, folder)), str(entry.source), verify)


def _candidate_paths(entry: Entry, folder: Path) -> list[Path]:
    return [folder / (entry.file + suffix) for suffix in SUFFIXES]


def find_dataset_file(name: str, folder: str | PathLike[str]) -> Path:
    """Find a dataset's file in a folder.

    Args:
        name: Name of the dataset.
        folder: The folder with the files.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: There is no file; the message says what to download and where to put it.
    """
    entry = find_entry(name)
    for path in _candidate_paths(entry, Path(folder)):
        if path.is_file():
            return path
    place = f"{Path(folder) / entry.file}{SUFFIXES[1]}"
    if entry.by_hand:
        raise FileNotFoundError(f"{name} is not in {folder}: {entry.by_hand}. The file is {place}")
    raise FileNotFoundError(
        f"{name} is not in {folder}: metricfit datasets --fetch {name} --data {folder} downloads it, or put the "
        f"file of {entry.source} there as {place}"
    )


def make_table(name: str, entry: Entry, frame: Any, source: str, verify: bool) -> Table:
    """Make a dataset from the columns of its file; raises ValueError for another content than expected."""
    label = next((column for column in ("target", entry.label) if column in frame.columns), None)
    if label is None:
        raise InvalidValueError(
            f"{name} has neither a column 'target' nor {entry.label!r}, only {', '.join(frame.columns)}"
        )
    y = _read_labels(name, entry, frame[label], label)
    if verify and (len(y), int(y.sum())) != (entry.rows, entry.positives):
        raise InvalidValueError(
            f"{name} should have {entry.rows} rows with {entry.positives} positives, this one has {len(y)} with "
            f"{int(y.sum())}; get it from {entry.source}, or pass verify=False if it is meant to differ"
        )
    extra_columns = {
        key: column for key in ("groups", "published_split") if (column := getattr(entry, key)) in frame.columns
    }
    arrays = {key: frame[column].to_numpy() for key, column in extra_columns.items()}
    features = frame.drop(columns=[label, *extra_columns.values(), *entry.drop], errors="ignore")
    for column in features.columns:
        if isinstance(features[column].dtype, pd.CategoricalDtype):
            features[column] = features[column].astype(features[column].cat.categories.dtype)
    return Table(name, features.reset_index(drop=True), y, entry.positive, source, **arrays)


def _read_labels(name: str, entry: Entry, column: Any, label: str) -> Any:
    """Convert labels to 0 and 1; quotes and full stops that some copies have are removed."""
    if column.isna().any():
        raise InvalidValueError(
            f"{name} has {int(column.isna().sum())} rows without a label in the column {label!r}; drop them"
        )
    text = column.astype(str).str.strip(" '.")
    positive = "1" if label == "target" else entry.label_of_positive
    if text.nunique() > 2:
        raise InvalidValueError(f"{name} should have two labels in the column {label!r}, it has {text.nunique()}")
    if label == "target" and not (text.isin(["0", "1"]).all() or text.isin(["-1", "1"]).all()):
        raise InvalidValueError(
            f"the column 'target' of {name} holds {', '.join(sorted(text.unique()))}; make it 0 and 1, or -1 and 1"
        )
    return (text == positive).to_numpy().astype(np.int64)
