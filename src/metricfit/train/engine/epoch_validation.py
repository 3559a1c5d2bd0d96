"""What validation says about a model: its loss, the monitored value, and whether requirements hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.metrics.requirements import Requirement
from metricfit.train.data.batches import Batch
from metricfit.train.monitor import Measured, Monitor
from metricfit.train.stage import Objective, Stage, matched


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
        measured: The monitored value, and how far requirements are broken.
        observed: What the objective's ``observe`` is called with; higher is better.
        meets: Whether the objective's requirements hold; None if it has none.
    """

    loss: float
    measured: Measured
    observed: float
    meets: bool | None = None

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
        requirement: Its text, such as "recall >= 0.9".
        value: The metric's value; of several classes or groups the worst. NaN if there was nothing to measure it on.
        bound: The bound.
        met: Whether the requirement holds.
        rows: What it was measured on: "validation", or "train" where there is no validation set.
        threshold: The threshold of the decisions; NaN where the largest logit decides.

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
    threshold: float


def validate(monitor: Monitor, objective: Objective, loss: float, logits: Tensor, batch: Batch) -> Validation:
    """Measure what is monitored, and the objective's requirements.

    An epoch is feasible if it meets the requirements of the monitor or, if the monitor has none, those of the
    objective, each at its own threshold. ``observed`` is minus the violation of the objective's requirements, so that
    the penalty of an augmented Lagrangian grows when they are broken more than in the epoch before. For objectives
    without requirements it is the monitored value.

    Args:
        monitor: What is monitored.
        objective: The stage's objective.
        loss: Its comparable loss on these samples.
        logits: The model's outputs for the validation samples.
        batch: Their labels, weights and groups.
    """
    logits, y = matched(logits, batch.y)
    measured = Measured(loss, math.nan) if monitor.is_loss else monitor.measure(logits, y, batch.weight)
    requirements = objective.requirements()
    if not requirements:
        return Validation(loss, measured, -measured.value if monitor.minimize else measured.value)
    measure = [each.measure(logits, y, weight=batch.weight, group=batch.group) for each in requirements]
    violation = sum(float(excess.sum()) for _, excess in measure)
    if not monitor.requirements:
        measured = replace(measured, feasible=violation == 0, violation=violation)
    return Validation(loss, measured, -violation, meets=violation == 0)


def measure_requirements(
    stage: Stage, threshold: float, logits: Tensor, batch: Batch, rows: str
) -> tuple[RequirementResult, ...]:
    """Whether the requirements of a stage's monitor and of its objective hold.

    A requirement of the objective that the monitor has as well is measured at the monitor's threshold alone.

    Args:
        stage: The last stage of the training.
        threshold: The monitor's threshold for the weights returned; NaN if there is none.
        logits: The outputs of the model for some samples.
        batch: Their labels, weights and groups.
        rows: What to call these samples, "validation" or "train".
    """
    monitor, objective = stage.watched, Objective(stage.objective)
    logits, y = matched(logits, batch.y)
    results = []
    if monitor.requirements:
        at = None if math.isnan(threshold) else threshold
        counts = Counts.hard(
            logits, y, task=monitor.task, threshold=at, weight=batch.weight, ignore_index=monitor.ignore_index
        )
        for requirement in monitor.requirements:
            value = requirement.metric(counts)
            results.append(_result(requirement, value, bool(requirement.holds(counts).all()), rows, threshold))
    watched = {result.requirement for result in results}
    for constraint in objective.requirements():
        if str(constraint.requirement) not in watched:
            value, violation = constraint.measure(logits, y, weight=batch.weight, group=batch.group)
            met = value.numel() > 0 and not bool((violation > 0).any())
            exclusive = logits.dim() > y.dim() or constraint.task == "multiclass"
            at = math.nan if exclusive else 0.5 if constraint.threshold is None else constraint.threshold
            results.append(_result(constraint.requirement, value, met, rows, at))
    return tuple(results)


def has_requirements(stage: Stage) -> bool:
    """Whether a stage's monitor or objective has requirements."""
    return bool(stage.watched.requirements or Objective(stage.objective).requirements())


def warn_of_unmet(results: Sequence[Sequence[RequirementResult]], stacklevel: int = 3) -> None:
    """Raise one warning for all requirements that do not hold; of several members, with their numbers."""
    lines = []
    for member, requirements in enumerate(results):
        of_member = f"member {member}: " if len(results) > 1 else ""
        for each in requirements:
            if not each.met:
                name = each.requirement.split()[0]
                at = "" if math.isnan(each.threshold) else f" at threshold {each.threshold:.4g}"
                lines.append(
                    f"{of_member}{each.requirement} does not hold: {name} is {each.value:.4g} on the "
                    f"{each.rows} rows{at}"
                )
    if lines:
        thresholds = [each.threshold for requirements in results for each in requirements if not each.met]
        advice = ["Train longer", "give a larger mu", "relax the requirement"]
        if not all(map(math.isnan, thresholds)):
            advice.append("choose a threshold that meets it with best_threshold(..., subject_to=...)")
        if any(map(math.isnan, thresholds)):
            advice.append("tune the decisions of exclusive classes, which have no threshold, with curves.best_offsets")
        warnings.warn(
            f"{'; '.join(lines)}. {', '.join(advice[:-1])}, or {advice[-1]}",
            UnmetRequirementWarning,
            stacklevel=stacklevel + 1,
        )


def _result(requirement: Requirement, value: Tensor, met: bool, rows: str, threshold: float) -> RequirementResult:
    worst = math.nan if not value.numel() else float(value.min() if requirement.sense == ">=" else value.max())
    return RequirementResult(str(requirement), worst, requirement.bound, met, rows, threshold)
