"""The verdicts about a model, in sentences: after training, and on other rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.decide.bounds import format_percent
from metricfit.decide.class_requirements import model_requirements
from metricfit.metrics import averaged, get_metric
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.report import formatting
from metricfit.report.first_screen import always_largest_class, flagging_everybody, flagging_nobody
from metricfit.report.model_decisions import class_labels, metric_label
from metricfit.tabular import MetricClassifier
from metricfit.tabular.insight.judged_rows import held_out_counts

Pair = tuple[float, float]
#: How a confidence becomes exact.
EXACT = "With --calibration 0.3 (calibration=0.3 in Python) rows are kept apart, which makes the test exact."


def verdict_of_fit(model: MetricClassifier) -> str:
    """Say what the value is an estimate of, whether requirements are met, and what to do next."""
    held_out = formatting.value(model.decision_.evidence.value)
    sentences = [
        "The decision was chosen on the held-out rows where the value was measured. New rows usually have a slightly "
        "worse value."
        if model.requirements_
        else f"The value is estimated for new rows: the value on held-out rows, {held_out}, corrected for having been "
        "chosen on them."
    ]
    if model.refer_region_ is not None:
        low, high = model.refer_region_
        sentences.append(
            f"Rows with a probability of “{model.pos_label_}” from {low:.4g} to {high:.4g} are referred to a person: "
            f"{formatting.percent(model.referred_share_)} of the held-out rows. The value is that of the other rows."
        )
    if model.decision_.evidence.not_reachable is not None:
        sentences.insert(
            0,
            f"The requirements cannot be met: {model.decision_.evidence.not_reachable}. The model decides as near to "
            "them as it can; choose other requirements with MetricClassifier.load(...).rethreshold(subject_to=...).",
        )
    elif model.requirements_:
        met = "; ".join(f"{text} ({formatting.value(result.value)})" for text, result in model.requirements_.items())
        if model.certificate_ is not None and model.confidence_ is not None:
            certificate = model.certificate_[0].upper() + model.certificate_[1:]
            sentences.append(f"{certificate} at {format_percent(model.confidence_)} confidence: {met} here.")
            if model.decision_.evidence.out_of_fold:
                sentences.append(f"New rows are scored by other models than these rows. {EXACT}")
        else:
            remedy = "--confidence 0.95 (confidence=0.95 in Python) asks for a decision with a margin"
            if model.refer_region_ is not None:
                remedy = "ask for more than you need"
            sentences.append(
                f"Met on held-out rows only: {met}. A requirement that is met with little room may fail on new rows; "
                f"{remedy}."
            )
    sentences += better_without_model(model, held_out_counts(model), model.decision_.evidence.value)
    sentences.append("The command metricfit compare shows whether a simpler method does as well.")
    return " ".join(sentences)


def verdict_of_evaluation(
    model: MetricClassifier,
    counts: Counts,
    value: float,
    interval: Pair | None,
    *,
    threshold: float | None = None,
) -> str:
    """Say how a model does on labelled rows compared with training, and whether its requirements hold there.

    Args:
        model: The model.
        counts: The counts of its decisions on the rows.
        value: Its metric on the rows.
        interval: The 95 % interval of the value; None if the rows are of one class.
        threshold: The threshold, if it was not the model's.

    Returns:
        A few sentences.
    """
    sentence = compare_with_training(
        model, value, interval, positives=int(counts.positives.min()), threshold=threshold
    ).sentence
    results = requirements_on(model, counts, threshold=threshold)
    held = (
        f" The requirement {text} {'holds' if result.met else 'does not hold'} here ({formatting.value(result.value)})."
        for text, result in results.items()
    )
    return " ".join([sentence + "".join(held), *better_without_model(model, counts, value)])


def better_without_model(model: MetricClassifier, counts: Counts, value: float) -> list[str]:
    """Say if a decision that needs no model has a better value on the same rows.

    Args:
        model: The model.
        counts: The counts of its decisions.
        value: Its metric.

    Returns:
        One sentence about the best such decision that meets the requirements; none if the model is at least as good, or
        if the metric takes costs from columns.
    """
    metric = get_metric(model.metric)
    if metric.columns:
        return []
    if isinstance(counts, ConfusionMatrix):
        largest = str(class_labels(model)[int(counts.positives.argmax())])
        others: dict[str, Counts] = {f"Always deciding for “{largest}”": always_largest_class(counts)}
    else:
        others = {"Flagging nobody": flagging_nobody(counts), "Flagging everybody": flagging_everybody(counts)}
        wanted = model_requirements(model)
        others = {name: each for name, each in others.items() if all(bool(one.holds(each).all()) for one in wanted)}
    sign = -1.0 if metric.minimize else 1.0
    values = {name: float(averaged(metric, each, model.average)) for name, each in others.items()}
    best = max(values, key=lambda name: sign * values[name], default=None)
    if best is None or sign * (values[best] - value) <= 1e-12:
        return []
    return [f"{best} would be better on these rows: {metric_label(model)} {formatting.value(values[best])}."]


def judged_requirements(model: MetricClassifier, threshold: float | None = None) -> list[Requirement]:
    """Return the requirements that a model is judged by on other rows.

    Requirements that rows are referred for (``refer(subject_to=...)``) are among them, unless another threshold decides
    all rows.
    """
    requirements = model_requirements(model)
    if threshold is not None or model.refer_region_ is None:
        return requirements
    known = set(map(str, requirements))
    return [*requirements, *(parse_requirement(text) for text in model.requirements_ if text not in known)]


def requirements_on(
    model: MetricClassifier, counts: Counts, *, threshold: float | None = None
) -> Mapping[str, RequirementValue]:
    """Return, for each of the model's requirements, its value on these counts and whether that meets the bound."""
    results = {}
    for requirement in judged_requirements(model, threshold):
        value = float(requirement.metric(counts).squeeze(-1))
        results[str(requirement)] = RequirementValue(value, bool(requirement.holds(counts).all()), value)
    return results


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
