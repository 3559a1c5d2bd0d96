"""A model's value on labelled rows beside the value that training estimated for new rows, in one sentence."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from metricfit.metrics import get_metric
from metricfit.report import formatting
from metricfit.report.model_decisions import metric_label
from metricfit.tabular import MetricClassifier

Pair = tuple[float, float]
Verdict = Literal["as expected", "better", "worse", "not comparable"]


@dataclass(frozen=True)
class TrainingComparison:
    """How a value on labelled rows compares with that of training.

    Attributes:
        value: The value that training estimated for new rows.
        interval: Its 95 % interval; None if it is not known.
        difference: The value on the rows minus that of training; None if they cannot be compared.
        verdict: "as expected", "better", "worse" or "not comparable".
        sentence: The same in words.
    """

    value: float
    interval: Pair | None
    difference: float | None
    verdict: Verdict
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return asdict(self)


def compare_with_training(
    model: MetricClassifier,
    value: float | None,
    interval: Pair | None,
    *,
    positives: int,
    threshold: float | None = None,
) -> TrainingComparison:
    """Say whether a model does on labelled rows what training estimated for new rows.

    Both values have an interval. Their difference is called better or worse if its 95 % interval, made from both
    (the square-and-add method of Zou and Donner 2008), does not contain 0.

    Args:
        model: The model.
        value: Its metric on the rows; None where it is 0/0.
        interval: The 95 % interval of the value; None if the rows are of one class.
        positives: Number of rows of the rarest class, or of the positive one of two.
        threshold: The threshold, if it was not the model's.

    Returns:
        The value at training time, the verdict, and a sentence.
    """
    before, known = model.value_, model.value_interval_
    here = f"{metric_label(model)} is {'not known' if value is None else formatting.value(value)} here"
    at_training = f"{formatting.value(before)} at training time"
    if value is None or interval is None:
        reason = "The rows are all of one class, so they do not say how the model tells classes apart."
        return TrainingComparison(before, known, None, "not comparable", f"{here}, {at_training}. {reason}")
    if threshold is not None and model.threshold_ is not None and threshold != model.threshold_:
        reason = (
            f"This is at the threshold {threshold:.4g}, and the model's own is "
            f"{formatting.threshold(model.threshold_)}. The two values cannot be compared."
        )
        return TrainingComparison(before, known, None, "not comparable", f"{here}, {at_training}. {reason}")
    here += f" (95 % interval {formatting.between(interval)})"
    if known is not None:
        at_training += f" (interval {formatting.between(known)})"
    verdict = _verdict(value, interval, before, known or (before, before), get_metric(model.metric).minimize)
    words = {
        "as expected": "as expected.",
        "better": "better than expected.",
        "worse": "worse than expected. Look for what differs in these rows before you rely on the model.",
    }[verdict]
    if verdict == "as expected" and positives < 100:
        words = f"as expected, as far as {positives} rows of the rarest class can tell."
    return TrainingComparison(before, known, value - before, verdict, f"{here}, {at_training}: {words}")


def _verdict(value: float, interval: Pair, before: float, known: Pair, minimize: bool) -> Verdict:
    """Compare two values by the ends of their intervals that face each other."""
    if value < before:
        reach = math.hypot(interval[1] - value, before - known[0])
    else:
        reach = math.hypot(value - interval[0], known[1] - before)
    if abs(value - before) <= reach:
        return "as expected"
    return "worse" if (value < before) != minimize else "better"
