"""The decision about several labels, one threshold per label, with its calibration, value and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from metricfit.core.threads import one_thread
from metricfit.core.types import LabelAverage
from metricfit.decide.calibration import Calibration, fit_calibration
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.decision import Evidence, LabelDecision, to_probability
from metricfit.decide.guarantees.guarantee_checks import checked_guarantee
from metricfit.decide.held_out import HeldOut
from metricfit.decide.labels.label_requirements import (
    LabelRequirements,
    choose_required_thresholds,
    judge_label_requirements,
)
from metricfit.decide.labels.label_search import choose_label_thresholds, label_value, row_values
from metricfit.decide.optimism import draw_multiplicities
from metricfit.decide.rules import Rule, check_rule
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.stats.percentiles import compute_interval

#: Total number of logits that the resamples choose thresholds on, and the fewest and the most resamples.
LOGITS_CHOSEN_ON, FEWEST, MOST = 1_000_000, 10, 50
#: How many positives the calibration of all labels counts for in the calibration of each.
POSITIVES_OF_ALL = 10


def fit_label_calibration(logits: Tensor, y: Tensor, weight: Tensor | None) -> Calibration:
    """Fit one temperature and bias per label on held-out rows, smoothed for rare labels.

    A label with N positives has N / (N + 10) of its own calibration and the rest of the one that is fitted to all
    labels together, so that a label with few positives does not follow the noise of these. On four tables
    (studies/label_thresholds.py) the mean macro F1 of the plug-in thresholds on test rows was 0.435 with it, 0.431
    without, 0.429 with thresholds tuned on the labels, and 0.355 at 0.5.

    Args:
        logits: Held-out logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.

    Returns:
        The calibration.
    """
    w = torch.ones(len(y), dtype=torch.float64) if weight is None else weight.double()
    positives = w @ y.double() / w[w > 0].mean()
    own = positives / (positives + POSITIVES_OF_ALL)
    each = [fit_calibration(logits[:, [label]], y[:, label], weight) for label in range(y.shape[1])]
    of_all = fit_calibration(logits.reshape(-1, 1), y.reshape(-1), w.repeat_interleave(y.shape[1]))
    share = own.numpy()
    slope = share / np.array([part.temperature for part in each]) + (1 - share) / of_all.temperature
    bias = share * np.concatenate([part.bias for part in each]) + (1 - share) * of_all.bias
    return Calibration(1 / slope, bias)


def probability_of_label(label: int, threshold: float) -> float:
    """Return the threshold of a label as a probability."""
    return to_probability(threshold)


@one_thread()
def choose_label_decision(
    held_out: HeldOut,
    metric: Metric,
    *,
    average: LabelAverage,
    seed: int,
    rule: Rule = "plugin",
    subject_to: Sequence[Requirement] = (),
    confidence: float | None = None,
    out_of_fold: bool = False,
    as_shown: Callable[[int, float], float] = probability_of_label,
) -> LabelDecision:
    """Choose one threshold per label for a metric on held-out rows.

    Thresholds that are tuned on the labels overfit rare labels (Lin and Lin, CIKM 2023). The plug-in rule smooths them:
    thresholds follow from probabilities, whose calibration rare labels share with all others.

    Args:
        held_out: Calibrated logits and labels ``(n, c)``.
        metric: The metric.
        average: "macro", "micro" or "weighted" over labels, or "samples" over rows.
        seed: The seed of the bootstrap.
        rule: "plugin" for the best expected value, "empirical" for the best value on the labels, or "auto".
        subject_to: Requirements, each on the label in its brackets or on every label (``class_requirements``).
        confidence: The probability with which all requirements must hold on new rows; None to meet them on these.
        out_of_fold: Whether the logits are out of fold, so that new rows are scored by other models than these.
        as_shown: Returns the threshold of a label on the scale that readers see; by default a probability.

    Returns:
        The decision. Its corrected value is estimated on the rows that resamples leave out; the resamples repeat the
        calibration (for the plug-in rule) and the choice of the thresholds. Under requirements the value is that of
        the held-out rows, and its interval that of the same decisions on resamples.

    Raises:
        InvalidValueError: There is no such rule or label, the average makes no sense for the metric, or a confidence
            is given for requirements or rows that have no exact bounds.
        InfeasibleError: There are too few rows for this confidence.
    """
    kind, logits, y = check_rule(rule), held_out.logits.double(), held_out.y
    requirements, guarantee = class_requirements(subject_to, y.shape[1], has_labels=True), None
    if confidence is not None:
        guarantee = checked_guarantee(
            requirements,
            y,
            confidence,
            weight=held_out.weight,
            groups=held_out.groups,
            seed=seed,
            out_of_fold=out_of_fold,
        )
    required = LabelRequirements(requirements, y.shape[1], guarantee)

    def choose(z: Tensor, weight: Tensor | None, times: Tensor | None = None) -> tuple[Tensor, dict[int, bool]]:
        if not requirements:
            return choose_label_thresholds(z, y, weight, metric, average, rule=kind), {}
        return choose_required_thresholds(z, y, weight, metric, average, required, rule=kind, times=times)

    thresholds, feasible = choose(logits, held_out.weight)
    results, not_reachable = judge_label_requirements(
        logits, y, held_out.weight, metric, required, thresholds, feasible, as_shown
    )
    decided = (logits >= thresholds).double()
    value = label_value(decided, y, held_out.weight, metric, average)
    w = torch.ones(len(y), dtype=torch.float64) if held_out.weight is None else held_out.weight.double()
    resamples = int(np.clip(LOGITS_CHOSEN_ON // logits.numel(), FEWEST, MOST))
    votes, times = torch.zeros_like(decided), torch.zeros(len(y), dtype=torch.float64)
    row_sums = torch.zeros(len(y), dtype=torch.float64)
    values, drawn = [], []
    stratum = torch.zeros(len(y), dtype=torch.long)  # rows have no class, and are drawn from all
    for multiplicity in draw_multiplicities(stratum, held_out.groups, resamples, seed):
        weight = w * multiplicity
        z = fit_label_calibration(logits, y, weight)(logits) if kind == "plugin" else logits
        called = (z >= choose(z, weight, multiplicity)[0]).double()
        drawn.append(_thresholds_of_counts(logits, called.sum(0)))
        if requirements:  # resamples that no threshold suits decide far from here
            called = decided
        left_out = (multiplicity == 0).double()
        votes += called * left_out[:, None]
        times += left_out
        if average == "samples":
            row_sums += left_out * row_values(called, y.double(), metric)
        values.append(label_value(called, y, weight, metric, average))
    judged = times > 0
    if average == "samples":
        corrected = float((w * row_sums / times.clamp(min=1))[judged].sum() / w[judged].sum())
    else:
        shares = torch.where(judged[:, None], votes / times.clamp(min=1)[:, None], decided)
        corrected = label_value(shares, y, held_out.weight, metric, average)
    low, high = compute_interval(np.array(values), None, 0.95)
    shift = corrected - float(np.mean(values))
    ends = np.clip([low + shift, high + shift], *metric.bounds)
    several = torch.stack(drawn)
    below, above = (
        several.quantile(level, dim=0, interpolation=side) for level, side in ((0.025, "lower"), (0.975, "higher"))
    )  # the ends may be logits of rows, but the threshold lies between two
    intervals = torch.stack([below.minimum(thresholds), above.maximum(thresholds)], dim=1)
    evidence = Evidence(
        value,
        value_interval=(low, high),
        corrected_value=corrected,
        corrected_interval=(float(ends[0]), float(ends[1])),
        requirements=results,
        not_reachable=not_reachable,
        confidence=confidence if not_reachable is None and guarantee is not None else None,
        out_of_fold=guarantee is not None and guarantee.out_of_fold,
    )
    return LabelDecision(thresholds, intervals, evidence=evidence)


def _thresholds_of_counts(logits: Tensor, positives: Tensor) -> Tensor:
    """Return thresholds that these numbers of rows reach, one per label, halfway between two logits."""
    falling = logits.sort(dim=0, descending=True).values
    padded = torch.cat([falling[:1] + 2, falling, falling[-1:] - 2])
    above = positives.long()[None]
    return ((padded.gather(0, above) + padded.gather(0, above + 1)) / 2).squeeze(0)
