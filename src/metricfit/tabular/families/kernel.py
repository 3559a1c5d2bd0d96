"""Support vectors with an RBF kernel by scikit-learn, one against the rest of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from metricfit.core.arrays import Floats
from metricfit.errors import ModelFileError
from metricfit.tabular.families.arithmetic import check_shape, predict_in_parts
from metricfit.tabular.families.family import Deadline, Family, Features, FittedModel, TrainingRows

if TYPE_CHECKING:
    from metricfit.tabular.storage import Folder

MOST_ROWS = 10_000
#: Rows times support vectors that are evaluated at a time.
NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True)
class KernelModel(FittedModel):
    r"""Logits :math:`\sum_s a_s \exp(-\gamma |x - x_s|^2) + b`, in one expansion for all logits.

    Attributes:
        vectors: The support vectors.
        coefficients: One column per logit.
        intercepts: One number per logit.
        gamma: The kernel's width.
    """

    vectors: NDArray[np.float32]
    coefficients: NDArray[np.float32]
    intercepts: Floats
    gamma: float

    def logits(self, features: Features) -> Floats:
        """Return the logits, for some rows at a time."""
        return predict_in_parts(self._sums, features.encoded) + self.intercepts

    def _sums(self, x: NDArray[np.float32]) -> Floats:
        # -gamma |x - s|^2 = 2 gamma x s - gamma |x|^2 - gamma |s|^2, in single precision and without copies
        directions = (2 * self.gamma * self.vectors.astype(np.float64)).astype(np.float32).T
        of_vectors = (self.gamma * np.square(self.vectors, dtype=np.float64).sum(axis=1)).astype(np.float32)
        result = np.empty((len(x), len(self.intercepts)))
        step = max(1, NUMBERS_AT_ONCE // max(1, len(self.vectors)))
        for first in range(0, len(x), step):
            part = x[first : first + step]
            exponents = part @ directions
            exponents -= of_vectors
            exponents -= (self.gamma * np.square(part, dtype=np.float64).sum(axis=1)).astype(np.float32)[:, None]
            np.minimum(exponents, 0.0, out=exponents)
            result[first : first + step] = np.exp(exponents, out=exponents) @ self.coefficients
        return result

    def restored(self, folder: Folder) -> KernelModel:
        """Refuse arrays that do not fit the table and its classes."""
        check_shape("vectors", self.vectors, (None, folder.columns))
        check_shape("coefficients", self.coefficients, (len(self.vectors), folder.outputs))
        check_shape("intercepts", self.intercepts, (folder.outputs,))
        if not self.gamma > 0:
            raise ModelFileError("gamma must be a finite number above 0")
        return self


class Kernel(Family):
    """Support vectors with an RBF kernel, for tables of up to 10,000 rows.

    Args:
        gamma: The kernel's width; None to choose it by the variance of the columns.
    """

    name = "kernel"
    can_be_stopped = False
    growth = 2.0
    #: scikit-learn's C.
    penalty = 3.0

    def __init__(self, gamma: float | None = None) -> None:
        self.gamma = gamma

    def prepare(self, rows: TrainingRows) -> Kernel:
        """Choose the kernel's width by the variance of the columns, the same for all folds."""
        return Kernel(_width(rows))

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Skip tables of more than 10,000 rows."""
        return f"more than {MOST_ROWS:,} rows" if len(rows) > MOST_ROWS else None

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Fit one machine for two classes, or one for each of several classes against the rest."""
        gamma = _width(train) if self.gamma is None else self.gamma
        x = train.x.astype(np.float64)
        coefficients = np.zeros((len(x), train.outputs), dtype=np.float32)
        intercepts = np.full(train.outputs, -20.0)
        for output in range(train.outputs):
            deadline.check()
            target = train.y == (1 if train.classes == 2 else output)
            if not target.any():
                continue
            machine = SVC(C=self.penalty, gamma=gamma, cache_size=500).fit(x, target, sample_weight=train.weight)
            coefficients[machine.support_, output] = machine.dual_coef_[0]
            intercepts[output] = machine.intercept_[0]
        used = coefficients.any(axis=1)
        return KernelModel(train.x[used], coefficients[used], intercepts, gamma)

    def combine(self, models: Sequence[FittedModel]) -> FittedModel:
        """Average the folds' expansions into one: a row that supports several folds is kept once."""
        kernels = [model for model in models if isinstance(model, KernelModel)]
        every = np.concatenate([model.vectors for model in kernels])
        vectors, place = np.unique(every, axis=0, return_inverse=True)
        coefficients = np.zeros((len(vectors), kernels[0].coefficients.shape[1]), dtype=np.float64)
        np.add.at(coefficients, place.ravel(), np.concatenate([model.coefficients for model in kernels]))
        intercepts = np.mean([model.intercepts for model in kernels], axis=0)
        return KernelModel(vectors, (coefficients / len(kernels)).astype(np.float32), intercepts, kernels[0].gamma)


def _width(rows: TrainingRows) -> float:
    """Return scikit-learn's ``gamma="scale"``."""
    return float(1.0 / max(1e-6, rows.x.shape[1] * float(rows.x.var())))
