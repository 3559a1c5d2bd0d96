"""The scores of any classifier of scikit-learn as logits, and its scores of rows that it was not trained on."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples, has_fit_parameter

from metricfit.core.arrays import Floats
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.tabular.checks import check_whole

#: The smallest number that stands in for a probability of 0.
SMALLEST = 1e-300
#: The same for a classifier whose probabilities are all 0 or 1.
SMALLEST_OF_VOTES = 1e-3
#: How far probabilities of float32 may lie beyond 0 and 1.
ROUNDING_OF_PROBABILITIES = 1e-5


class Scores(NamedTuple):
    """What a classifier says about rows.

    Attributes:
        values: Probabilities ``(n, c)`` of the classes or labels, or the values of a decision function: ``(n, 1)`` for
            two classes, ``(n, c)`` for several classes or labels.
        are_probabilities: Which of the two it is.
    """

    values: Floats
    are_probabilities: bool


def check_has_scores(estimator: Any) -> None:
    """Raise an error for an object that is no classifier with scores.

    Raises:
        InvalidTypeError: It has no ``fit``, or neither ``predict_proba`` nor ``decision_function``.
    """
    if isinstance(estimator, type):
        raise InvalidTypeError(f"estimator is a class; pass an object, {estimator.__name__}(...)")
    if not hasattr(estimator, "fit"):
        raise InvalidTypeError(f"estimator is a classifier of scikit-learn, with fit; got {type(estimator).__name__}")
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        raise InvalidTypeError(
            f"{type(estimator).__name__} has neither predict_proba nor decision_function, so there is no score to "
            "decide by: use a classifier that has one, such as SGDClassifier(loss='log_loss') or "
            "VotingClassifier(voting='soft')"
        )


def class_scores(estimator: Any, X: Any, classes: NDArray[Any]) -> Scores:
    """Return the scores of exclusive classes.

    Args:
        estimator: A fitted classifier.
        X: Rows.
        classes: The classes in the order of the class numbers. The classifier may know fewer.

    Returns:
        The scores; a class that the classifier does not know has the probability 0, or the lowest score.

    Raises:
        InvalidValueError: The classifier knows other classes, its scores have an unexpected shape or are NaN, or its
            probabilities are not between 0 and 1.
    """
    labels, known = classes.tolist(), np.asarray(estimator.classes_).tolist()
    if not set(known) <= set(labels):
        unknown = ", ".join(repr(label) for label in known if label not in set(labels))
        raise InvalidValueError(f"the estimator knows classes that are not in y: {unknown}")
    place = [labels.index(label) for label in known]
    if hasattr(estimator, "predict_proba"):
        values = np.zeros((_num_samples(X), len(labels)))
        values[:, place] = _checked_probabilities(estimator, estimator.predict_proba(X), _num_samples(X), len(known))
        return Scores(values, True)
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    if len(known) == 2:
        scores = _checked(estimator, scores, (_num_samples(X),))
        second = scores if place[1] > place[0] else -scores
        if len(labels) == 2:
            return Scores(second[:, None], False)
        scores, place = np.stack([-second, second], axis=1), sorted(place)
    if getattr(estimator, "decision_function_shape", "ovr") == "ovo":
        raise InvalidValueError("the estimator's decision function compares pairs: use decision_function_shape='ovr'")
    scores = _checked(estimator, scores, (_num_samples(X), len(known)))
    values = np.tile(scores.min(axis=1, keepdims=True) - 1.0, len(labels))
    values[:, place] = scores
    return Scores(values, False)


def label_scores(estimator: Any, X: Any, labels: int) -> Scores:
    """Return the scores of independent labels, in any of scikit-learn's shapes.

    ``predict_proba`` may give one array of the probabilities that labels are there, or a list with one array per label
    whose columns are the classes of that label.

    Args:
        estimator: A fitted classifier.
        X: Rows.
        labels: The number of labels.

    Returns:
        Probabilities or scores ``(n, labels)``.

    Raises:
        InvalidValueError: The scores have an unexpected shape or are NaN, or probabilities are not between 0 and 1.
    """
    if not hasattr(estimator, "predict_proba"):
        return Scores(_checked(estimator, estimator.decision_function(X), (_num_samples(X), labels)), False)
    given = estimator.predict_proba(X)
    if isinstance(given, list):
        given = np.stack(
            [_of_label(part, known) for part, known in zip(given, estimator.classes_, strict=True)], axis=1
        )
    return Scores(_checked_probabilities(estimator, given, _num_samples(X), labels), True)


def smallest_probability(scores: Scores) -> float:
    """Return what stands in for probabilities of 0: half the smallest probability above 0.

    A share of 0 of 100 trees means less than 1 of 100, not impossible; and a logit of -700 would outweigh all others
    when the logits are calibrated.
    """
    sides = np.concatenate([scores.values.ravel(), 1 - scores.values.ravel()])
    between = sides[(sides > 0) & (sides < 1)]
    return max(float(between.min()) / 2, SMALLEST) if len(between) else SMALLEST_OF_VOTES


def to_logits(scores: Scores, smallest: float, *, labels: bool) -> Floats:
    """Return logits ``(n, 1)`` for two classes, ``(n, c)`` for several classes or labels.

    Args:
        scores: Scores of rows.
        smallest: What stands in for probabilities of 0.
        labels: Whether the columns are independent labels.
    """
    values = scores.values
    if scores.are_probabilities:
        of, not_of = np.log(np.maximum(values, smallest)), np.log(np.maximum(1 - values, smallest))
        of_classes = of[:, 1:] - of[:, :1] if values.shape[1] == 2 else of
        values = of - not_of if labels else of_classes
    return np.ascontiguousarray(values)


def _of_label(probabilities: Any, known: Any) -> Floats:
    """Return the probability that a label is there; a label that was the same in all training rows has one class."""
    column = np.flatnonzero(np.asarray(known) == 1)
    values = np.asarray(probabilities, dtype=np.float64)
    return values[:, column[0]] if len(column) else np.zeros(len(values))


def _checked_probabilities(estimator: Any, given: Any, rows: int, columns: int) -> Floats:
    """Return probabilities ``(rows, columns)``; logits, which some libraries return in their place, are refused."""
    values, rounding = np.asarray(given, dtype=np.float64), ROUNDING_OF_PROBABILITIES
    if (values.shape == (rows,) and columns == 2) or (values < -rounding).any() or (values > 1 + rounding).any():
        raise InvalidValueError(
            f"predict_proba of {type(estimator).__name__} gives no probabilities of {columns} columns between 0 and 1. "
            "LightGBM gives logits there if its objective is a function: wrap it, with the sigmoid in predict_proba"
        )
    return np.clip(_checked(estimator, values, (rows, columns)), 0.0, 1.0)


def _checked(estimator: Any, scores: Any, shape: tuple[int, ...]) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    name = type(estimator).__name__
    if values.shape != shape and values.size == np.prod(shape) and len(values) == shape[0]:
        values = values.reshape(shape)
    if values.shape != shape:
        raise InvalidValueError(f"{name} gives scores of shape {values.shape}, expected {shape}")
    if not np.isfinite(values).all():
        raise InvalidValueError(f"{name} gives {int((~np.isfinite(values)).sum())} scores that are NaN or infinite")
    return values


log = logging.getLogger("metricfit.tabular")

#: The smallest share of the rows that the classifiers of folds are trained on, if a requirement is certified on scores
#: out of fold. In simulations at 90 % confidence (naive Bayes, 100 columns, 200 rows, fpr <= 0.2), 7 % of about 300
#: models failed with 5 folds, 12 % with 3, and 24 % with 2.
SMALLEST_TRAINING_SHARE = 0.6

#: Scores of a fitted classifier on rows.
ScoresOf = Callable[[Any, Any], Scores]


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of rows by classifiers that were not trained on them.

    Attributes:
        scores: The scores.
        rows: The row that each score belongs to; a row that several folds hold out is there several times.
        folds: The fold that each score belongs to.
        models: The classifier of each fold; none if one classifier has scored all rows.
    """

    scores: Scores
    rows: NDArray[np.int64]
    folds: NDArray[np.int64]
    models: tuple[Any, ...] = ()

    @property
    def repeated(self) -> bool:
        """Whether some rows are held out several times."""
        return len(np.unique(self.rows)) < len(self.rows)


def splits_of(
    cv: Any, X: Any, y: NDArray[Any], groups: NDArray[Any] | None, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return for each fold the rows to train on and the rows that are held out.

    Args:
        cv: The number of folds, a splitter of scikit-learn, or pairs of arrays of row numbers.
        X: Rows.
        y: One label per row, or for several labels 0 and 1 ``(n, c)``.
        groups: One group per row, or None.
        seed: Seed of the shuffled folds, if ``cv`` is a number.

    Raises:
        InvalidValueError: The rows cannot be split so that every fold can be learned from.
    """
    if isinstance(cv, (int, np.integer)) or cv is None:
        cv = _splitter_of(5 if cv is None else cv, y, groups, seed)
    elif not hasattr(cv, "split") and not isinstance(cv, Iterable):
        raise InvalidTypeError(f"cv is a number of folds, 'prefit' or a splitter of scikit-learn; got {quote(cv)}")
    splits = [(_row_numbers(train), _row_numbers(held_out)) for train, held_out in check_cv(cv, y).split(X, y, groups)]
    classes, judged = np.unique(y) if y.ndim == 1 else y[:0], [held_out for _, held_out in splits if len(held_out)]
    if not judged:
        raise InvalidValueError(f"the folds of cv={quote(cv)} hold out no rows")
    for train, held_out in splits:
        missing = np.setdiff1d(classes, y[train]).tolist()
        if missing:
            raise InvalidValueError(
                f"a fold of cv={quote(cv)} has no row of class {quote(missing[0])} to train on: use fewer folds, or a "
                "splitter that keeps the classes together, such as StratifiedKFold"
            )
        if np.intersect1d(train, held_out).size:
            raise InvalidValueError(f"a fold of cv={quote(cv)} trains on rows that it holds out")
    if np.setdiff1d(classes, y[np.concatenate(judged)]).size:
        raise InvalidValueError(f"the folds of cv={quote(cv)} hold out no row of some class: use other folds")
    return splits


def check_training_share(share: float) -> None:
    """Refuse to certify a requirement on scores of classifiers that are trained on much fewer rows than the final one.

    Raises:
        InvalidValueError: The share of the rows that a fold trains on is too small.
    """
    if share < SMALLEST_TRAINING_SHARE:
        raise InvalidValueError(
            f"a fold trains on {share:.0%} of the rows, so its scores say too little about the final model, "
            "and confidence= would not hold: use five folds (cv=5, or members=5 of MetricClassifier), or rows that are "
            "kept apart (calibration=0.3 of MetricClassifier, or --calibration 0.3; TunedDecisionClassifier with a "
            "fitted estimator, cv='prefit' and other rows)"
        )


def fit_and_score_folds(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    splits: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    fit_parameters: dict[str, Any],
    scores_of: ScoresOf,
    n_jobs: int | None,
) -> HeldOutScores:
    """Fit a clone per fold, and return its scores of the rows that the fold holds out."""
    fitted = Parallel(n_jobs=n_jobs)(
        delayed(_fit_and_score)(clone(estimator), X, y, train, held_out, fit_parameters, scores_of)
        for train, held_out in splits
    )
    models, parts = zip(*fitted, strict=True)
    if len({part.are_probabilities for part in parts}) > 1:
        raise InvalidValueError("the estimator gives probabilities in some folds and other scores in others")
    values = np.concatenate([part.values for part in parts])
    rows = np.concatenate([held_out for _, held_out in splits])
    folds = np.repeat(np.arange(len(splits)), [len(held_out) for _, held_out in splits])
    return HeldOutScores(Scores(values, parts[0].are_probabilities), rows, folds, models)


def score_by_folds(
    models: Sequence[Any], X: Any, folds: NDArray[np.int64], logits_of: Callable[[Any, Any], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return logits of rows, each by the model of its fold.

    With folds that are drawn at random, logits of new rows are distributed like the logits of held-out rows. The logits
    of a model of all rows are not.
    """
    rows = [np.flatnonzero(folds == fold) for fold in range(len(models))]
    used = [(model, part) for model, part in zip(models, rows, strict=True) if len(part)]
    if not used:
        return logits_of(models[0], X)
    logits = np.concatenate([logits_of(model, _safe_indexing(X, part)) for model, part in used])
    return logits[np.argsort(np.concatenate([part for _, part in used]))]


def weight_parameter(model: Any) -> str | None:
    """Return the keyword under which ``fit`` takes weights; None if it takes none."""
    prefix = ""
    while isinstance(model, Pipeline):
        name, model = model.steps[-1]
        prefix += f"{name}__"
    return f"{prefix}sample_weight" if has_fit_parameter(model, "sample_weight") else None


def fit_parameters_of(estimator: Any, sample_weight: Any) -> dict[str, Any]:
    """Return the weights under the name that the classifier's ``fit`` takes them by; a warning if it takes none."""
    if sample_weight is None:
        return {}
    parameter = weight_parameter(estimator)
    if parameter is not None:
        return {parameter: sample_weight}
    inner = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    warnings.warn(
        f"{type(inner).__name__} takes no sample_weight: the weights are used to choose the decision, not to train",
        UserWarning,
        stacklevel=5,
    )
    return {}


def _fit_and_score(
    model: Any, X: Any, y: NDArray[Any], train: Any, held_out: Any, parameters: dict[str, Any], scores_of: ScoresOf
) -> tuple[Any, Scores]:
    model.fit(_safe_indexing(X, train), y[train], **rows_of(parameters, train, len(y)))
    return model, scores_of(model, _safe_indexing(X, held_out))


def rows_of(parameters: dict[str, Any], rows: NDArray[np.int64], number: int) -> dict[str, Any]:
    """Return the rows of fit parameters that have one entry per row, and other parameters as they are."""

    def has_rows(value: Any) -> bool:
        return hasattr(value, "__len__") and not isinstance(value, (str, dict)) and len(value) == number

    return {name: _safe_indexing(value, rows) if has_rows(value) else value for name, value in parameters.items()}


def _splitter_of(folds: Any, y: NDArray[Any], groups: NDArray[Any] | None, seed: int) -> Any:
    """Return shuffled folds, as many as asked for or as the rarest class has rows."""
    check_whole("cv", folds, 2, "folds; or 'prefit', or a splitter of scikit-learn")
    if y.ndim == 2:
        if groups is not None:
            raise InvalidValueError("for several labels with groups pass a splitter, such as cv=GroupKFold(5)")
        return KFold(min(int(folds), len(y)), shuffle=True, random_state=seed)
    classes, number = np.unique(y, return_inverse=True)
    counts = np.bincount(number)
    if groups is not None:
        pairs = np.unique(np.stack([number, np.unique(groups, return_inverse=True)[1]]), axis=1)
        counts = np.bincount(pairs[0], minlength=len(classes))
    rarest, fewest = classes.tolist()[int(counts.argmin())], int(counts.min())
    unit = "row" if groups is None else "group"
    if fewest < 2:
        raise InvalidValueError(
            f"class {quote(rarest)} has a single {unit}; at least two are needed, one to train on and one to hold out. "
            "Drop the class, or pass a fitted estimator with cv='prefit' and other rows"
        )
    if fewest < folds:
        log.info("%d folds in place of %d: class %r has %d %ss", fewest, folds, rarest, fewest, unit)
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    return kind(min(int(folds), fewest), shuffle=True, random_state=seed)


def _row_numbers(rows: Any) -> NDArray[np.int64]:
    numbers = np.asarray(rows)
    return (np.flatnonzero(numbers) if numbers.dtype == bool else numbers).astype(np.int64)
