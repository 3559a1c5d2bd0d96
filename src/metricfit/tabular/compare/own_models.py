"""Models from outside metricfit: the user's classifiers, LightGBM as it comes, and predictions of other programs.

Each is judged plain, by its own labels, and with a decision for the metric. ``trainings`` and ``judging`` treat these
models as they treat the methods of metricfit.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.model_selection import TimeSeriesSplit, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline, make_pipeline

from metricfit.errors import InvalidValueError, MetricfitError, quote
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.tabular.compare.methods import BASELINES, METHODS, REFERENCE, UNTUNED
from metricfit.tabular.families.family import Floats, Integers, to_logits
from metricfit.tabular.tuned import TunedDecisionClassifier

if TYPE_CHECKING:
    from metricfit.tabular.compare.trainings import TrainingTask

#: The end of the name of a row that has a decision for the metric.
TUNED = ", tuned"
#: Probabilities of 0 have no logits.
SMALLEST_PROBABILITY = 1e-6
#: Smaller tables are learned faster by one thread.
FEW_ROWS = 10_000
#: The column of a table of predictions that says which fold held a row out.
FOLD = "fold"


class CategoryColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns as LightGBM takes them: numbers as they are, dates as numbers, everything else as categories.

    Example:
        >>> table = pd.DataFrame({"age": [31, 40], "town": ["Ulm", "Bonn"]})
        >>> CategoryColumns().fit(table).transform(table).dtypes.tolist()[1].categories.tolist()
        ['Bonn', 'Ulm']
    """

    def fit(self, X: pd.DataFrame, y: Any = None) -> CategoryColumns:
        """Learn the categories of each column.

        Args:
            X: The table.
            y: Not used.

        Returns:
            The transformer itself.
        """
        self.categories_ = {
            number: sorted(column.dropna().astype(str).unique())
            for number, (_, column) in enumerate(X.items())
            if not _holds_numbers(column) and not pd.api.types.is_datetime64_any_dtype(column)
        }
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the columns as numbers and categories; categories that are new count as missing.

        Args:
            X: The table.

        Returns:
            A table with the same rows, whose columns are numbered.
        """
        return pd.DataFrame(
            {f"column {n}": self._transformed(n, column) for n, (_, column) in enumerate(X.items())}, X.index
        )

    def _transformed(self, number: int, column: pd.Series) -> Any:
        if number in self.categories_:
            words = column.astype(object).where(column.isna(), column.astype(str))
            known = words.isin(self.categories_[number])
            return pd.Categorical(words.where(known, None), categories=self.categories_[number])
        if _holds_numbers(column):
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        return column.astype("int64").astype(np.float64).where(column.notna()).to_numpy()


def _holds_numbers(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not isinstance(column.dtype, pd.CategoricalDtype)


@dataclass(frozen=True, eq=False)
class OwnModel:
    """A classifier that is judged by its own ``predict``, and by the decisions of ``TunedDecisionClassifier``.

    Attributes:
        name: Name of its row; the row with tuned decisions is called "NAME, tuned".
        estimator: The classifier.
        tuned: Whether it has a row with tuned decisions.
        version: What else its trainings depend on, such as a hash of the file that defines it.
    """

    name: str
    estimator: Any
    tuned: bool = True
    version: str = ""

    def classifier(self, name: str, metric: Any, *, forward: bool = False, **parameters: Any) -> Any:
        """Return the unfitted classifier of one of the two rows.

        Args:
            name: Name of the row.
            metric: The metric to decide for.
            forward: Whether folds are in the order of time.
            parameters: Parameters of TunedDecisionClassifier.
        """
        if name == self.name:
            return clone(self.estimator)
        if forward:
            parameters = {"cv": TimeSeriesSplit(5), "ensemble": False, **parameters}
        return TunedDecisionClassifier(clone(self.estimator), metric, **parameters)

    @property
    def hash(self) -> str:
        """A hash of the classifier and its parameters."""
        described = self.estimator.__repr__(N_CHAR_MAX=10**6) if isinstance(self.estimator, BaseEstimator) else ""
        try:
            return str(joblib.hash((self.version, described, self.estimator)))
        except (pickle.PicklingError, AttributeError, TypeError):  # functions without a name
            return str(joblib.hash((self.version, described)))

    def train(self, task: TrainingTask, fold: int) -> dict[str, Any]:
        """Fit the classifier on the training rows of a fold, and decide the test rows.

        Returns:
            The decisions and probabilities of each row of the comparison; the reason in place of decisions that
            cannot be tuned.
        """
        training_rows, test_rows = task.splits[fold]
        X, y, new = task.X.iloc[training_rows], task.target.iloc[training_rows], task.X.iloc[test_rows]
        groups = None if task.groups is None else task.groups[training_rows]
        settings: dict[str, Any] = {"average": task.average, "random_state": task.seed}
        settings |= {"subject_to": list(task.asked) or None, "confidence": task.confidence}
        if len(task.labels) == 2:
            settings["pos_label"] = task.labels[1]
        report: dict[str, Any] = {}
        for name in (self.name, self.name + TUNED)[: 1 + self.tuned]:
            model = self.classifier(name, task.metric, forward=task.forward, **settings)
            start = time.perf_counter()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", InfeasibleWarning)  # reported by fold
                    model.fit(X, y.to_numpy()) if name == self.name else model.fit(X, y, groups=groups)
            except MetricfitError as error:
                report[name] = {"left_out": str(error)}
                continue
            report[name] = {"seconds": time.perf_counter() - start} | decisions_of(model, new, task.labels)
        return {"rows": report}


def decisions_of(model: Any, X: pd.DataFrame, labels: NDArray[Any]) -> dict[str, Any]:
    """Return what a fitted classifier decides about rows, as values that JSON can hold.

    Args:
        model: The classifier.
        X: The rows.
        labels: The labels in the order of the class numbers; of two, the positive one is second.
    """
    probabilities = None
    if hasattr(model, "predict_proba"):
        table = np.zeros((len(X), len(labels)))
        table[:, numbers_of(model.classes_, labels)] = model.predict_proba(X)
        probabilities = (table[:, 1] if len(labels) == 2 else table).tolist()
    decision = getattr(model, "decision_", None) if isinstance(model, TunedDecisionClassifier) else None
    return {
        "decided": numbers_of(model.predict(X), labels).tolist(),
        "probabilities": probabilities,
        "threshold": None if decision is None else model.threshold_,
        "not_reachable": None if decision is None else decision.evidence.not_reachable,
    }


def numbers_of(predicted: Any, labels: NDArray[Any]) -> Integers:
    """Return the class numbers of labels.

    Raises:
        InvalidValueError: A label is none of the table's.

    Example:
        >>> numbers_of(["yes", "no"], np.array(["no", "yes"]))
        array([1, 0])
    """
    numbers = pd.Index(labels).get_indexer(pd.Index(np.asarray(predicted)))
    if (numbers < 0).any():
        unknown = np.asarray(predicted)[numbers < 0][0]
        raise InvalidValueError(f"{quote(unknown)} is predicted, and no row of the table has that label")
    return numbers.astype(np.int64)


def lightgbm_as_it_comes(seed: int, jobs: int, rows: int) -> OwnModel:
    """Return LightGBM with its defaults, decided by its own ``predict``: what one would do without this library."""
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_jobs=1 if rows < FEW_ROWS else jobs, random_state=seed, verbose=-1)
    return OwnModel(REFERENCE, make_pipeline(CategoryColumns(), model), tuned=False)


def split_methods(methods: Sequence[Any] | None, X: pd.DataFrame) -> tuple[list[str] | None, list[OwnModel]]:
    """Return the names of metricfit's methods, and the user's own models.

    A classifier that is no Pipeline gets columns of words as categories, as LightGBM, XGBoost and
    HistGradientBoostingClassifier take them. A classifier that chooses its own decision has no row with another one.

    Args:
        methods: Names, classifiers, pairs of a name and a classifier, and ``OwnModel``; None for no choice.
        X: The features.

    Raises:
        InvalidValueError: An entry is no classifier, or a name is there twice.
    """
    if methods is None:
        return None, []
    if isinstance(methods, str):
        raise InvalidValueError(f"methods is a list, such as [{quote(methods)}]")
    names, own = [], list[OwnModel]()
    for entry in methods:
        if isinstance(entry, str):
            names.append(entry)
            continue
        if isinstance(entry, OwnModel):
            model = entry
        else:
            name, estimator = entry if isinstance(entry, tuple) else (type(entry).__name__, entry)
            model = OwnModel(name, estimator)
        if isinstance(model.estimator, type):
            raise InvalidValueError(f"a method is an object, not a class: pass {model.estimator.__name__}()")
        if not hasattr(model.estimator, "fit") or not hasattr(model.estimator, "predict"):
            raise InvalidValueError(f"a method is a name or a scikit-learn classifier; got {quote(model.estimator)}")
        encodes = isinstance(model.estimator, Pipeline) or all(map(_holds_numbers, (X[name] for name in X)))
        estimator = model.estimator if encodes else make_pipeline(CategoryColumns(), model.estimator)
        decides = isinstance(model.estimator, TunedDecisionClassifier | TunedThresholdClassifierCV)
        own.append(replace(model, estimator=estimator, tuned=model.tuned and not decides))
    check_names([model.name for model in own])
    return names, own


def check_names(names: Sequence[str]) -> None:
    """Refuse names of models that are used twice, or by metricfit."""
    taken = {REFERENCE, *BASELINES, *UNTUNED, *(method.name for method in METHODS)}
    for name in names:
        if not isinstance(name, str) or name in taken or name + TUNED in taken or name.removesuffix(TUNED) in taken:
            raise InvalidValueError(f"{quote(name)} names two methods; give yours another name, as (name, model)")
        taken.add(name)


@dataclass(frozen=True, eq=False)
class OutsidePredictions:
    """What another program predicted for the rows, each by a model that did not train on the row.

    Attributes:
        name: Name of the row of its labels; the row with tuned decisions is called "NAME, tuned".
        decided: The class number of each row: its labels, or the most likely class.
        probabilities: The probability of each class ``(n, c)``; None if only labels are known.
        fold: The fold that held each row out; None if that is not known.
    """

    name: str
    decided: Integers
    probabilities: Floats | None = None
    fold: NDArray[Any] | None = None

    def take(self, rows: Integers) -> OutsidePredictions:
        """Return the predictions of these rows."""
        parts = (None if each is None else each[rows] for each in (self.probabilities, self.fold))
        return OutsidePredictions(self.name, self.decided[rows], *parts)

    @property
    def logits(self) -> Floats | None:
        """The probabilities as logits."""
        if self.probabilities is None:
            return None
        clipped = np.clip(self.probabilities, SMALLEST_PROBABILITY, None)
        return to_logits(clipped / clipped.sum(axis=1, keepdims=True), clipped.shape[1])


def read_predictions(name: str, values: Any, labels: NDArray[Any], rows: int) -> OutsidePredictions:
    """Read predictions of another program.

    Args:
        name: Name of the model.
        values: One label or one probability of the positive class per row; or a table with one column of these, or
            with one column of probabilities per class, named by the class (as ``metricfit predict`` writes them). A
            column "fold" says which fold held each row out.
        labels: The labels in the order of the class numbers; of two, the positive one is second.
        rows: The number of rows of the table.

    Raises:
        InvalidValueError: They are neither labels nor probabilities of these rows.

    Example:
        >>> found = read_predictions("theirs", [0.2, 0.9], np.array(["no", "yes"]), 2)
        >>> found.decided, found.probabilities[:, 1]
        (array([0, 1]), array([0.2, 0.9]))
    """
    frame = pd.DataFrame(values).reset_index(drop=True).rename(columns=str)
    frame = frame.rename(columns=lambda column: column.removeprefix("probability of "))
    if len(frame) != rows:
        raise InvalidValueError(f"the predictions {quote(name)} are of {len(frame)} rows, and the table has {rows}")
    fold = frame.pop(FOLD).to_numpy() if FOLD in frame else None
    names = [str(label) for label in labels]
    written = frame.pop("predicted") if frame.shape[1] > 1 and "predicted" in frame else None
    if frame.isna().to_numpy().any():
        raise InvalidValueError(f"the predictions {quote(name)} are missing in some rows")
    if set(names) <= set(frame.columns):
        table = frame[names].to_numpy(dtype=np.float64)
    elif frame.shape[1] == 1:
        column = frame.iloc[:, 0]
        if len(labels) > 2 or not _holds_numbers(column) or set(_as_written(column, names)) <= set(names):
            return OutsidePredictions(name, _written_numbers(column, names, name), None, fold)
        table = np.stack([1 - column.to_numpy(dtype=np.float64), column.to_numpy(dtype=np.float64)], axis=1)
    else:
        raise InvalidValueError(
            f"the predictions {quote(name)} have the columns {', '.join(map(quote, frame.columns))}: give one column "
            f"of labels or probabilities, or the columns {', '.join(map(quote, names))}"
        )
    if not ((table >= 0) & (table <= 1)).all():
        raise InvalidValueError(f"the predictions {quote(name)} hold values that are no probabilities from 0 to 1")
    if written is not None:
        return OutsidePredictions(name, _written_numbers(written, names, name), table, fold)
    decided = (table[:, 1] >= 0.5) if len(labels) == 2 else table.argmax(axis=1)
    return OutsidePredictions(name, decided.astype(np.int64), table, fold)


def _written_numbers(column: pd.Series, names: Sequence[str], name: str) -> Integers:
    """Return the class numbers of labels that are written as text; ``name`` is what to call the predictions."""
    numbers = pd.Index(names).get_indexer(pd.Index(_as_written(column, names)))
    if (numbers < 0).any():
        unknown = column[numbers < 0].iloc[0]
        raise InvalidValueError(f"the predictions {quote(name)} hold {quote(unknown)}, which is no label of the table")
    return numbers.astype(np.int64)


def _as_written(column: pd.Series, names: Sequence[str]) -> list[str]:
    """Return predicted labels as text; 1.0 and 1 are one label, and True and 1 are two."""
    if pd.api.types.is_float_dtype(column) and (column % 1 == 0).all() and not set(column.astype(str)) <= set(names):
        column = column.astype("int64")
    return [str(entry) for entry in column.tolist()]
