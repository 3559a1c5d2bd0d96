"""Groups of samples, for requirements that must hold in each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metricfit.core.group_labels import number_groups
from metricfit.errors import InvalidValueError
from metricfit.train.data.sources import InMemory, Source, as_tensor
from metricfit.train.stage import Objective, Stage


def with_group_numbers(data: Source, stages: Sequence[Stage], name: str) -> Source:
    """Return data in memory with one group number per sample, if their dictionary has groups.

    Groups are integers from 0 on, or the names that a requirement gives to its groups.

    Args:
        data: The samples.
        stages: The stages; if there are groups, one of them must use groups.
        name: The name of the samples in messages: "train" or "validation".

    Raises:
        ValueError: Groups are missing, are not used, or do not go with the samples.
    """
    if not isinstance(data, InMemory):
        return data
    objectives = [Objective(stage.objective) for stage in stages]
    if data.group is None:
        if _count_groups(objectives):
            raise InvalidValueError(
                f'the objective has a requirement per group: pass {name} as {{"x": X, "y": y, "group": numbers}}'
            )
        return data
    if not any(objective.accepts.group for objective in objectives):
        raise InvalidValueError(
            f"the groups of {name} are not used by any objective; use RequirementConstraint(..., groups=k) in an "
            "AugmentedLagrangian, or a loss whose forward takes group="
        )
    what = f"{name}'s groups"
    numbers = _number_named_groups(data.group, objectives, what)
    return replace(data, group=_check_groups(numbers, len(data), _count_groups(objectives), what))


def _number_named_groups(groups: Any, objectives: Sequence[Objective], what: str) -> Any:
    """Return group numbers for texts, or for integers if these are the names of the groups."""
    labels = groups.tolist() if hasattr(groups, "tolist") else groups
    requirements = [item for objective in objectives for item in objective.requirements()]
    names = next((item.group_names for item in requirements if item.group_names is not None), None)
    named_by_integers = names is not None and all(isinstance(name, int) for name in names)
    if not named_by_integers and not any(isinstance(label, str) for label in labels):
        return groups
    if names is None:
        raise InvalidValueError(
            f"{what} are texts: pass integers, or name the groups in the order of their numbers, as in "
            "RequirementConstraint(..., groups=['women', 'men']) or metrics.recall.gap(['women', 'men'])"
        )
    return number_groups(labels, len(labels), what, names).numbers


def _count_groups(objectives: Sequence[Objective]) -> int | None:
    """Return the smallest number of groups of a requirement; None if no requirement is per group."""
    requirements = [requirement for objective in objectives for requirement in objective.requirements()]
    return min((requirement.groups for requirement in requirements if requirement.groups), default=None)


def _check_groups(groups: Any, samples: int, largest: int | None, what: str) -> Tensor:
    numbers = as_tensor(groups, what)
    if numbers.shape != (samples,) or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InvalidValueError(
            f"{what} must be one integer per sample, of shape ({samples},); got {numbers.dtype} of shape "
            f"{tuple(numbers.shape)}"
        )
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or (largest is not None and high >= largest):
        allowed = "at least 0" if largest is None else f"from 0 to {largest - 1}"
        raise InvalidValueError(f"{what} must be {allowed}, got numbers from {low} to {high}")
    return numbers.long()
