"""What losses of yes-or-no questions share: which task the logits are, and which labels count for nothing."""

from __future__ import annotations

from torch import Tensor, nn

from metricfit.core.canonical_batch import Columns
from metricfit.core.tasks import check_task, columns
from metricfit.errors import InvalidValueError


class ColumnLoss(nn.Module):
    """A loss of binary or multilabel logits, each column of which is a yes-or-no question.

    Attributes:
        task: "binary" or "multilabel", where the shapes do not tell, as for masks ``(n, c, h, w)`` that may overlap.
        ignore_index: samples, pixels or entries with this target count for nothing.
    """

    task: str | None
    ignore_index: int | None

    def set_reading(self, task: str | None, ignore_index: int | None) -> None:
        """Keep how targets are to be read; to be called once, by the constructor."""
        check_task(task)
        if task == "multiclass":
            raise InvalidValueError(
                f"{type(self).__name__} is for binary or multilabel logits, got task='multiclass'; for classes that "
                "exclude each other take WeightedCrossEntropyLoss or MetricLoss"
            )
        self.task, self.ignore_index = task, ignore_index

    def columns(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Columns:
        """The batch as columns, ignored samples with weight 0."""
        return columns(logits, target, weight, type(self).__name__, task=self.task, ignore_index=self.ignore_index)
