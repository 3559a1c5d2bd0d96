"""The datasets that can be loaded by name: their files, labels, sources and sizes."""

from __future__ import annotations

from typing import NamedTuple

from metricfit.errors import InvalidValueError


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
    ),
    "creditcard": Entry(
        *("tabular/creditcard", 284807, 492, "a fraud", "https://www.kaggle.com/datasets/mlg-ulb/creditcardfraud"),
        label="Class",
        openml=1597,
    ),
    "cocktailparty": Entry(
        *("tabular/cocktailparty_dyads", 4800, 1454, "two people who are not in the same group"),
        "https://github.com/vrichter/group-assignment-datasets (how its pairs are built: docs/reproduction/data.md)",
        drop=("timestamp_us", "person1", "person2", "imputed"),
        groups="frame",
    ),
    "diabetes_100k": Entry(
        *("tabular/diabetes_100k", 100000, 8500, "diabetes"),
        "https://www.kaggle.com/datasets/iammustafatz/diabetes-prediction-dataset",
        label="diabetes",
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
    "letter_img": (20000, 734),
    "libras_move": (360, 24),
    "oil": (937, 41),
    "optical_digits": (5620, 554),
    "ozone_level": (2536, 73),
    "pen_digits": (10992, 1055),
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
        "https://zenodo.org/records/61452 (imblearn.datasets.fetch_datasets downloads it; labels -1 and 1 are 0 and 1)",
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
        (True, 30)
    """
    return sorted(CATALOGUE)


def find_entry(name: str) -> Entry:
    """Return the catalogue entry of a dataset; raises ValueError for an unknown name."""
    if name not in CATALOGUE:
        raise InvalidValueError(f"no dataset is called {name!r}; there are {', '.join(names())}")
    return CATALOGUE[name]
