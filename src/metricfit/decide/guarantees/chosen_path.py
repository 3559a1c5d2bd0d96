"""The path of thresholds along which requirements that are not monotone are tested, chosen on some of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.guarantees.bounds import Floats, rate_of, rows_needed
from metricfit.metrics.curves import best_of_allowed
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.metrics.sweep import Sweep, sum_by_threshold


def choose_path(
    logits: Tensor,
    y: Tensor,
    counted: Tensor,
    learning: Tensor,
    metric: Metric,
    requirements: Sequence[Requirement],
    level: float,
) -> NDArray[np.int64]:
    """Choose a start and a direction on the learning rows.

    The start is the threshold at which the requirements are expected to be the most significant. From there the path
    moves to the side on which the metric is expected to be best among thresholds that are expected to be certified.

    Args:
        logits: Logits of all rows.
        y: Labels 0 and 1; those of the learning rows are used.
        counted: How often each row counts.
        learning: Which rows the path is chosen on.
        metric: The metric.
        requirements: The requirements.
        level: The level at which they will be tested.

    Returns:
        The numbers of the thresholds in the order of the path; none if no threshold can be certified.
    """
    calibration = fit_calibration(logits[learning][:, None], y[learning], counted[learning])
    probability = torch.sigmoid(calibration(logits[:, None])).squeeze(1)
    thresholds, counts = sum_by_threshold(logits, probability, counted * learning)
    ratio = float(counted[~learning].sum() / counted[learning].sum())
    expected = counts.map(lambda cell: cell * ratio)
    certainty = np.min([_expected_certainty(requirement, expected, level) for requirement in requirements], axis=0)
    own = torch.isin(thresholds, logits[learning & (counted > 0)].double()).numpy()
    certainty[~own] = -np.inf  # a path between two learning scores must not depend on the other rows
    start = int(certainty.argmax())
    if certainty[start] == -np.inf:
        return np.empty(0, dtype=np.int64)
    hopeful = torch.from_numpy(certainty >= min(norm.isf(level), certainty[start]))
    best = best_of_allowed(Sweep(thresholds, expected), metric, hopeful).threshold
    if best <= float(thresholds[start]):
        return np.arange(start, len(own))
    lower = np.flatnonzero(own[start + 1 :])  # all thresholds above the next lower learning score
    end = start + int(lower[0]) if len(lower) else len(own) - 1
    return np.arange(end, -1, -1)


def _expected_certainty(requirement: Requirement, expected: Counts, level: float) -> Floats:
    """Return by how many standard errors a requirement is expected to be met; -inf where there are too few trials."""
    rate, needed, bound = rate_of(requirement), rows_needed(requirement, level), requirement.bound
    k, m = (part(expected).squeeze(-1).numpy() for part in (rate.successes, rate.trials))
    if needed == 0:
        return np.full(len(k), np.inf)
    margin = (k / np.maximum(m, 1e-9) - bound) * (1 if requirement.sense == ">=" else -1)
    return np.where(m >= needed, margin * np.sqrt(m / max(bound * (1 - bound), 1e-9)), -np.inf)
