"""ClassBalanced: a mean over samples with the classes weighted by the inverse of their shares."""

from __future__ import annotations

from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses.base import check_parts
from metricfit.losses.pointwise import PointwiseLoss, check_prior


class ClassBalanced(PointwiseLoss):
    r"""A mean over samples with each class weighted by the inverse of its share in the training set.

    .. math:: \frac{\sum_i w_i\, b_i\, l_i}{\sum_i w_i}, \qquad
        b_i = \frac{1}{\pi} \text{ for positives}, \quad \frac{1}{1-\pi} \text{ for negatives}

    with :math:`l_i` the loss of a sample, :math:`w_i` its weight and :math:`\pi` the prior: the class-balanced mean of
    Lee et al. 2021, whose weights are n/n_y of the training set. Over the training set it is the sum of the two
    classes' mean losses. Nothing is normalised by the batch: its expected value over random batches is that of the
    training set, and a batch with more positives than the prior has a larger share of the positives' loss.
    ``SurrogateFBetaLoss(balanced=True)`` is the same weighting built in.

    Args:
        loss: a binary loss of this library that is a mean over samples, such as ``MAELoss()``. Its ``task``,
            ``ignore_index`` and ``sync`` hold here too.
        prior: the share of positives in the training set.

    Raises:
        TypeError: the loss is no mean over samples.
        ValueError: the loss balances the classes already, or the prior is no share.

    Example:
        >>> import torch
        >>> from metricfit.losses import MAELoss
        >>> loss = ClassBalanced(MAELoss(), prior=0.1)
        >>> loss(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))  # (1/0.1 + 1/0.9) / 2
        tensor(5.5556)
    """

    balanced = True

    def __init__(self, loss: PointwiseLoss, prior: float) -> None:
        if not isinstance(loss, PointwiseLoss):
            raise InvalidTypeError(
                f"ClassBalanced needs a loss of metricfit.losses that is a mean over samples, such as MAELoss(), and "
                f"{type(loss).__name__} is none; losses of counts or pairs weigh the classes themselves"
            )
        check_parts(loss, "ClassBalanced", ("of_positive", "of_negative"), ("forward", "statistics", "value"))
        if loss.balanced:
            raise InvalidValueError(
                f"{loss!r} weighs the classes already, and ClassBalanced would do so twice; use it without "
                "ClassBalanced, or with balanced=False where it has that setting"
            )
        super().__init__(task=loss.task, ignore_index=loss.ignore_index, sync=loss.sync)
        self.loss = loss
        self.prior = check_prior("ClassBalanced", prior)

    def columns(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Columns:
        """The batch, if it is binary: there is one prior."""
        batch = super().columns(logits, target, weight)
        if not batch.exclusive:
            raise InvalidValueError(
                f"ClassBalanced is for binary logits, and these, {tuple(logits.shape)}, are multilabel"
            )
        return batch

    def of_positive(self, logits: Tensor) -> Tensor:
        """The inner loss of a positive, divided by the prior."""
        return self.loss.of_positive(logits) / self.prior

    def of_negative(self, logits: Tensor) -> Tensor:
        """The inner loss of a negative, divided by the share of negatives."""
        return self.loss.of_negative(logits) / (1 - self.prior)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"prior={self.prior:g}"
