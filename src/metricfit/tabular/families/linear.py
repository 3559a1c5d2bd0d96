"""Logistic regression by scikit-learn, with the penalty and the scale of the columns chosen on the other folds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from metricfit.errors import ModelFileError
from metricfit.tabular.encoding.encoder import CLIP
from metricfit.tabular.families.family import (
    Candidates,
    Deadline,
    Expected,
    Family,
    Features,
    FittedModel,
    Floats,
    ModelState,
    TrainingRows,
    cross_entropy,
    predict_in_parts,
)

#: scikit-learn's C, from the strongest penalty to the weakest.
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
ITERATIONS = 200
#: Columns without the smooth clip are cut here, in the units of the encoding (the distance of the quartiles).
FARTHEST = 10.0
#: Fitted coefficients are far smaller; sums of larger ones could overflow.
LARGEST = 1e100


def both_scales(encoded: NDArray[np.float32]) -> Floats:
    """Return the encoded columns, followed by the same columns without the smooth clip of the encoding.

    The clip helps where columns have outliers. It harms where the logit is linear far from the centre.

    >>> both_scales(np.array([[0.0, 2.1]], dtype=np.float32)).round(2)
    array([[0.  , 2.1 , 0.  , 2.94]])
    """
    clipped = encoded.astype(np.float64)
    inside = np.clip(clipped, -0.999 * CLIP, 0.999 * CLIP)
    unclipped = inside / np.sqrt(1 - np.square(inside / CLIP))
    return np.concatenate([clipped, np.clip(unclipped, -FARTHEST, FARTHEST)], axis=1)


@dataclass(frozen=True)
class LinearModel(FittedModel):
    """Logits that are linear in the columns of ``both_scales``.

    Attributes:
        coefficients: One row per logit.
        intercepts: One number per logit.
    """

    coefficients: Floats
    intercepts: Floats

    def logits(self, features: Features) -> Floats:
        """Return the logits."""
        return predict_in_parts(self._logits, features.encoded)

    def _logits(self, x: NDArray[np.float32]) -> Floats:
        return np.asarray(both_scales(x) @ self.coefficients.T + self.intercepts)

    def state(self) -> ModelState:
        """Return the coefficients and intercepts."""
        return ModelState("linear", arrays={"coefficients": self.coefficients, "intercepts": self.intercepts})

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> LinearModel:
        """Return the model of a state.

        Raises:
            ModelFileError: The arrays do not fit the table and its classes.
        """
        coefficients = state.array("coefficients", "f", (expected.outputs, 2 * expected.columns)).astype(np.float64)
        intercepts = state.array("intercepts", "f", (expected.outputs,)).astype(np.float64)
        if max(np.abs(coefficients).max(initial=0.0), np.abs(intercepts).max()) > LARGEST:
            raise ModelFileError("linear: a coefficient is too large to have been fitted")
        return cls(coefficients, intercepts)


class Linear(Family):
    """Logistic regression with five penalties on two scales, of which the other folds choose one."""

    name = "linear"

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> Candidates:
        """Fit on each scale, from the strongest penalty to the weakest, each from the solution before."""
        columns, held_out_columns = both_scales(train.x), both_scales(held_out.x)
        width = train.x.shape[1]
        models, losses = [], []
        for scale in (slice(0, width), slice(width, None)):
            for coefficients, intercepts in fit_penalties(columns[:, scale], train, PENALTIES, deadline):
                logits = held_out_columns[:, scale] @ coefficients.T + intercepts
                losses.append(cross_entropy(logits, held_out.y, held_out.weight))
                placed = np.zeros((len(intercepts), 2 * width))
                placed[:, scale] = coefficients
                models.append(LinearModel(placed, intercepts))
        return Candidates(models.__getitem__, np.nan_to_num(np.array(losses), nan=np.inf, posinf=np.inf))

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Average the coefficients, which averages the logits."""
        linear = [model for model in models if isinstance(model, LinearModel)]
        return LinearModel(
            np.mean([model.coefficients for model in linear], axis=0),
            np.mean([model.intercepts for model in linear], axis=0),
        )


def fit_penalties(
    columns: Any, train: TrainingRows, penalties: Sequence[float], deadline: Deadline
) -> Iterator[tuple[Floats, Floats]]:
    """Fit logistic regressions from the strongest penalty to the weakest, each from the solution before.

    Args:
        columns: The columns of the training rows, an array or a sparse matrix.
        train: The training rows, for their classes and weights.
        penalties: scikit-learn's C, in ascending order.
        deadline: When to stop with OutOfTime.

    Yields:
        For each penalty, the coefficients ``(outputs, columns)`` and the intercepts ``(outputs,)``.
    """
    model = LogisticRegression(max_iter=ITERATIONS, warm_start=True)
    for penalty in penalties:
        deadline.check()
        model.set_params(C=penalty)
        with warnings.catch_warnings():
            # A solution that is not exact to the last digits is as good here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(columns, train.y, sample_weight=train.weight)
        yield _all_classes(model, train.classes)


def _all_classes(model: LogisticRegression, classes: int) -> tuple[Floats, Floats]:
    """Return coefficients and intercepts of every class; classes without a row get a very low logit."""
    if classes == 2:
        return model.coef_.copy(), model.intercept_.copy()
    coefficients, intercepts = np.zeros((classes, model.coef_.shape[1])), np.full(classes, -20.0)
    if len(model.classes_) == 2:
        coefficients[model.classes_[1]], intercepts[model.classes_] = model.coef_[0], [0.0, model.intercept_[0]]
    else:
        coefficients[model.classes_], intercepts[model.classes_] = model.coef_, model.intercept_
    return coefficients, intercepts
