"""The scores of any classifier on rows that it was not trained on: out of fold, or on rows passed beside it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.tabular.checks import check_whole
from metricfit.tabular.estimator_scores import Scores

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
    labels = y.ndim == 2
    if isinstance(cv, (int, np.integer)) or cv is None:
        cv = _splitter_of(5 if cv is None else cv, y, groups, seed)
    elif not hasattr(cv, "split") and not isinstance(cv, Iterable):
        raise InvalidTypeError(f"cv is a number of folds, 'prefit' or a splitter of scikit-learn; got {quote(cv)}")
    splits = [(_row_numbers(train), _row_numbers(held_out)) for train, held_out in check_cv(cv, y).split(X, y, groups)]
    classes = np.unique(y)
    for train, held_out in splits:
        if not labels and len(np.unique(y[train])) < len(classes):
            missing = np.setdiff1d(classes, y[train]).tolist()[0]
            raise InvalidValueError(
                f"a fold of cv={quote(cv)} has no row of class {quote(missing)} to train on: use fewer folds, or a "
                "splitter that keeps the classes together, such as StratifiedKFold"
            )
        if np.intersect1d(train, held_out).size:
            raise InvalidValueError(f"a fold of cv={quote(cv)} trains on rows that it holds out")
    judged = y[np.concatenate([held_out for _, held_out in splits])] if splits else y[:0]
    if not labels and len(np.unique(judged)) < len(classes):
        raise InvalidValueError(f"the folds of cv={quote(cv)} hold out no row of some class: use other folds")
    if not len(judged):
        raise InvalidValueError(f"the folds of cv={quote(cv)} hold out no rows")
    return splits


def check_training_share(share: float) -> None:
    """Refuse to certify a requirement on scores of classifiers that are trained on much fewer rows than the final one.

    Raises:
        InvalidValueError: The share of the rows that a fold trains on is too small.
    """
    if share < SMALLEST_TRAINING_SHARE:
        raise InvalidValueError(
            f"a fold trains on {share:.0%} of the rows, so its scores say too little about those of the final model, "
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

    With folds that are drawn at random, logits of new rows are distributed as those of held-out rows are; those of a
    model of all rows are not.
    """
    rows = [np.flatnonzero(folds == fold) for fold in range(len(models))]
    used = [(model, part) for model, part in zip(models, rows, strict=True) if len(part)]
    if not used:
        return logits_of(models[0], X)
    logits = np.concatenate([logits_of(model, _safe_indexing(X, part)) for model, part in used])
    return logits[np.argsort(np.concatenate([part for _, part in used]))]


def fit_parameters_of(estimator: Any, sample_weight: Any) -> dict[str, Any]:
    """Return the weights under the name that the classifier's ``fit`` takes them by; a warning if it takes none."""
    if sample_weight is None:
        return {}
    inner, prefix = estimator, ""
    while isinstance(inner, Pipeline):
        name, inner = inner.steps[-1]
        prefix += f"{name}__"
    if has_fit_parameter(inner, "sample_weight"):
        return {f"{prefix}sample_weight": sample_weight}
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
