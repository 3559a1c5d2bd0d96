"""The verdicts about a model, in sentences: after training, and on other rows."""

from __future__ import annotations

from collections.abc import Mapping

from metricfit.core.counts import Counts
from metricfit.decide.estimators.model_requirements import model_requirements
from metricfit.decide.guarantees.bounds import format_percent
from metricfit.metrics.feasibility import RequirementValue
from metricfit.report import formatting
from metricfit.report.training_comparison import compare_with_training
from metricfit.tabular import MetricClassifier

Pair = tuple[float, float]


def verdict_of_fit(model: MetricClassifier) -> str:
    """Say what the value is an estimate of, whether requirements are met, and what to do next."""
    sentences = [
        f"The value is estimated for new rows: the value on held-out rows, {formatting.value(model.decision_.value)}, "
        "corrected for having been chosen on them."
    ]
    if model.refer_region_ is not None:
        low, high = model.refer_region_
        sentences.append(
            f"Rows with a probability of “{model.pos_label_}” from {low:.4g} to {high:.4g} are referred to a person: "
            f"{formatting.percent(model.referred_share_)} of the held-out rows. The value is that of the other rows."
        )
    if model.decision_.not_reachable is not None:
        sentences.insert(
            0,
            f"The requirements cannot be met: {model.decision_.not_reachable}. The model decides as near to "
            "them as it can; choose other requirements with MetricClassifier.load(...).rethreshold(subject_to=...).",
        )
    elif model.requirements_:
        met = "; ".join(f"{text} ({formatting.value(result.value)})" for text, result in model.requirements_.items())
        if model.confidence_ is not None:
            sentences.append(f"Guaranteed on new rows at {format_percent(model.confidence_)} confidence: {met} here.")
        else:
            sentences.append(
                f"Met on held-out rows only: {met}. A requirement that is met with little room may fail on new rows; "
                "confidence=0.95 chooses a decision that holds there too."
            )
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
    results = requirements_on(model, counts)
    held = (
        f" The requirement {text} {'holds' if result.met else 'does not hold'} here ({formatting.value(result.value)})."
        for text, result in results.items()
    )
    return sentence + "".join(held)


def requirements_on(model: MetricClassifier, counts: Counts) -> Mapping[str, RequirementValue]:
    """Return, for each of the model's requirements, its value on these counts and whether that meets the bound."""
    results = {}
    for requirement in model_requirements(model):
        value = float(requirement.metric(counts).squeeze(-1))
        results[str(requirement)] = RequirementValue(value, bool(requirement.holds(counts).all()), value)
    return results
