"""From a fitted classifier of scikit-learn to logits, by its probabilities or its decision function."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _num_samples

from metricfit.errors import InvalidTypeError, InvalidValueError

Floats = NDArray[np.float64]

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
        raise InvalidTypeError(
            f"estimator is the class {estimator.__name__}; pass an object, {estimator.__name__}(...)"
        )
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
