"""What a class counts for in an average if its metric is 0/0: ``zero_division=``."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import exact_dtype
from metricfit.core.types import ZeroDivision
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric

SKIP = "skip"

#: A count that is this share of the others changes a metric where it is defined by no more than rounding.
PROBE, JUMP = 1e-9, 1e-3


def check_zero_division(metric: Metric, zero_division: object) -> ZeroDivision:
    """Return a valid ``zero_division``.

    Raises:
        InvalidValueError: It is not None, 0, 1 or "skip", or the metric has no values of classes.
    """
    if zero_division is None:
        return None
    if isinstance(zero_division, bool) or zero_division not in (0, 1, SKIP):
        raise InvalidValueError(f"zero_division is 0, 1 or 'skip', got {quote(zero_division)}")
    if isinstance(metric, GroupGap):
        raise InvalidValueError(f"{metric.name} leaves out groups without samples already; leave zero_division out")
    if metric.whole_matrix and zero_division != SKIP:
        raise InvalidValueError(
            f"zero_division={zero_division!r} is the value of a class where its metric is 0/0, and {metric.name} is a "
            "metric of all decisions; use zero_division='skip' to leave out images without labelled pixels"
        )
    return "skip" if zero_division == SKIP else 1 if zero_division == 1 else 0


@torch.no_grad()
def is_undefined(metric: Metric, counts: Counts) -> Tensor:
    """Return where a metric is 0/0: where its value jumps if one of the four counts grows by a trace.

    Without positives and predicted positives F1 is 0/0, and it would be 1 with a trace of a true positive and 0 with
    one of a false positive. This holds for any formula, those of users included.

    Args:
        metric: A metric with one value per class.
        counts: Counts ``(..., c)``.

    Returns:
        Booleans of the shape of the metric's value.

    Example:
        >>> from metricfit import metrics
        >>> is_undefined(metrics.f1, Counts(tp=[0, 0], fp=[0, 1], fn=[0, 0], tn=[5, 4]))
        tensor([ True, False])
    """
    cells = torch.stack([cell.detach().to(exact_dtype(cell.device)) for cell in counts])
    smallest = torch.where(cells > 0, cells, torch.inf).amin(0)
    trace = PROBE * torch.where(smallest.isinf(), 1.0, smallest)
    probes = [
        metric(Counts(*(cell + trace * (k == probed) for k, cell in enumerate(cells)), exclusive=counts.exclusive))
        for probed in range(4)
    ]
    values = torch.stack(probes)
    low, high = values.amin(0), values.amax(0)
    return high - low > JUMP * (1 + torch.minimum(low.abs(), high.abs()))
