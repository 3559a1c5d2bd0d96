"""Types of arguments that many functions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from metricfit.core.thresholds import PerLabel, ThresholdGrid, ThresholdOfLogits

#: What the logits mean: one yes-or-no question, exclusive classes, or several yes-or-no questions.
Task = Literal["binary", "multiclass", "multilabel"]

#: How the values of several classes become one number.
ScalarAverage = Literal["macro", "micro", "weighted"]

#: The same for several labels, or the mean over the samples of the metric of each sample's labels.
LabelAverage = Literal["macro", "micro", "weighted", "samples"]

#: As for several classes, or None, which keeps one value per class.
Average = ScalarAverage | None

#: What a class counts for where its metric is 0/0: 0, 1, or nothing; None is the default of each average.
ZeroDivision = Literal[0, 1, "skip"] | None

#: Where decisions are made: a probability, one per label, several for all labels, a decision, or for multiclass
#: "dynamic"; None is the default.
Thresholds: TypeAlias = """
    float | Literal["dynamic"] | Sequence[float] | Tensor | PerLabel | ThresholdGrid | ThresholdOfLogits | None
"""


class Layout(NamedTuple):
    """The class axis, and the axes of the samples to be summed, both counted from the end."""

    class_axis: int
    sample_axes: tuple[int, ...]
