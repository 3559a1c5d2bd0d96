"""The methods that are compared: metricfit's, the user's classifiers, predictions of other programs, and no model.

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

from metricfit.core.arrays import Floats, Integers
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError, MetricfitError, quote
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.estimator_scores import fit_parameters_of
from metricfit.tabular.families.arithmetic import to_logits
from metricfit.tabular.families.choice import DEFAULT as DEFAULT_FAMILIES
from metricfit.tabular.families.choice import default_families
from metricfit.tabular.families.network import Network
from metricfit.tabular.tuned import TunedDecisionClassifier

if TYPE_CHECKING:
    from metricfit.tabular.compare.trainings import ComparedRows, TrainingTask

#: The baselines by name, and what each of them does.
BASELINES = {
    "all positive": "calling every row positive",
    "none positive": "calling no row positive",
    "largest class": "always deciding for the largest class",
    "at random": "deciding at random, by the shares of the classes",
}


def baseline_shares(train_y: Integers, classes: int, weight: Floats | None = None) -> dict[str, Floats]:
    """Return with which probability each baseline decides every row for each class.

    "at random" decides for each class with its share among the training rows.

    Args:
        train_y: Class numbers of the training rows.
        classes: The number of classes; of two, 1 is the positive one.
        weight: One weight per row, or None.

    Returns:
        The probability of each class, by the name of the baseline.

    Example:
        >>> baseline_shares(np.array([0, 0, 0, 1]), 2)["at random"]
        array([0.75, 0.25])
    """
    sums = np.bincount(train_y, weight, minlength=classes)
    shares = sums / sums.sum()
    if classes > 2:
        return {"largest class": np.eye(classes)[int(shares.argmax())], "at random": shares}
    return {"all positive": np.array([0.0, 1.0]), "none positive": np.array([1.0, 0.0]), "at random": shares}


def expected_counts(y: Integers, shares: Floats, weight: Floats | None = None) -> Counts:
    """Return the expected counts if every row is decided for each class with this probability.

    They do not depend on a seed.

    Args:
        y: Class numbers.
        shares: The probability of each class; for two classes, the second is the positive one.
        weight: One weight per row, or None.

    Returns:
        Counts of the positive class of two, or of every class.

    Example:
        >>> expected_counts(np.array([0, 0, 1, 1]), np.array([0.75, 0.25])).tp
        array([0.5])
    """
    matrix = np.outer(np.bincount(y, weight, minlength=len(shares)), shares)
    if len(shares) == 2:
        (tn, fp), (fn, tp) = matrix.tolist()
        return Counts(tp, fp, fn, tn)
    return ConfusionMatrix(matrix)


DEFAULT = "metricfit"
#: What one would use without this library: the other methods are compared with its own ``predict``.
REFERENCE = "LightGBM as it comes"


@dataclass(frozen=True)
class Method:
    """A way to train a classifier; its decision is tuned for the metric.

    Attributes:
        name: Name in tables, in verdicts and of ``metricfit fit --method``.
        description: What is trained.
        complexity: Rank from simple to complex, by what has to be understood and kept running: a linear model, one kind
            of trees or kernels, networks with the usual loss, with other losses, several kinds of models together.
        models: The parameter ``models`` of MetricClassifier.
        class_weight: The parameter ``class_weight`` of MetricClassifier.
    """

    name: str
    description: str
    complexity: int
    models: tuple[str | Network, ...]
    class_weight: str | None = None

    @property
    def is_network(self) -> bool:
        """Whether it trains networks, which takes minutes and needs torch."""
        return any(isinstance(model, Network) for model in self.models)

    def classifier(self, metric: Any, **parameters: Any) -> MetricClassifier:
        """Return the method as an unfitted classifier.

        Args:
            metric: The metric that it is trained for.
            parameters: Other parameters of MetricClassifier.

        Returns:
            The classifier.
        """
        models = "auto" if self.name == DEFAULT else list(self.models)
        return MetricClassifier(metric, models=models, class_weight=self.class_weight, **parameters)


_CROSS_ENTROPY = (Network(recipe="bce"),)
METHODS = (
    Method(DEFAULT, "the default of MetricClassifier: several families, weighted for the metric", 7, DEFAULT_FAMILIES),
    Method("logistic regression", "logistic regression, its regularisation chosen by cross-validation", 2, ("linear",)),
    Method("boosted trees", "LightGBM with 31 leaves per tree, stopped early on held-out rows", 3, ("boosting",)),
    Method("small boosted trees", "15 leaves per tree, on random parts of rows and columns", 3, ("boosting_small",)),
    Method("boosted trees on the metric", "small trees on cross-entropy and metric loss", 4, ("boosting_metric",)),
    Method("extra trees", "scikit-learn's ExtraTreesClassifier", 3, ("extra_trees",)),
    Method("support vectors", "support vectors with an RBF kernel, for up to about 10,000 rows", 3, ("kernel",)),
    Method("network (cross-entropy)", "networks trained on the cross-entropy", 5, _CROSS_ENTROPY),
    Method("network (weighted cross-entropy)", "the same with equal weights of classes", 6, _CROSS_ENTROPY, "balanced"),
    Method("network (focal loss)", "networks trained on the focal loss", 6, (Network(recipe="focal"),)),
    Method("network (metric loss)", "cross-entropy first, then the metric loss", 6, (Network(recipe="two_stage"),)),
    Method("network (mixed loss)", "cross-entropy plus the metric loss", 6, (Network(recipe="mix"),)),
    Method("network (under the requirements)", "trained under requirements", 8, (Network(recipe="constrained"),)),
)
FOR_TWO_CLASSES = {"network (focal loss)"}
FOR_REQUIREMENTS = {"network (under the requirements)"}
#: Their training needs a metric of counts, and not costs in columns.
FOR_COUNTS = {"boosted trees on the metric", "network (metric loss)", "network (mixed loss)"}
#: Rows of labels that were not chosen for the metric.
PLAIN = {REFERENCE, *BASELINES}
#: The rank of the user's own models, which are there already; with tuned decisions one more.
YOURS = 0
COMPLEXITY = {REFERENCE: 3} | {method.name: method.complexity for method in METHODS}


def methods(*, classes: int = 2, constrained: bool = False, row_costs: bool = False) -> list[Method]:
    """Return the methods for this number of classes; training under requirements is one only if there are any.

    With costs for each row, methods that are trained for a metric of counts are left out.
    """
    without = (FOR_TWO_CLASSES if classes > 2 else set()) | (set() if constrained else FOR_REQUIREMENTS)
    without |= FOR_COUNTS if row_costs else set()
    return [method for method in METHODS if method.name not in without]


def choose_methods(
    names: Sequence[str] | None,
    *,
    networks: bool = False,
    classes: int = 2,
    constrained: bool = False,
    row_costs: bool = False,
    table: Any = None,
) -> list[Method]:
    """Return the methods with these names, or those that take seconds; with ``networks``, the networks too.

    The default has the families for this table.

    Raises:
        InvalidValueError: There is no such method, or it cannot be used with costs for each row.
    """
    known = methods(classes=classes, constrained=constrained, row_costs=row_costs)
    for name in names or ():
        if row_costs and name in FOR_COUNTS:
            raise InvalidValueError(
                f"{quote(name)} is trained for a metric of counts, which have no costs for each row: leave it out"
            )
        find_method(name, known)
    return [
        replace(method, models=default_families(table)) if method.name == DEFAULT else method
        for method in known
        if (networks if method.is_network else names is None) or (names is not None and method.name in names)
    ]


def find_method(name: str, known: Sequence[Method] | None = None) -> Method:
    """Return the method with this name.

    Raises:
        InvalidValueError: There is no such method.

    Example:
        >>> find_method("support vectors").classifier("f1").models
        ['kernel']
    """
    known = METHODS if known is None else known
    for method in known:
        if name == method.name:
            return method
    listed = ", ".join(quote(method.name) for method in known)
    raise InvalidValueError(f"there is no method {quote(name)}; the methods are {listed}")


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
        (training, apart, test), rows = task.parts(fold), task.rows
        everything, new = task.splits[fold][0], rows.X.iloc[test]
        settings: dict[str, Any] = {"average": task.average, "random_state": task.seed}
        settings |= {"subject_to": list(task.asked) or None, "confidence": task.confidence}
        if len(rows.labels) == 2:
            settings["pos_label"] = rows.labels[1]
        report: dict[str, Any] = {}
        for name in (self.name, self.name + TUNED)[: 1 + self.tuned]:
            model = self.classifier(name, task.metric, forward=rows.time is not None, **settings)
            start = time.perf_counter()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", InfeasibleWarning)  # reported by fold
                    warnings.filterwarnings("ignore", ".*takes no sample_weight")  # a note says so
                    if name == self.name:
                        fit_plain(model, rows, everything)
                    elif len(apart):
                        fitted = fit_plain(clone(self.estimator), rows, training)
                        model.set_params(estimator=fitted, cv="prefit", ensemble=True)
                        fit_tuned(model, rows, apart)
                    else:
                        fit_tuned(model, rows, everything)
            except MetricfitError as error:
                report[name] = {"left_out": str(error)}
                continue
            report[name] = {"seconds": time.perf_counter() - start} | decisions_of(model, new, rows.labels)
        return {"rows": report}


def fit_plain(model: Any, rows: ComparedRows, part: Integers) -> Any:
    """Fit a classifier of the user to some rows, with their weights if it takes any."""
    weights = fit_parameters_of(model, rows.of(rows.weight, part))
    return model.fit(rows.X.iloc[part], rows.y.iloc[part].to_numpy(), **weights)


def fit_tuned(model: TunedDecisionClassifier, rows: ComparedRows, part: Integers) -> None:
    """Fit a classifier with tuned decisions to some rows."""
    about = rows.of(rows.weight, part), rows.of(rows.groups, part)
    model.fit(rows.X.iloc[part], rows.y.iloc[part], sample_weight=about[0], groups=about[1])


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
    taken = {REFERENCE, *BASELINES, *(method.name for method in METHODS)}
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
