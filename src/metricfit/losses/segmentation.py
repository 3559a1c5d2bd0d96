"""LovaszLoss: the Jaccard index of a batch or image, extended from sets of errors to amounts of error.

It sorts the errors of pixels and shares nothing with losses of counts or of pairs, so that it has its own module.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Classes
from metricfit.core.distributed import gather_over_ranks, sum_over_ranks
from metricfit.core.numerics import ratio
from metricfit.core.settings import CountSettings
from metricfit.core.tasks import canonical, check_task
from metricfit.core.types import Task
from metricfit.core.validation import check_finite, is_false, looks_at_values
from metricfit.errors import InvalidValueError
from metricfit.losses.base import BatchLoss
from metricfit.metrics.average import weigh_images


class LovaszLoss(BatchLoss):
    r"""The Lovász extension of one minus the Jaccard index. Berman et al. 2018.

    .. math:: L = \sum_k e_{(k)} \big(J_k - J_{k-1}\big), \qquad J_k = 1 - \frac{|P \setminus E_k|}{|P \cup E_k|}

    :math:`e_{(1)} \ge e_{(2)} \ge \dots` are the errors in descending order, :math:`E_k` the k samples with the largest
    ones and P the positives. For binary and multilabel logits an error is :math:`\max(0, 1 - (2y-1)x)`, the hinge; for
    exclusive classes it is :math:`|y_c - p_c|`, with softmax probabilities.

    Args:
        task: "binary", "multiclass" or "multilabel", if the shapes do not determine it.
        per_image: Take the mean of the losses of the images, instead of the loss of the batch. Weights of images weigh
            them in the mean, weights of pixels count within their image, and images without counted pixels are left
            out.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the samples, or the images, of all ranks together.

    Raises:
        ValueError: If the task is unknown; when called, if the shapes do not match.

    Note:
        Exclusive classes without a sample are left out of the mean, and so are labels without a counted sample. A
        binary batch without positives has its largest error as loss, as in the paper's code.

    Example:
        >>> loss = LovaszLoss()
        >>> loss(torch.tensor([2.0, -2.0, 0.0]), torch.tensor([1, 0, 1]))
        tensor(0.5000)
    """

    def __init__(
        self,
        *,
        task: Task | None = None,
        per_image: bool = False,
        ignore_index: int | None = None,
        sync: bool = True,
    ) -> None:
        super().__init__(sync=sync)
        check_task(task)
        self.task, self.per_image, self.ignore_index = task, per_image, ignore_index

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample: a sample of weight 2 counts as two equal ones.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If the shapes do not match, or the targets are soft: shares of classes, or between 0 and 1.
        """
        batch = canonical(
            logits,
            target,
            CountSettings(task=self.task, ignore_index=self.ignore_index, per_image=self.per_image),
            weight=weight,
        )
        if isinstance(batch, Classes):
            errors, truth, weights = _errors_of_classes(batch, self.per_image)
        else:
            _refuse_soft_labels(batch.target)
            signs = 2 * batch.target - 1
            errors, truth, weights = (1 - signs * batch.logits).relu(), batch.target, batch.weight
        weights = torch.ones_like(errors) if weights is None else weights.expand_as(errors)
        gathers = self.spans_ranks
        if gathers and not self.per_image:
            errors, truth, weights = gather_over_ranks(torch.stack([errors, truth, weights]), dim=-1)
        losses = lovasz_extension(errors, truth, weights)
        self._range.look(self, logits)
        if looks_at_values(logits, None):
            check_finite(losses.detach(), logits)
        samples = truth * weights if isinstance(batch, Classes) else weights
        counted = (samples.detach().sum(-1) > 0).to(losses.dtype)
        sums = torch.stack([(losses * counted).sum(-1), counted.sum(-1)])  # over the classes
        if self.per_image:
            shares = weigh_images(sums[1] > 0, weight, losses.dtype)
            sums = torch.stack([(ratio(sums[0], sums[1]) * shares).sum(), shares.sum()])
            sums = sum_over_ranks(sums) if gathers else sums
        return ratio(sums[0], sums[1])

    def extra_repr(self) -> str:
        """Return the settings that differ from the defaults."""
        settings = [f"task={self.task!r}"] if self.task else []
        return ", ".join(settings + ["per_image=True"] * self.per_image)


def lovasz_extension(errors: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Compute the Lovász extension of one minus the Jaccard index.

    Args:
        errors: How wrong each sample is, ``(..., n)``, at least 0.
        truth: Labels 0 and 1 of the same shape.
        weight: Weights of the same shape.

    Returns:
        The losses ``(...)``.

    Example:
        >>> truth = torch.tensor([1.0, 1.0, 0.0])
        >>> lovasz_extension(torch.tensor([0.0, 1.0, 1.0]), truth, torch.ones(3))  # one hit, one miss, one false alarm
        tensor(0.6667)
    """
    falling, order = errors.sort(dim=-1, descending=True)
    positive = (truth * weight).gather(-1, order)
    negative = ((1 - truth) * weight).gather(-1, order)
    positives = positive.sum(-1, keepdim=True)
    losses = 1 - ratio(positives - positive.cumsum(-1), positives + negative.cumsum(-1))
    nothing = (positive + negative).cumsum(-1) == 0  # samples of weight 0 alone change nothing
    steps = torch.diff(losses.masked_fill(nothing, 0.0), dim=-1, prepend=torch.zeros_like(positives))
    return (falling * steps).sum(-1)


def _refuse_soft_labels(target: Tensor) -> None:
    if looks_at_values(target, None) and is_false(((target == 0) | (target == 1)).all()):
        raise InvalidValueError(
            "LovaszLoss takes labels 0 and 1; a target lies between them: round it, target.round(), or use MetricLoss"
        )


def _errors_of_classes(batch: Classes, per_image: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return errors and labels ``(c, n)``, per image ``(images, c, pixels)``, and weights that broadcast with them."""
    if batch.target.is_floating_point():
        raise InvalidValueError("LovaszLoss takes class numbers; these targets are shares of classes")
    axis = batch.layout.class_axis
    probabilities = batch.logits.softmax(axis)
    classes = torch.arange(probabilities.shape[axis], device=probabilities.device)
    if per_image:
        probabilities = probabilities.movedim(axis, 1).flatten(2)
        target = batch.target.flatten(1).unsqueeze(1)
    else:
        probabilities = probabilities.movedim(axis, 0).flatten(1)
        target = batch.target.reshape(1, -1)
    truth = (target == classes.unsqueeze(1)).to(probabilities.dtype)
    weight = None if batch.weight is None else batch.weight.reshape(target.shape)
    return (truth - probabilities).abs(), truth, weight
