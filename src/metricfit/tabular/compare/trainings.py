"""The cells of a comparison: one model trained on all folds but one, kept as its logits.

Several methods share a training: the default weights the same families that are compared one by one. A training that
does not depend on the metric is shared by comparisons for several metrics in one folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit._files import hash_bytes
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError
from metricfit.runs.cells import Cell
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.compare.methods import Method
from metricfit.tabular.compare.own_models import OutsidePredictions, OwnModel
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble_fit import families_of, folds_of_rows, splits_of
from metricfit.tabular.families.family import Deadline, Features, Floats, Integers, Splits
from metricfit.tabular.families.network import WITHOUT_METRIC, Network
from metricfit.tabular.out_of_fold import LeftOut, fit_family
from metricfit.tabular.row_folds import FORWARD
from metricfit.tabular.training_rows import prepare_rows


@dataclass(frozen=True)
class EncodedFold:
    """A fold as numbers.

    Attributes:
        encoder: What was learned of the columns of the training rows.
        training: The training rows as numbers.
        test: The test rows, as numbers and as they are.
        seconds: The time that encoding the training rows took.
    """

    encoder: TableEncoder
    training: NDArray[np.float32]
    test: Features
    seconds: float


#: The fold that was encoded last.
_latest: dict[Hashable, EncodedFold] = {}


def encode_fold(key: Hashable, training: pd.DataFrame, test: pd.DataFrame) -> EncodedFold:
    """Encode a fold, or return what was encoded before if it was the last fold.

    Args:
        key: What the rows depend on: the table, its folds and the number of the fold.
        training: The columns of the training rows.
        test: The columns of the test rows.

    Returns:
        The rows as numbers.
    """
    encoded = _latest.get(key)
    if encoded is None:
        start, encoder = time.perf_counter(), TableEncoder()
        numbers = encoder.fit(training)
        seconds = time.perf_counter() - start
        encoded = EncodedFold(encoder, numbers, Features(encoder.transform(test), test), seconds)
        _latest.clear()
        _latest[key] = encoded
    return encoded


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
        test: The logits of the test rows.
        folds: The inner fold that held out each training row, the same for all trainings; -1 for none.
    """

    seconds: float
    out_of_fold: Floats
    test: Floats
    folds: Integers


@dataclass(frozen=True)
class TrainingTask:
    """The data that every cell of a comparison works on.

    Attributes:
        X: The features.
        y: Class numbers; of two classes, 1 is the positive one.
        groups: One group per row, or None.
        splits: For each fold, the training rows and the test rows.
        metric: The name of the metric.
        average: Its average over several classes.
        subject_to: The requirements on classes by their numbers, as text.
        seed: The seed of every model.
        time_budget: Seconds of each training; None for no limit.
        jobs: Number of threads of each training.
        forward: Whether the rows are in the order of time, and every fold is judged by a model of earlier rows.
        target: The labels as the user has them.
        labels: The labels in the order of the class numbers.
        asked: The requirements as the user wrote them.
        confidence: The probability with which the requirements must hold on new rows, or None.
    """

    X: pd.DataFrame
    y: Integers
    groups: NDArray[Any] | None
    splits: Splits
    metric: str
    average: ScalarAverage
    subject_to: tuple[str, ...]
    seed: int
    time_budget: float | None
    jobs: int
    forward: bool
    target: pd.Series
    labels: NDArray[Any]
    asked: Sequence[str]
    confidence: float | None

    @property
    def tested_rows(self) -> Integers:
        """The numbers of the rows in some test fold; in the order of time, the first rows are in none."""
        return np.sort(np.concatenate([test for _, test in self.splits]))

    def cells(self, name: str, data: str, methods: Sequence[Compared]) -> list[TrainingCell]:
        """Return one cell per training and fold, fold by fold.

        Args:
            name: The name of the table.
            data: A hash of the rows, so that cells of another table are not taken for cells of this one.
            methods: The methods.
        """
        ends = np.concatenate([np.append(test, -1) for _, test in self.splits])
        spec = {"data": data, "splits": hash_bytes(ends.tobytes()), "seed": self.seed, "time_budget": self.time_budget}
        trainings = dict.fromkeys(training for method in methods for training in trainings_of(method))
        return [self._cell(name, spec, training, fold) for fold in range(len(self.splits)) for training in trainings]

    def train(self, cell: Cell) -> dict[str, Any]:
        """Train a model on all folds but one, and return its logits, or why it was left out."""
        assert isinstance(cell, TrainingCell)
        if isinstance(cell.training, OwnModel):
            return cell.training.train(self, cell.fold)
        training_rows, test_rows = self.splits[cell.fold]
        model = MetricClassifier(
            self.metric,
            subject_to=list(self.subject_to) or None,
            models=[cell.training.model],
            class_weight=cell.training.class_weight,
            average=self.average,
            cv=FORWARD if self.forward else None,
            random_state=self.seed,
        )
        groups = None if self.groups is None else self.groups[training_rows]
        training, test = self.X.iloc[training_rows], self.X.iloc[test_rows]
        fold = encode_fold((cell.spec["data"], cell.spec["splits"], self.seed, cell.fold), training, test)
        start = time.perf_counter()
        encoded = fold.encoder, fold.training
        prepared = prepare_rows(model, training, self.y[training_rows], None, groups, encoded)
        splits = splits_of(model, prepared)
        result = fit_family(
            families_of(model)[0],
            prepared.rows,
            splits,
            seed=prepared.seed,
            jobs=self.jobs,
            deadline=Deadline.after(None if cell.training.model == ALWAYS else self.time_budget),
            last_only=self.forward,
        )
        seconds = fold.seconds + time.perf_counter() - start
        if isinstance(result, LeftOut):
            return {"left_out": result.reason}
        return {
            "training_seconds": seconds,
            "out_of_fold": as_lists(result.logits),
            "test": as_lists(result.model.logits(fold.test)),
            "folds": folds_of_rows(splits, len(training_rows)).tolist(),
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
            settings["subject_to"] = list(self.subject_to)
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
        out_of_fold, test = (np.array(report[name], dtype=np.float64) for name in ("out_of_fold", "test"))
        folds = np.array(report["folds"], dtype=np.int64)
        if len(folds) != len(out_of_fold) or out_of_fold.shape[1:] != test.shape[1:]:
            raise ValueError("its logits do not fit each other")
        return TrainedLogits(float(report["training_seconds"]), out_of_fold, test, folds)
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
    assert callable(import_module("metricfit.train").fit_folds)
