"""Counts that hold the whole confusion matrix of exclusive classes, for metrics that weigh each kind of error."""

from __future__ import annotations

from collections.abc import Iterable

from metricfit.core.arrays import Array, arange, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING


class ConfusionMatrix(Counts):
    """Counts of exclusive classes that are read from a confusion matrix ``(..., c, c)``.

    Row i, column j holds the samples of class i that are predicted to be of class j. Metrics of counts work as on other
    Counts, and metrics of the whole matrix use ``matrix``. What adds up over batches and processes is the matrix.

    Args:
        matrix: The matrix, or several of them.

    Example:
        >>> counts = ConfusionMatrix(np.array([[3.0, 1.0], [2.0, 4.0]]))
        >>> counts.tp, counts.fp, (counts + counts).matrix[1]
        (array([3., 4.]), array([2., 1.]), array([4., 8.]))
    """

    matrix: Array

    def __init__(self, matrix: Array) -> None:
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "exclusive", True)

    @property
    def tensors(self) -> tuple[Array, ...]:
        """The array that adds up over batches and processes: the matrix alone."""
        return (self.matrix,)

    def with_tensors(self, tensors: Iterable[Array]) -> Counts:
        """Return a ConfusionMatrix of another matrix."""
        return ConfusionMatrix(*tensors)

    @property
    def tp(self) -> Array:
        """True positives of each class: the diagonal."""
        return self.matrix.diagonal(0, -2, -1)

    @property
    def fp(self) -> Array:
        """False positives of each class: the rest of its column."""
        return self._errors.sum(-2)

    @property
    def fn(self) -> Array:
        """False negatives of each class: the rest of its row."""
        return self._errors.sum(-1)

    @property
    def tn(self) -> Array:
        """True negatives of each class: everything outside its row and its column."""
        n = self.matrix.sum((-2, -1))[..., None]
        rest = n - self.tp - self.fp - self.fn
        return namespace(rest).where(rest > ROUNDING * n, rest, 0.0)

    @property
    def _errors(self) -> Array:
        """The matrix with 0 on its diagonal."""
        classes = arange(self.matrix, 0, self.matrix.shape[-1])
        return namespace(self.matrix).where(classes[:, None] == classes, 0.0, self.matrix)

    def __repr__(self) -> str:
        return f"ConfusionMatrix({self.matrix})"


def unstack(stacked: Array, *, exclusive: bool | None) -> Counts:
    """Return the counts whose ``tensors`` were stacked: four arrays, or one that is a confusion matrix.

    If ``exclusive`` is None, it follows from the numbers.
    """
    if len(stacked) == 1:
        return ConfusionMatrix(stacked[0])
    return Counts(*stacked) if exclusive is None else Counts(*stacked, exclusive=exclusive)


def two_by_two(counts: Counts) -> Array:
    """Return the matrix ``[[tn, fp], [fn, tp]]`` of each class of counts ``(..., c)``, as ``(..., c, 2, 2)``.

    Example:
        >>> two_by_two(Counts(tp=3, fp=1, fn=2, tn=4))
        array([[[4., 1.],
                [2., 3.]]])
    """
    xp = namespace(counts.tp)
    negative, positive = xp.stack([counts.tn, counts.fp], -1), xp.stack([counts.fn, counts.tp], -1)
    return xp.stack([negative, positive], -2)
