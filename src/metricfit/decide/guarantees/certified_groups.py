"""The thresholds of a group whose requirements hold on new rows, jointly with those of the other groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from metricfit.decide.guarantees.bounds import check_confidence, format_percent, joined
from metricfit.decide.guarantees.certified import Guarantee, certify_thresholds, check_guarantee
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement


def certify_group(
    scores: Tensor,
    target: Tensor,
    metric: Metric,
    requirements: Sequence[Requirement],
    name: Any,
    *,
    confidence: float,
    groups: int,
    seed: int = 0,
) -> Tensor:
    """Find the thresholds of one group at which all requirements hold on new rows.

    Rows of different groups are independent, so that the confidences of the groups multiply: each of k groups is
    certified at the k-th root of the confidence.

    Args:
        scores: The scores of the group's rows.
        target: Their labels, 0 and 1.
        metric: The metric.
        requirements: The requirements.
        name: The name of the group, for messages.
        confidence: The probability with which the requirements must hold in all groups together.
        groups: Number of groups.
        seed: The seed of the rows that choose the order of tests.

    Returns:
        One boolean per threshold: infinity and the distinct scores, falling.

    Raises:
        InfeasibleError: The group has too few rows, or no threshold is certified.

    Example:
        >>> import torch
        >>> from metricfit.metrics import f1, parse_requirement
        >>> z, y = torch.linspace(-1, 1, 100), (torch.arange(100) >= 50).long()
        >>> floor = [parse_requirement("recall >= 0.9")]
        >>> [int(certify_group(z, y, f1, floor, "a", confidence=0.95, groups=k).sum()) for k in (1, 2)]
        [52, 51]
    """
    guarantee = Guarantee(check_confidence(confidence) ** (1 / groups), seed)
    share = f"{format_percent(confidence)} in all {groups} groups is {format_percent(guarantee.confidence)} in each"
    try:
        check_guarantee(requirements, target.cpu(), guarantee.confidence)
    except InfeasibleError as error:
        raise InfeasibleError(f"group {name!r}: {error} ({share})") from None
    certified = certify_thresholds(scores.cpu().double(), target.cpu().long(), metric, requirements, guarantee)
    if not certified.feasible:
        raise InfeasibleError(
            f"no threshold of group {name!r} can be promised to give {joined(requirements)} ({share}); lower the "
            "bounds or the confidence"
        )
    return certified.allowed.to(scores.device)
