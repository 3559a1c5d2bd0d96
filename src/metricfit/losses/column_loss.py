"""ColumnLoss: what losses of binary and multilabel logits have in common."""

from __future__ import annotations

from torch import Tensor

from metricfit.core.canonical_batch import Columns
from metricfit.core.tasks import check_task, columns
from metricfit.core.types import Task
from metricfit.errors import InvalidValueError
from metricfit.losses.base import Loss


class ColumnLoss(Loss):
    """Base class of losses of binary or multilabel logits, in which each column is a separate binary problem.

    Attributes:
        task: "binary" or "multilabel", if the shapes do not determine it, as for masks ``(n, c, h, w)`` that may
            overlap.
        ignore_index: Samples, pixels or entries with this target are ignored.
    """

    task: Task | None
    ignore_index: int | None
    #: The losses to use for exclusive classes instead, for messages.
    _for_classes = "WeightedCrossEntropyLoss or MetricLoss"

    def set_target_format(self, task: Task | None, ignore_index: int | None) -> None:
        """Set how targets are read; constructors call it once.

        Args:
            task: "binary" or "multilabel", if the shapes do not determine it.
            ignore_index: Samples with this target are ignored.

        Raises:
            ValueError: If the task is "multiclass" or unknown.
        """
        check_task(task)
        if task == "multiclass":
            raise InvalidValueError(
                f"{type(self).__name__} is for binary or multilabel logits, got task='multiclass'; for classes that "
                f"exclude each other use {self._for_classes}"
            )
        self.task, self.ignore_index = task, ignore_index

    def columns(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Columns:
        """Return the batch as columns; ignored samples have weight 0.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            Logits, target and weight of shape ``(c, n)``.
        """
        return columns(
            logits,
            target,
            weight,
            type(self).__name__,
            task=self.task,
            ignore_index=self.ignore_index,
            for_classes=self._for_classes,
        )


def weights_by_class(batch: Columns) -> tuple[Tensor, Tensor]:
    """Return the weight of each sample as a positive and as a negative, both ``(c, n)``."""
    positive, negative = batch.target, 1 - batch.target
    if batch.weight is None:
        return positive, negative
    return batch.weight * positive, batch.weight * negative
