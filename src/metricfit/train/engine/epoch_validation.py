"""The results of validation: the loss, the monitored value, and whether requirements hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from metricfit.constraints import RequirementConstraint
from metricfit.core.counting import count_hard
from metricfit.core.threshold_vectors import PerLabel
from metricfit.metrics.requirements import Requirement
from metricfit.train.data.batches import Batch
from metricfit.train.monitor import Monitor
from metricfit.train.monitored_value import Measured
from metricfit.train.stage import Objective, Stage, match_shapes

#: The threshold of decisions, or one per label; NaN if the largest logit decides.
Threshold = float | tuple[float, ...]


class UnmetRequirementWarning(UserWarning):
    """Training ended with weights that break a requirement.

    Example:
        >>> warnings.simplefilter("error", UnmetRequirementWarning)  # stop instead
    """


@dataclass(frozen=True)
class Validation:
    """A model on its validation samples after an epoch.

    Attributes:
        loss: The loss that epochs are compared by.
        measured: What the first monitor measured, and how far requirements are broken.
        observed: The value for the objective's ``observe``; higher is better.
        meets: Whether the objective's requirements hold; None if it has none.
        others: What the other monitors measured.
    """

    loss: float
    measured: Measured
    observed: float
    meets: bool | None = None
    others: tuple[Measured, ...] = ()

    def after_success(self) -> Validation:
        """Return this result as the objective observes it after an earlier epoch has met the requirements.

        From then on only the multipliers enforce the requirements. An epoch that breaks them by chance must not raise
        the penalty, because the penalty would grow without end.
        """
        return replace(self, observed=0.0)


@dataclass(frozen=True)
class RequirementResult:
    """Whether a requirement holds for the weights that training returned.

    Attributes:
        requirement: The text of the requirement, such as "recall >= 0.9".
        value: The metric's value; with several classes or groups, the worst. NaN if there were no samples for it.
        bound: The bound.
        met: Whether the requirement holds.
        rows: The samples it was measured on: "validation", or "train" without a validation set.
        threshold: The threshold of the decisions, or one per label; NaN if the largest logit decides.

    Example:
        >>> result = RequirementResult("recall >= 0.9", 0.92, 0.9, met=True, rows="validation", threshold=0.4)
        >>> result.met
        True
    """

    requirement: str
    value: float
    bound: float
    met: bool
    rows: str
    threshold: Threshold


def validate(
    monitors: Sequence[Monitor], objective: Objective, loss: float, logits: Tensor, batch: Batch
) -> Validation:
    """Measure the monitored values and the objective's requirements.

    An epoch is feasible if it meets the requirements of the first monitor or, if it has none, those of the
    objective, each at its own threshold. ``observed`` is minus the violation of the objective's requirements, so that
    the penalty of an augmented Lagrangian grows when they are broken more than in the epoch before. For objectives
    without requirements it is the monitored value.

    Args:
        monitors: The monitors of the stage, the one that decides first.
        objective: The objective of the stage.
        loss: Its comparable loss on these samples.
        logits: The model's outputs for the validation samples.
        batch: Their labels, weights and groups.

    Returns:
        The results.
    """
    logits, y = match_shapes(logits, batch.y)
    monitor = monitors[0]
    measured, *others = (
        Measured(loss, math.nan) if each.is_loss else each.measure(logits, y, batch.weight) for each in monitors
    )
    requirements = objective.requirements()
    if not requirements:
        observed = -measured.value if monitor.minimize else measured.value
        return Validation(loss, measured, observed, others=tuple(others))
    excesses = [item.measure(logits, y, weight=batch.weight, group=batch.group)[1] for item in requirements]
    violation = sum(float(excess.sum()) for excess in excesses)
    if not monitor.requirements:
        measured = replace(measured, feasible=violation == 0, violation=violation)
    return Validation(loss, measured, -violation, meets=violation == 0, others=tuple(others))


def measure_requirements(
    stage: Stage, threshold: Threshold, logits: Tensor, batch: Batch, rows: str
) -> tuple[RequirementResult, ...]:
    """Measure the requirements of a stage's monitor and of its objective.

    A requirement that both have is measured only at the monitor's threshold.

    Args:
        stage: The last stage of the training.
        threshold: The monitor's threshold for the returned weights, or one per label; NaN if there is none.
        logits: The outputs of the model for some samples.
        batch: Their labels, weights and groups.
        rows: The name of these samples, "validation" or "train".

    Returns:
        One result per requirement.
    """
    monitor, objective = stage.watched, Objective(stage.objective)
    logits, y = match_shapes(logits, batch.y)
    results = []
    if monitor.requirements:
        counts = count_hard(
            monitor.as_logits(logits, y),
            y,
            task=monitor.task,
            threshold=PerLabel(threshold)
            if isinstance(threshold, tuple)
            else threshold
            if _is_number(threshold)
            else None,
            weight=batch.weight,
            ignore_index=monitor.ignore_index,
            matrix=any(requirement.metric.needs_matrix for requirement in monitor.requirements),
        )
        for requirement in monitor.requirements:
            value = requirement.metric(counts)
            results.append(_make_result(requirement, value, bool(requirement.holds(counts).all()), rows, threshold))
    monitored = {result.requirement for result in results}
    for constraint in objective.requirements():
        if str(constraint.requirement) not in monitored:
            value, violation = constraint.measure(logits, y, weight=batch.weight, group=batch.group)
            met = value.numel() > 0 and not bool((violation > 0).any())
            exclusive = logits.dim() > y.dim() or constraint.task == "multiclass"
            results.append(_make_result(constraint.requirement, value, met, rows, _get_decision(constraint, exclusive)))
    return tuple(results)


def has_requirements(stage: Stage) -> bool:
    """Check whether a stage's monitor or objective has requirements."""
    return bool(stage.watched.requirements or Objective(stage.objective).requirements())


def warn_about_unmet(results: Sequence[Sequence[RequirementResult]], stacklevel: int = 3) -> None:
    """Issue one warning about all requirements that do not hold; several members are named by their numbers."""
    lines, thresholds = [], []
    for member, requirements in enumerate(results):
        prefix = f"member {member}: " if len(results) > 1 else ""
        for result in requirements:
            if not result.met:
                name = result.requirement.split()[0]
                decision = f" at threshold {result.threshold:.4g}" if _is_number(result.threshold) else ""
                thresholds.append(result.threshold)
                lines.append(
                    f"{prefix}{result.requirement} does not hold: {name} is {result.value:.4g} on the "
                    f"{result.rows} rows{decision}"
                )
    if lines:
        advice = ["Train longer", "give a larger mu", "relax the requirement"]
        if any(map(_is_number, thresholds)):
            advice.append("choose a threshold that meets it with best_threshold(..., subject_to=...)")
        if any(not isinstance(each, tuple) and math.isnan(each) for each in thresholds):
            advice.append("tune the decisions of exclusive classes, which have no threshold, with curves.best_offsets")
        warnings.warn(
            f"{'; '.join(lines)}. {', '.join(advice[:-1])}, or {advice[-1]}",
            UnmetRequirementWarning,
            stacklevel=stacklevel + 1,
        )


def _is_number(threshold: Threshold) -> bool:
    """Check whether the decisions were made at one threshold, neither by the largest logit nor at one per label."""
    return not isinstance(threshold, tuple) and not math.isnan(threshold)


def _get_decision(constraint: RequirementConstraint, exclusive: bool) -> Threshold:
    """Return the threshold of a constraint as a number, or as one number per label."""
    if exclusive:
        return math.nan
    threshold = constraint.threshold
    if isinstance(threshold, Tensor):
        return tuple(threshold.tolist())
    return threshold if isinstance(threshold, float) else 0.5


def _make_result(
    requirement: Requirement, value: Tensor, met: bool, rows: str, threshold: Threshold
) -> RequirementResult:
    worst = math.nan if not value.numel() else float(value.flatten()[requirement.excess(value).argmax()])
    return RequirementResult(str(requirement), worst, requirement.bound, met, rows, threshold)
