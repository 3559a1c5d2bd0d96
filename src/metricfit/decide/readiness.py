"""Whether rows prove that a requirement holds, and about how many more rows a proof needs."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from metricfit.core.counts import Counts
from metricfit.decide.bounds import RATES, p_values
from metricfit.decide.certified import counts_of_class
from metricfit.metrics.requirements import Requirement

#: The confidence of a proof, and the most rows that are asked for, as a multiple of the rows that are there.
CONFIDENCE, MOST_TIMES = 0.95, 1000
#: What trials of a rate are called; by default the rows of both classes.
TRIALS = {"positives": "positives", "negatives": "negatives", "rows": "rows"}
CALLED = {"precision": "flagged rows", "npv": "rows that are not flagged"}


def describe_readiness(requirement: Requirement, counts: Counts, confidence: float = CONFIDENCE) -> str | None:
    """Say whether counts prove a requirement, and otherwise about how many more rows would if the rate stayed.

    Args:
        requirement: The requirement.
        counts: Counts of decisions that were not chosen on these rows, each row counting once.
        confidence: The confidence of the exact binomial test.

    Returns:
        A few words; None for metrics that are no rates.

    Example:
        >>> from metricfit.metrics import recall
        >>> for tp, fn in ((98, 2), (46, 4), (40, 10)):
        ...     print(describe_readiness(recall >= 0.9, Counts(tp=tp, fp=5, fn=fn, tn=50)))
        ready: it holds at 95 % confidence
        needs about 600 more positives
        not ready
    """
    metric = requirement.metric
    if requirement.is_equality or metric.user_defined or metric.parameters or metric.base_name not in RATES:
        return None
    cells = counts if counts.tp.shape[-1] == 1 else counts_of_class(requirement, counts)
    if not bool(np.all(requirement.forgives(requirement.excess(metric.of_class(None)(cells))))):
        return "not ready"
    rate = RATES[metric.base_name]
    one = Counts(*(np.asarray(cell, dtype=np.float64).reshape(-1, 1) for cell in cells))
    if p_values(requirement, one)[0] <= 1 - confidence:
        return f"ready: it holds at {100 * confidence:g} % confidence"
    k, m = (float(part(one).item()) for part in (rate.successes, rate.trials))
    name = CALLED.get(metric.base_name, TRIALS[rate.successful] if rate.successful == rate.other else "rows")
    if m == 0:
        return f"needs {name}: there are none"
    more = np.unique(np.geomspace(m, MOST_TIMES * m, 4000).round())
    at_least = requirement.sense == ">="
    right = np.floor(more * k / m) if at_least else np.ceil(more * k / m)
    p = binom.sf(right - 1, more, requirement.bound) if at_least else binom.cdf(right, more, requirement.bound)
    proven = np.flatnonzero(p <= 1 - confidence)
    if not len(proven):
        return f"needs far more than {MOST_TIMES * m:,.0f} {name}"
    return f"needs about {float(f'{more[proven[0]] - m:.2g}'):,.0f} more {name}"
