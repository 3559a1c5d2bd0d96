"""The cells of a comparison: one model trained on all folds but one, kept as its logits, and what they are about.

Several methods share a training: the default weights the same families that are compared one by one. A training that
does not depend on the metric is shared by comparisons for several metrics in one folder.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit._files import hash_bytes, parse_json, write_file
from metricfit.core.arrays import Floats, Integers
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs import cost_columns
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import get_metric
from metricfit.metrics.requirements import Requirement
from metricfit.runs.cells import Cell, CellError
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.compare.methods import Method, OutsidePredictions, OwnModel
from metricfit.tabular.doctor.finding import column_hashes
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble_fit import draw_apart, families_of, folds_of_rows, prepare_rows, splits_of
from metricfit.tabular.families.family import Deadline, Features, Splits
from metricfit.tabular.families.network import WITHOUT_METRIC, Network
from metricfit.tabular.out_of_fold import LeftOut, fit_family
from metricfit.tabular.row_folds import FORWARD

#: What the fold that was encoded last depends on; its encoder, training rows, test rows, and seconds of the encoding.
_latest: dict[Hashable, tuple[TableEncoder, NDArray[np.float32], Features, float]] = {}


def encode_fold(
    key: Hashable, training: pd.DataFrame, test: pd.DataFrame
) -> tuple[TableEncoder, NDArray[np.float32], Features, float]:
    """Encode a fold, or return what was encoded before if it was the last fold.

    Args:
        key: What the rows depend on: the table, its folds and the number of the fold.
        training: The columns of the training rows.
        test: The columns of the test rows.

    Returns:
        The encoder, the training rows as numbers, the test rows, and the seconds of encoding the training rows.
    """
    if key not in _latest:
        start, encoder = time.perf_counter(), TableEncoder()
        numbers = encoder.fit(training)
        seconds = time.perf_counter() - start
        _latest.clear()
        _latest[key] = encoder, numbers, Features(encoder.transform(test), test), seconds
    return _latest[key]


def forget_encoded_fold() -> None:
    """Free the memory of the last fold."""
    _latest.clear()


#: Trained whatever the time budget is, so that the default and the reference always have a model.
ALWAYS = "boosting"


@dataclass(frozen=True)
class Training:
    """A model that one or several methods consist of.

    Attributes:
        model: An entry of the parameter ``models`` of MetricClassifier.
        class_weight: The parameter ``class_weight`` of MetricClassifier.
    """

    model: str | Network
    class_weight: str | None = None

    @property
    def name(self) -> str:
        """The name of its cells."""
        name = self.model if isinstance(self.model, str) else f"network {self.model.recipe}"
        return name if self.class_weight is None else f"{name} {self.class_weight}"

    @property
    def uses_metric(self) -> bool:
        """Whether the result depends on the metric."""
        if isinstance(self.model, str):
            return self.model == "boosting_metric"
        return self.model.recipe not in WITHOUT_METRIC

    @property
    def uses_requirements(self) -> bool:
        """Whether the result depends on the requirements."""
        return not isinstance(self.model, str) and self.model.recipe == "constrained"


Compared = Method | OwnModel | OutsidePredictions


def trainings_of(method: Compared) -> list[Training | OwnModel]:
    """Return what a method consists of; predictions of other programs need no training."""
    if isinstance(method, Method):
        return [Training(model, method.class_weight) for model in method.models]
    return [method] if isinstance(method, OwnModel) else []


@dataclass(frozen=True)
class TrainingCell(Cell):
    """A cell that knows its training and the index of its test fold."""

    training: Training | OwnModel
    fold: int


@dataclass(frozen=True)
class TrainedLogits:
    """What is kept of a training on one fold.

    Attributes:
        seconds: The time that training took.
        out_of_fold: The logits of the training rows, each by a model that did not train on the row; NaN where all did.
        new: The logits of the rows that are kept apart, and of the test rows after them.
        folds: The inner fold that held out each training row, the same for all trainings; -1 for none.
    """

    seconds: float
    out_of_fold: Floats
    new: Floats
    folds: Integers


class ComparedRows(NamedTuple):
    """The rows of a comparison; with a column of times, in the order of time.

    Attributes:
        X: The features.
        y: The labels as the user has them.
        groups: One group per row, or None.
        weight: One weight per row, above 0, or None.
        order: The place of each row in the user's table.
        total: The number of rows of that table; rows of weight 0 are left out.
        target: The name of the target.
        group: The name of the column of groups, or None.
        time: The name of the column of times, or None.
        numbers: The class number of each row; of two classes, 1 is the positive one.
        labels: The labels in the order of the class numbers.
    """

    X: pd.DataFrame
    y: pd.Series
    groups: NDArray[Any] | None
    weight: Floats | None
    order: Integers
    total: int
    target: str
    group: str | None
    time: str | None
    numbers: Integers
    labels: NDArray[Any]

    @staticmethod
    def of(values: NDArray[Any] | None, part: Integers) -> NDArray[Any] | None:
        """Return the values of some rows; None if rows have none."""
        return None if values is None else values[part]


@dataclass(frozen=True)
class TrainingTask:
    """The data that every cell of a comparison works on.

    Attributes:
        rows: The rows.
        splits: For each fold, the training rows and the test rows.
        metric: The name of the metric.
        average: Its average over several classes.
        requirements: The requirements on classes by their numbers.
        asked: The requirements as the user wrote them.
        confidence: The probability with which the requirements must hold on new rows, or None.
        calibration: The share of the training rows of each fold that decisions are chosen on, or None.
        seed: The seed of every model.
        time_budget: Seconds of each training; None for no limit.
        jobs: Number of threads of each training.
    """

    rows: ComparedRows
    splits: Splits
    metric: str
    average: ScalarAverage
    requirements: Sequence[Requirement]
    asked: Sequence[str]
    confidence: float | None
    calibration: float | None
    seed: int
    time_budget: float | None
    jobs: int

    @property
    def subject_to(self) -> list[str]:
        """The requirements as text, for rows whose labels are class numbers."""
        several = len(self.rows.labels) > 2
        indices = [requirement.metric.class_index if several else None for requirement in self.requirements]
        pairs = zip(self.requirements, indices, strict=True)
        return [str(replace(each, metric=each.metric.of_class(index))) for each, index in pairs]

    @cached_property
    def columns(self) -> Mapping[str, Any]:
        """The columns with the costs of each row, if the metric takes any."""
        return cost_columns(get_metric(self.metric), self.rows.X)

    def parts(self, fold: int) -> tuple[Integers, Integers, Integers]:
        """Return the rows that a fold learns from, the rows that it chooses decisions on alone, and its test rows."""
        training, test = self.splits[fold]
        if self.calibration is None:
            return training, training[:0], test
        groups, forward = self.rows.of(self.rows.groups, training), self.rows.time is not None
        apart = draw_apart(training, groups, self.calibration, forward=forward, seed=self.seed + fold)
        return np.setdiff1d(training, apart), apart, test

    def cells(self, name: str, data: str, methods: Sequence[Compared]) -> list[TrainingCell]:
        """Return one cell per training and fold, fold by fold.

        Args:
            name: The name of the table.
            data: A hash of the rows, so that cells of another table are not taken for cells of this one.
            methods: The methods.
        """
        ends = np.concatenate([np.append(test, -1) for _, test in self.splits])
        spec = {"data": data, "splits": hash_bytes(ends.tobytes()), "seed": self.seed, "time_budget": self.time_budget}
        spec |= {"calibration": self.calibration}
        trainings = dict.fromkeys(training for method in methods for training in trainings_of(method))
        return [self._cell(name, spec, training, fold) for fold in range(len(self.splits)) for training in trainings]

    def train(self, cell: Cell) -> dict[str, Any]:
        """Train a model on all folds but one, and return its logits, or why it was left out."""
        assert isinstance(cell, TrainingCell)
        if isinstance(cell.training, OwnModel):
            return cell.training.train(self, cell.fold)
        (learned, apart, test), rows, forward = self.parts(cell.fold), self.rows, self.rows.time is not None
        model = MetricClassifier(
            self.metric,
            subject_to=self.subject_to or None,
            models=[cell.training.model],
            class_weight=cell.training.class_weight,
            average=self.average,
            cv=FORWARD if forward else None,
            random_state=self.seed,
        )
        training, to_score = rows.X.iloc[learned], rows.X.iloc[np.concatenate([apart, test])]
        key = (cell.spec["data"], cell.spec["splits"], self.seed, self.calibration, cell.fold)
        encoder, numbers, new, encoding = encode_fold(key, training, to_score)
        start = time.perf_counter()
        about = rows.of(rows.weight, learned), rows.of(rows.groups, learned)
        prepared = prepare_rows(model, training, rows.numbers[learned], *about, (encoder, numbers))
        splits = splits_of(model, prepared)
        result = fit_family(
            families_of(model, prepared.names.requirements(model.subject_to))[0],
            prepared.rows,
            splits,
            seed=prepared.seed,
            jobs=self.jobs,
            deadline=Deadline.after(None if cell.training.model == ALWAYS else self.time_budget),
            last_only=forward,
        )
        seconds = encoding + time.perf_counter() - start
        if isinstance(result, LeftOut):
            return {"left_out": result.reason}
        return {
            "training_seconds": seconds,
            "out_of_fold": as_lists(result.logits),
            "new": as_lists(result.model.logits(new)),
            "folds": folds_of_rows(splits, len(learned)).tolist(),
        }

    def _cell(self, name: str, spec: Mapping[str, Any], training: Training | OwnModel, fold: int) -> TrainingCell:
        aim: dict[str, Any] = {"metric": self.metric, "average": self.average}
        if isinstance(training, OwnModel):
            aim |= {"subject_to": list(self.asked), "confidence": self.confidence}
            own = hash_bytes(json.dumps([training.hash, aim]).encode())[:12]
            return TrainingCell((name, training.name, own, f"fold {fold}"), {**spec, **aim}, training, fold)
        purpose: list[str] = []
        settings = {**spec, "model": str(training.model), "class_weight": training.class_weight}
        if training.uses_metric:
            purpose.append(self.metric)
            settings |= aim
        if training.uses_requirements:
            purpose[0] += f" subject to {', '.join(self.subject_to)}"
            settings["subject_to"] = self.subject_to
        return TrainingCell((name, training.name, *purpose, f"fold {fold}"), settings, training, fold)


def read_training(cell: TrainingCell, report: Mapping[str, Any]) -> TrainedLogits | Mapping[str, Any] | str:
    """Return what a cell kept, or why its model was left out.

    Raises:
        InvalidValueError: The report does not hold logits.
    """
    if isinstance(cell.training, OwnModel):
        return report
    if "left_out" in report:
        return str(report["left_out"])
    try:
        out_of_fold, new = (np.array(report[name], dtype=np.float64) for name in ("out_of_fold", "new"))
        folds = np.array(report["folds"], dtype=np.int64)
        if len(folds) != len(out_of_fold) or out_of_fold.shape[1:] != new.shape[1:]:
            raise ValueError("its logits do not fit each other")
        return TrainedLogits(float(report["training_seconds"]), out_of_fold, new, folds)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"the result of {cell} is damaged ({error}); remove its folder to train it again"
        ) from error


def as_lists(logits: Floats) -> Any:
    """Return logits as lists that JSON can hold, with None where no model held the row out.

    >>> np.array(as_lists(np.array([[0.5], [np.nan]])), dtype=np.float64)
    array([[0.5],
           [nan]])
    """
    values: NDArray[Any] = logits.astype(object)
    values[np.isnan(logits)] = None
    return values.tolist()


def load_networks() -> None:
    """Import what networks need before the first is timed."""
    assert callable(import_module("metricfit.train").fit)  # names the extra where torch is missing
    import_module("metricfit.tabular.families.network_models")


log = logging.getLogger("metricfit.tabular")

FILE = "comparison.json"
#: Settings that trainings may differ in: those that depend on them have names of their own.
SHARED = ("metric", "average", "subject_to", "confidence", "methods")
#: Maximum number of columns that a message names.
MOST_NAMES = 5
#: What settings are called in messages.
SPOKEN = {
    "subject_to": "requirements",
    "time_budget": "time budget",
    "positive": "positive class",
    "group": "column of groups",
    "time": "column of times",
}

Description = dict[str, Any]


class ChangedRunError(CellError):
    """The folder holds a comparison of another table or with other options.

    Args:
        message: What has changed, and what to do.
        changes: What has changed, one phrase each.
    """

    def __init__(self, message: str, changes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.changes = list(changes)


def describe_table(
    X: pd.DataFrame, y: Integers, classes: Sequence[str], groups: Any, weight: Any = None
) -> Description:
    """Describe a table by its rows, columns and classes, with a hash of every column.

    Args:
        X: The features.
        y: Class numbers.
        classes: The names of the classes.
        groups: One group per row, or None.
        weight: One weight per row, or None.

    Returns:
        Values that JSON can hold.
    """
    row_hashes = {str(name): column_hashes(column) for name, column in X.items()}
    labels = pd.util.hash_array(np.ascontiguousarray(y))
    mixed = sum(hashes * np.uint64(2 * index + 3) for index, hashes in enumerate([labels, *row_hashes.values()]))
    return {
        "rows": len(X),
        "columns": {name: hash_bytes(hashes.tobytes()) for name, hashes in row_hashes.items()},
        "classes": list(classes),
        "labels": hash_bytes(labels.tobytes()),
        **{
            name: None if values is None else hash_bytes(column_hashes(pd.Series(values)).tobytes())
            for name, values in (("groups", groups), ("weights", weight))
        },
        "rows in any order": hash_bytes(np.sort(mixed).tobytes()),
    }


def continue_run(root: Path, name: str, now: Description) -> None:
    """Check that a folder holds trainings of the same table and options, or none, and keep the description there.

    Args:
        root: The folder that keeps the trainings.
        name: The name of the table.
        now: The description of the table, with the settings of the comparison.

    Raises:
        ChangedRunError: The folder holds trainings of another table or with other options; the message says which.
    """
    path = Cell((name,), {}).folder(root) / FILE
    before = _read(path)
    if before is not None:
        changes = list_changes(before, now)
        if changes:
            raise ChangedRunError(
                f"{root} holds a comparison of another table or with other options: {'; '.join(changes)}. Choose "
                "another folder to keep both, or remove that one.",
                changes,
            )
        changes = _changed_settings(before, now, SHARED)
        if changes:
            log.warning("%s: trainings in %s that do not depend on it are used again", "; ".join(changes), root)
    write_file(path, json.dumps(now, indent=1).encode())


def other_tables(root: Path, name: str) -> list[str]:
    """Return the names of other tables whose trainings a folder keeps.

    Args:
        root: The folder that keeps the trainings.
        name: The name of this table.
    """
    own = Cell((name,), {}).folder(root).name
    return sorted(path.parent.name for path in root.glob(f"*/{FILE}") if path.parent.name != own)


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in words how a table and the options that all trainings depend on have changed.

    Args:
        before: The description that was kept.
        now: The present one.

    Returns:
        One phrase per change.

    Example:
        >>> list_changes({"rows": 1200, "folds": 5}, {"rows": 1250, "folds": 10})
        ['rows 1,200 -> 1,250', 'folds 5 -> 10']
    """
    settings = [key for key in now if key not in {*SHARED, *TABLE}]
    return [*_changed_table(before, now), *_changed_settings(before, now, settings)]


#: The entries of a description that are about the table.
TABLE = ("rows", "columns", "classes", "labels", "groups", "weights", "rows in any order")


def _changed_table(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    changes = []
    if before.get("rows") != now.get("rows"):
        changes.append(f"rows {before.get('rows', 0):,} -> {now['rows']:,}")
    old, new = before.get("columns", {}), now.get("columns", {})
    changes += _about([name for name in new if name not in old], "is new", "are new")
    changes += _about([name for name in old if name not in new], "is gone", "are gone")
    both = [name for name in new if name in old]
    if changes:
        return changes
    if before.get("rows in any order") == now.get("rows in any order") and (
        before.get("labels") != now.get("labels") or any(old[name] != new[name] for name in both)
    ):
        return ["the same rows are in another order"]
    changes += _about([name for name in both if old[name] != new[name]], "has other values", "have other values")
    names = [name for name in ("labels", "classes", "groups", "weights") if before.get(name) != now.get(name)]
    return changes + [f"the {name} have changed" for name in names]


def _changed_settings(before: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [
        f"{SPOKEN.get(name, name)} {_spoken(before.get(name))} -> {_spoken(now[name])}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _about(names: Sequence[str], one: str, several: str) -> list[str]:
    """Say something about columns; of many, some are named."""
    if not names:
        return []
    listed = ", ".join(quote(name) for name in names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        listed += f" and {len(names) - MOST_NAMES} more"
    return [f"column {listed} {one}" if len(names) == 1 else f"columns {listed} {several}"]


def _spoken(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read(path: Path) -> Description | None:
    """Read a description; None if there is none, or one that cannot be read, where cells are compared alone."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
