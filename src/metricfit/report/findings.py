"""The verdicts about a model, in sentences: after training, and on other rows."""

from __future__ import annotations

from collections.abc import Mapping

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.decide.estimators.model_requirements import model_requirements
from metricfit.decide.guarantees.bounds import format_percent
from metricfit.metrics import averaged, get_metric
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.requirements import Requirement, parse_requirement
from metricfit.report import formatting
from metricfit.report.first_screen import always_largest_class, flagging_everybody, flagging_nobody
from metricfit.report.model_decisions import class_labels, metric_label
from metricfit.report.training_comparison import compare_with_training
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
