"""Foundation models for tables as families: metricfit's own network, TabICL and TabPFN.

Such a model is not trained on the table. It reads training rows as its context whenever it predicts, so a fitted model
is its context and a reference to the weights: the package, its version and the hash of the file.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricfit._extras import explain_missing
from metricfit.core.arrays import Floats, Integers
from metricfit.errors import InvalidValueError, ModelFileError, quote
from metricfit.tabular.checks import check_whole
from metricfit.tabular.estimator_scores import class_scores, to_logits
from metricfit.tabular.families import context_network
from metricfit.tabular.families.arithmetic import check_indices, check_shape
from metricfit.tabular.families.family import Deadline, Family, Features, FittedModel, Splits, TrainingRows
from metricfit.tabular.large_rows import stratified_sample

if TYPE_CHECKING:
    from metricfit.tabular.storage import Folder

Package = Literal["metricfit", "tabicl", "tabpfn"]
#: The family of each package; metricfit has a network of its own.
FAMILIES: dict[Package, str] = {"metricfit": "in_context", "tabicl": "tabicl", "tabpfn": "tabpfn"}
PACKAGES = tuple(FAMILIES)
#: The most classes that a package takes, and the most encoded columns that its weights were trained for.
MOST_CLASSES: dict[str, int] = {"metricfit": 2, "tabicl": 1000, "tabpfn": 10}
MOST_COLUMNS = 500
#: Rows of the context, beyond which rows are drawn.
MOST_ROWS: dict[str, int] = {"metricfit": 1_000, "tabicl": 2_000, "tabpfn": 2_000}
MOST_ROWS_ON_GPU = 20_000
#: Our network leaves out tables of more rows, of which it would read few and predict each slowly.
MOST_ROWS_OF_TABLE = 10_000
#: Rows of the two runs whose seconds say how long all folds take, and the least growth with the rows to this power.
PROBES, LEAST_GROWTH = (64, 256), 1.2
#: Bytes of memory per row and column: numbers of 4 bytes, by the width of the column embeddings, in several copies.
BYTES_PER_CELL, SHARE_OF_MEMORY = 4 * 128 * 24, 0.5
SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class InContext:
    """Settings of a foundation model in ``MetricClassifier(models=[...])``.

    Args:
        package: "metricfit" for our own network, which runs on NumPy, for two classes; or "tabicl" or "tabpfn", which
            must be installed.
        weights: The file of its weights; None for those that come with the package or are in its cache.
        download: Whether the package may download its weights if they are not there. Their licence is its maker's.
        members: Views of the table whose predictions are averaged.

    Raises:
        InvalidValueError: A setting has a value that cannot be used.

    Example:
        >>> InContext("tabicl", members=2)
        InContext(package='tabicl', weights=None, download=False, members=2)
    """

    package: Package
    weights: str | None = None
    download: bool = False
    members: int = 4

    def __post_init__(self) -> None:
        if self.package not in PACKAGES:
            raise InvalidValueError(f"package is one of {', '.join(map(repr, PACKAGES))}; got {quote(self.package)}")
        if self.weights is not None:
            object.__setattr__(self, "weights", os.fspath(self.weights))
        check_whole("members", self.members, 1, "views of the table whose predictions are averaged")


@dataclass(frozen=True)
class Weights:
    """Where the weights of a package are, and what they are."""

    package: Package
    path: str
    version: str
    sha256: str

    @classmethod
    def of_file(cls, package: Package, path: Path) -> Weights:
        """Return the reference to a file."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while part := file.read(2**20):
                digest.update(part)
        return cls(package, str(path), metadata.version(package), digest.hexdigest())


def own_weights(package: str) -> Path | None:
    """Return the file that the package keeps in its own cache; None if there is none, or it is not installed."""
    if package == "metricfit":
        return context_network.WEIGHTS
    if find_spec(package) is None:
        return None
    found: Any = None
    if package == "tabicl":
        from huggingface_hub import try_to_load_from_cache
        from tabicl import TabICLClassifier

        version = inspect.signature(TabICLClassifier).parameters["checkpoint_version"].default
        found = try_to_load_from_cache("jingang/TabICL", version)
    else:
        try:
            from tabpfn.model_loading import resolve_model_path

            found = resolve_model_path(None, "classifier")[0]
        except (ImportError, TypeError):  # not a public function: another version needs weights=
            return None
        found = found[0] if isinstance(found, list) else found
    return Path(found) if isinstance(found, (str, Path)) and Path(found).is_file() else None


def find_weights(settings: InContext) -> Weights:
    """Return the weights that the settings mean.

    Raises:
        ModuleNotFoundError: The package is not installed.
        InvalidValueError: The weights are not on this machine, and may not be downloaded.
    """
    package = settings.package
    with explain_missing(f"the family {package!r}", (package,), f"metricfit[{package}]"):
        __import__(package)
    path = own_weights(package) if settings.weights is None else Path(settings.weights)
    if path is None and settings.download:
        # The package downloads its weights when it is first fitted.
        _classifier(package, None, 1, "cpu", 0).fit(np.arange(16.0).reshape(8, 2), np.arange(8) % 2)
        path = own_weights(package)
    if path is None or not path.is_file():
        where = "in its own cache" if settings.weights is None else f"at {quote(settings.weights)}"
        raise InvalidValueError(
            f"there are no weights of {package} {where}: name their file with tabular.InContext({package!r}, "
            f"weights=...), or let {package} download them with download=True"
        )
    return Weights.of_file(package, path)


def _classifier(package: str, path: str | None, members: int, device: str, seed: int) -> Any:
    """Return the classifier of the package, not yet fitted."""
    if package == "metricfit":
        return context_network.ContextClassifier(Path(path or context_network.WEIGHTS), members, seed)
    if package == "tabicl":
        from tabicl import TabICLClassifier

        return TabICLClassifier(
            n_estimators=members,
            batch_size=1,
            model_path=path,
            allow_auto_download=path is None,
            device=device,
            random_state=seed,
        )
    from tabpfn import TabPFNClassifier

    return TabPFNClassifier(
        n_estimators=members,
        model_path="auto" if path is None else path,
        device=device,
        random_state=seed,
        ignore_pretraining_limits=True,
        fit_mode="low_memory",
    )


@dataclass(frozen=True)
class InContextModel(FittedModel):
    """The contexts of one or several folds, which share their rows.

    Attributes:
        weights: The weights that predict.
        settings: The number of views, the device and the seed.
        x: The rows of all contexts.
        y: Their class numbers.
        context: For each fold, whether a row is in its context, ``(folds, rows)``.
        balance: The share of each class among all rows that the folds trained on.
    """

    weights: Weights
    settings: tuple[int, str, int]
    x: NDArray[np.float32]
    y: Integers
    context: NDArray[np.bool_]
    balance: Floats

    @property
    def folds(self) -> int:
        """The number of folds."""
        return len(self.context)

    def of_fold(self, fold: int) -> InContextModel:
        """Return the model with the context of one fold."""
        rows = self.context[fold]
        context = np.ones((1, int(rows.sum())), dtype=bool)
        return InContextModel(self.weights, self.settings, self.x[rows], self.y[rows], context, self.balance)

    def logits(self, features: Features) -> Floats:
        """Return the logits given the rows of all folds at once, which is one run in place of one per fold."""
        classes, (members, device, seed) = len(self.balance), self.settings
        classifier = _classifier(self.weights.package, self.weights.path, members, device, seed)
        classifier.fit(self.x, self.y)
        step = max(1, _rows_in_memory(self.x.shape[1], device) - len(self.x))
        parts = [
            to_logits(
                class_scores(classifier, features.encoded[first : first + step], np.arange(classes)),
                SMALLEST_PROBABILITY,
                labels=False,
            )
            for first in range(0, max(1, len(features)), step)
        ]
        # Rows were drawn by class, so the balance of the table is put back.
        shift = np.log(self.balance) - np.log(np.bincount(self.y, minlength=classes).clip(1) / len(self.y))
        return np.concatenate(parts) + (shift[1:] - shift[:1] if classes == 2 else shift)

    def stored(self) -> StoredContext:
        """Return the context, and the package, version and hash of the weights."""
        members, _, seed = self.settings
        weights = self.weights.package, self.weights.version, self.weights.sha256
        return StoredContext(*weights, members, seed, self.x, self.y, self.context.astype(np.uint8), self.balance)


@dataclass(frozen=True)
class StoredContext:
    """The contexts of all folds in a folder; the weights are named, and not stored."""

    package: Package
    version: str
    sha256: str
    members: int
    seed: int
    x: NDArray[np.float32]
    y: Integers
    context: NDArray[np.uint8]
    balance: Floats

    def restored(self, folder: Folder) -> InContextModel:
        """Return the model with the weights that this machine has.

        Raises:
            ModelFileError: The arrays are damaged, or the weights here are not the ones that ``fit`` used.
        """
        check_shape("x", self.x, (None, folder.columns))
        check_indices("y", self.y, len(self.x), 0, folder.classes)
        check_shape("context", self.context, (None, len(self.x)))
        check_shape("balance", self.balance, (folder.classes,))
        context = self.context > 0
        if not (len(context) and context.any(axis=1).all() and (self.balance > 0).all()):
            raise ModelFileError("a fold without context, or a class without a share")
        weights = find_weights(InContext(self.package, folder.user_functions.get("weights"), members=self.members))
        if weights.sha256 != self.sha256:
            raise ModelFileError(
                f"{weights.path} is not the file of weights that the model was fitted with; name that file with "
                "load(path, weights=...)"
            )
        settings = (self.members, usual_device(self.package), self.seed % 2**31)
        return InContextModel(weights, settings, self.x, self.y, context, self.balance)


class InContextFamily(Family):
    """A foundation model, for tables of at most 500 encoded columns; of many rows some are drawn as its context.

    Args:
        settings: The package and its weights.
        device: The device of torch; None for a GPU if there is one.
    """

    can_be_stopped = False

    def __init__(self, settings: InContext, device: str | None = None) -> None:
        self.name, self.settings = FAMILIES[settings.package], settings
        self.weights = find_weights(settings)
        self.device = device or usual_device(settings.package)

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Skip tables with more columns or classes than the weights are for, and rows with weights."""
        columns, most = rows.features.take(np.arange(1)).encoded.shape[1], MOST_CLASSES[self.settings.package]
        if self.settings.package == "metricfit" and len(rows) > MOST_ROWS_OF_TABLE:
            return f"more than {MOST_ROWS_OF_TABLE:,} rows"
        if columns > MOST_COLUMNS:
            return f"more than {MOST_COLUMNS} columns"
        if rows.classes > most:
            return f"more than {most} classes"
        return "it takes no weights of rows" if rows.weight is not None else None

    def estimate(self, rows: TrainingRows, splits: Splits, *, deadline: Deadline) -> float:
        """Estimate the seconds from two small runs with the table's columns."""
        train, held_out = splits[-1]
        largest = min(len(train), self._most_rows(rows)) + len(held_out)
        seconds = []
        for number in PROBES:
            some = rows.take(stratified_sample(np.arange(len(rows)), rows.y, number, 0))
            start = time.monotonic()
            self.fit(some, some, seed=0, deadline=deadline).logits(some.features.take(np.arange(len(some))))
            seconds.append(time.monotonic() - start)
        growth = max(LEAST_GROWTH, math.log(seconds[1] / seconds[0]) / math.log(PROBES[1] / PROBES[0]))
        return len(splits) * seconds[1] * max(1.0, largest / (2 * PROBES[1])) ** growth

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Take the rows as context; of many rows the rare classes are kept as far as possible."""
        deadline.check()
        chosen = draw_by_class(train.y, self._most_rows(train), seed)
        counts = np.bincount(train.y, minlength=train.classes).clip(0.5)
        settings = (self.settings.members, self.device, seed % 2**31)
        context = np.ones((1, len(chosen)), dtype=bool)
        return InContextModel(self.weights, settings, train.x[chosen], train.y[chosen], context, counts / counts.sum())

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Put the contexts of all folds into one, in which a row that several folds have is kept once."""
        parts = [model for model in models if isinstance(model, InContextModel)]
        rows = np.concatenate([np.column_stack([model.x, model.y]) for model in parts])
        different, place = np.unique(rows, axis=0, return_inverse=True)
        folds = np.repeat(np.arange(len(parts)), [len(model.y) for model in parts])
        copies = np.zeros((len(parts), len(different)), dtype=np.int64)
        np.add.at(copies, (folds, place.reshape(-1)), 1)
        # A row that occurs k times in a fold is kept k times.
        times = copies.max(axis=0)
        number = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        context = number < np.repeat(copies, times, axis=1)
        kept = np.repeat(different, times, axis=0)
        first = parts[0]
        labels = kept[:, -1].astype(np.int64)
        return InContextModel(
            first.weights, first.settings, kept[:, :-1].astype(np.float32), labels, context, first.balance
        )

    def _most_rows(self, rows: TrainingRows) -> int:
        most = MOST_ROWS[self.settings.package] if self.device == "cpu" else MOST_ROWS_ON_GPU
        columns = rows.features.take(np.arange(1)).encoded.shape[1]
        return max(2 * rows.classes, min(most, _rows_in_memory(columns, self.device) // 2))


def usual_device(package: str) -> str:
    """Return "cuda" if the package uses torch, which finds a GPU; otherwise "cpu"."""
    if package == "metricfit":
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _rows_in_memory(columns: int, device: str) -> int:
    """Return how many rows with this many columns may be read at a time."""
    if device.startswith("cuda"):
        import torch

        free = torch.cuda.mem_get_info(torch.device(device))[0]
    elif hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        free = 4 * 2**30
    return max(256, int(SHARE_OF_MEMORY * free / (BYTES_PER_CELL * (columns + 4))))


def draw_by_class(y: Integers, number: int, seed: int) -> Integers:
    """Draw rows so that each class has an equal share of them, or all its rows if it has fewer.

    >>> np.bincount(np.repeat([0, 1], [90, 10])[draw_by_class(np.repeat([0, 1], [90, 10]), 30, 0)]).tolist()
    [20, 10]
    """
    if len(y) <= number:
        return np.arange(len(y))
    generator, drawn, left = np.random.default_rng(seed), [], number
    labels, counts = np.unique(y, return_counts=True)
    for done, place in enumerate(np.argsort(counts, kind="stable")):
        of_class = np.flatnonzero(y == labels[place])
        share = min(len(of_class), max(1, left // (len(labels) - done)))
        drawn.append(generator.choice(of_class, share, replace=False, shuffle=False))
        left -= share
    return np.sort(np.concatenate(drawn))
