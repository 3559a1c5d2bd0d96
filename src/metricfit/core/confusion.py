"""Counts that hold the whole confusion matrix of exclusive classes, for metrics that weigh each kind of error."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING


class ConfusionMatrix(Counts):
    """Counts of exclusive classes that are read from a confusion matrix ``(..., c, c)``.

    Row i, column j holds the samples of class i that are predicted to be of class j. Metrics of counts work as on other
    Counts, and metrics of the whole matrix use ``matrix``. What adds up over batches and processes is the matrix.

    Args:
        matrix: The matrix, or several of them.

    Example:
        >>> counts = ConfusionMatrix(torch.tensor([[3.0, 1.0], [2.0, 4.0]]))
        >>> counts.tp, counts.fp, (counts + counts).matrix[1]
        (tensor([3., 4.]), tensor([2., 1.]), tensor([4., 8.]))
    """

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "exclusive", True)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor that adds up over batches and processes: the matrix alone."""
        return (self.matrix,)

    def with_tensors(self, tensors: Iterable[Tensor]) -> Counts:
        """Return a ConfusionMatrix of another matrix."""
        return ConfusionMatrix(*tensors)

    @property
    def tp(self) -> Tensor:
        """True positives of each class: the diagonal."""
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    @property
    def fp(self) -> Tensor:
        """False positives of each class: the rest of its column."""
        return self._errors.sum(-2)

    @property
    def fn(self) -> Tensor:
        """False negatives of each class: the rest of its row."""
        return self._errors.sum(-1)

    @property
    def tn(self) -> Tensor:
        """True negatives of each class: everything outside its row and its column."""
        n = self.matrix.sum((-2, -1)).unsqueeze(-1)
        rest = n - self.tp - self.fp - self.fn
        return torch.where(rest > ROUNDING * n, rest, 0.0)

    @property
    def _errors(self) -> Tensor:
        """The matrix with 0 on its diagonal."""
        classes = self.matrix.shape[-1]
        return self.matrix.masked_fill(torch.eye(classes, dtype=torch.bool, device=self.matrix.device), 0.0)

    def __repr__(self) -> str:
        return f"ConfusionMatrix({self.matrix})"


def unstack(stacked: Tensor, *, exclusive: bool | None) -> Counts:
    """Return the counts whose ``tensors`` were stacked: four tensors, or one that is a confusion matrix.

    If ``exclusive`` is None, it follows from the numbers.
    """
    if len(stacked) == 1:
        return ConfusionMatrix(stacked[0])
    return Counts(*stacked) if exclusive is None else Counts(*stacked, exclusive=exclusive)


def two_by_two(counts: Counts) -> Tensor:
    """Return the matrix ``[[tn, fp], [fn, tp]]`` of each class of counts ``(..., c)``, as ``(..., c, 2, 2)``.

    Example:
        >>> two_by_two(Counts(tp=3, fp=1, fn=2, tn=4))
        tensor([[[4., 1.],
                 [2., 3.]]], dtype=torch.float64)
    """
    negative, positive = torch.stack([counts.tn, counts.fp], -1), torch.stack([counts.fn, counts.tp], -1)
    return torch.stack([negative, positive], -2)
