"""Scores, labels and weights, as boosting libraries pass them to an objective or an evaluation, and where they start.

The libraries have two ways of calling. Their training functions pass ``(scores, rows)``, where the rows are a Dataset
of LightGBM or a DMatrix of XGBoost. Their scikit-learn estimators pass ``(labels, scores, weights)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidTypeError, InvalidValueError, quote

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Library = Literal["lightgbm", "xgboost", "catboost"]

#: A class without rows starts as if it had this share.
SMALLEST_SHARE = 1e-6
#: Libraries that call a function with all rows at once.
CALLS_WITH_ALL_ROWS: tuple[Library, ...] = ("lightgbm", "xgboost")


class LibraryRows(NamedTuple):
    """Rows in one form.

    Attributes:
        scores: ``(n,)`` for two classes, ``(n, c)`` for several.
        label: Class numbers ``(n,)``.
        weight: One weight per row, or None.
    """

    scores: Floats
    label: Integers
    weight: Floats | None


def is_rows_object(second: object) -> bool:
    """Return whether a library passes its own container of rows, as its training function does."""
    return hasattr(second, "get_label")


def read_rows(first: Any, second: Any, weight: Any, library: Library) -> LibraryRows:
    """Read and check what a library passes, in either way of calling.

    Args:
        first: The scores beside a container of rows, otherwise the labels.
        second: A Dataset, a DMatrix, or the scores.
        weight: Weights of the rows, of a scikit-learn estimator.
        library: The library that the function was made for.

    Returns:
        Scores, labels and weights.

    Raises:
        InvalidTypeError: If the rows are those of another library.
        InvalidValueError: If scores, labels and weights do not fit one another, or the labels are not class numbers.
    """
    if not is_rows_object(second):
        return check_rows(second, first, weight)
    caller = type(second).__module__.partition(".")[0]
    if caller != library and caller in CALLS_WITH_ALL_ROWS:
        raise InvalidTypeError(f"this was made for {library} and is called by {caller}: make it for {caller!r}")
    return check_rows(first, second.get_label(), second.get_weight())


def check_rows(scores: Any, label: Any, weight: Any) -> LibraryRows:
    """Check scores, labels and weights against one another.

    Raises:
        InvalidValueError: If they do not fit one another, or the labels are not class numbers.

    Example:
        >>> check_rows([0.5, -1.0], [1.0, 0.0], None).label
        array([1, 0])
    """
    z = np.asarray(scores, dtype=np.float64)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    if z.ndim not in (1, 2):
        raise InvalidValueError(f"scores have the shape (n,) for two classes and (n, c) for several; got {z.shape}")
    if label is None:
        raise InvalidValueError("the rows have no labels")
    y = np.asarray(label)
    if y.shape[:1] != z.shape[:1] or len(z) == 0:
        raise InvalidValueError(f"there must be a label for each row: got scores {z.shape} and labels {y.shape}")
    if not np.isfinite(z).all():
        raise InvalidValueError("some scores are NaN or infinite: lower the learning rate, or look at the features")
    return LibraryRows(z, check_labels(y, 2 if z.ndim == 1 else z.shape[1]), check_weights(weight, len(y)))


def check_labels(label: Any, classes: int | None) -> Integers:
    """Return labels as class numbers, if that is what they are."""
    y = np.asarray(label)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise InvalidValueError(
            f"labels are class numbers 0, 1, ..., one per row; got {y.dtype} of shape {y.shape}. "
            "scikit-learn's LabelEncoder makes numbers of names"
        )
    with np.errstate(invalid="ignore"):  # NaN is refused below
        whole = y.astype(np.int64)
    if not (whole == y).all():
        raise InvalidValueError("labels are class numbers 0, 1, ...; some are NaN or not whole")
    highest = int(whole.max(initial=0))
    if int(whole.min(initial=0)) < 0 or (classes is not None and highest >= classes):
        expected = "0, 1, ..." if classes is None else "0 and 1" if classes == 2 else f"0 to {classes - 1}"
        hint = " For several classes set num_class; beside XGBoost's own loss, multi:softprob." if classes == 2 else ""
        raise InvalidValueError(f"labels are {expected} here; got {whole.min()} to {highest}.{hint}")
    return whole


def check_weights(weight: Any, rows: int) -> Floats | None:
    """Return one weight per row, or None; XGBoost passes an empty array for no weights."""
    if weight is None or np.size(weight) == 0:
        return None
    w = np.asarray(weight, dtype=np.float64)
    if w.shape != (rows,):
        raise InvalidValueError(f"there must be one weight per row: got {rows} rows and weights {w.shape}")
    if not (np.isfinite(w) & (w >= 0)).all():
        raise InvalidValueError("weights must be finite and at least 0")
    return w


def check_library(library: object, allowed: Sequence[Library]) -> None:
    """Raise an error for a library that is not one of these."""
    if library not in allowed:
        listed = " or ".join(map(repr, allowed))
        raise InvalidValueError(f"library is {listed}; got {quote(library)}")


def prior_logits(
    y: Any, sample_weight: Any = None, *, classes: int | None = None, rows: int | None = None
) -> NDArray[np.float64]:
    """Return the logits of the classes' shares, where boosting for a metric should start.

    The counts of a metric say little while all probabilities are 0.5, which is about where libraries start beside an
    objective that is a function. With ``rows``, the result is the ``init_score`` of LightGBM and the ``base_margin`` of
    XGBoost.

    Args:
        y: Class numbers from 0, of the training rows.
        sample_weight: One weight per row, at least 0; by default all are 1.
        classes: The number of classes; by default the largest class number plus one, and at least 2.
        rows: Repeat the logits for this many rows.

    Returns:
        The log-odds of class 1, ``(1,)``, for two classes; the logarithms of the shares, ``(c,)``, for several. With
        ``rows``, the same for each row: ``(rows,)`` or ``(rows, c)``.

    Raises:
        InvalidValueError: If there are no rows, the labels are not class numbers, or the weights cannot be used.

    Example:
        >>> prior_logits([0, 0, 0, 1]).round(2)
        array([-1.1])
        >>> prior_logits([0, 0, 0, 1], rows=2).round(2)
        array([-1.1, -1.1])
    """
    labels = np.asarray(y)
    if classes is not None and classes < 2:
        raise InvalidValueError(f"there are at least 2 classes; got classes={classes}")
    if labels.size == 0:
        raise InvalidValueError("y is empty: there are no rows to take the shares of")
    label = check_labels(labels, classes)
    number = max(2, int(label.max()) + 1) if classes is None else classes
    shares = np.bincount(label, weights=check_weights(sample_weight, len(label)), minlength=number)
    if not shares.sum() > 0:
        raise InvalidValueError("all weights are 0")
    shares = np.maximum(shares / shares.sum(), SMALLEST_SHARE)
    logits = np.asarray([np.log(shares[1] / shares[0])] if number == 2 else np.log(shares))
    if rows is None:
        return logits
    return np.full(rows, logits[0]) if number == 2 else np.tile(logits, (rows, 1))
