"""CountSettings: how a batch is read and counted, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from metricfit.core.steps import Step
    from metricfit.core.types import Task, Thresholds


class CountSettings(NamedTuple):
    """How a batch is read and counted; everything but the batch itself.

    Attributes:
        task: "binary", "multiclass" or "multilabel"; None if the shapes determine it.
        step: The soft decision; None for the default of the task. Hard counts have none.
        threshold: Where decisions are made; None for the default of the task.
        ignore_index: Samples with this label are not counted.
        per_image: Whether each image is counted separately.
        groups: Number of groups that are counted separately; None for the largest group number plus 1.
        validate: Whether labels and logits are checked for values out of range and NaN; None for in eager mode on the
            CPU.

    Example:
        >>> CountSettings(task="binary", threshold=0.3).threshold
        0.3
    """

    task: Task | None = None
    step: Step | None = None
    threshold: Thresholds = None
    ignore_index: int | None = None
    per_image: bool = False
    groups: int | None = None
    validate: bool | None = None


#: What the shapes determine, and the defaults of everything else.
DEFAULT = CountSettings()
