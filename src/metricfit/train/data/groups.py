"""Groups of samples, for requirements that must hold in each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metricfit.core.group_labels import number_groups
from metricfit.errors import InvalidValueError
from metricfit.train.data.sources import FromLoader, InMemory, Source, as_tensor
from metricfit.train.stage import Objective, Stage


def with_groups(data: Source, groups: Any, stages: Sequence[Stage], name: str, argument: str) -> Source:
    """Return the data with one group number per sample.

    Args:
        data: The samples.
        groups: One integer per sample, from 0 on, or one of the requirement's group names per sample, or None. A
            Dataset or a DataLoader may return dictionaries with the key "group" instead.
        stages: The stages; if there are groups, one of them must use groups.
        name: The name of the samples in messages: "train" or "validation".
        argument: The name of the groups in messages: "groups" or "validation_groups".

    Returns:
        The data.

    Raises:
        ValueError: Groups are missing, are not used, or do not go with the samples.
    """
    objectives = [Objective(stage.objective) for stage in stages]
    if groups is None:
        if isinstance(data, InMemory) and _count_groups(objectives):
            raise InvalidValueError(
                f"the objective has a requirement per group: pass {argument}=, one number per {name} sample"
            )
        return data
    if not any(objective.accepts.group for objective in objectives):
        raise InvalidValueError(
            f"{argument} were passed, but no objective uses them; use RequirementConstraint(..., groups=k) in an "
            "AugmentedLagrangian, or a loss whose forward takes group="
        )
    if isinstance(data, FromLoader):
        raise InvalidValueError(
            f"{argument} are for (X, y) and a Dataset; let the DataLoader return dictionaries with 'group'"
        )
    numbers = number_named_groups(groups, stages, argument)
    return data.with_group(_check_groups(numbers, len(data), _count_groups(objectives), argument))


def number_named_groups(groups: Any, stages: Sequence[Stage], argument: str) -> Any:
    """Return group numbers for labels: texts, or integers if these are the names of the groups.

    Anything else is returned unchanged.

    Args:
        groups: One label or number per sample.
        stages: The stages; their requirements may name the groups.
        argument: The name of the groups in messages.

    Raises:
        ValueError: No requirement names the groups, or a label is not among the names.
    """
    labels = groups.tolist() if hasattr(groups, "tolist") else groups
    if not isinstance(labels, (list, tuple)):
        return groups
    requirements = [item for stage in stages for item in Objective(stage.objective).requirements()]
    names = next((item.group_names for item in requirements if item.group_names is not None), None)
    named_by_integers = names is not None and all(isinstance(name, int) for name in names)
    if not named_by_integers and not any(isinstance(label, str) for label in labels):
        return groups
    if names is None:
        raise InvalidValueError(
            f"{argument} are texts: pass integers, or name the groups in the order of their numbers, as in "
            "RequirementConstraint(..., groups=['women', 'men']) or metrics.recall.gap(['women', 'men'])"
        )
    return number_groups(labels, len(labels), argument, names).numbers


def _count_groups(objectives: Sequence[Objective]) -> int | None:
    """Return the smallest number of groups of a requirement; None if no requirement is per group."""
    requirements = [requirement for objective in objectives for requirement in objective.requirements()]
    return min((requirement.groups for requirement in requirements if requirement.groups), default=None)


def _check_groups(groups: Any, samples: int, largest: int | None, argument: str) -> Tensor:
    numbers = as_tensor(groups, argument)
    if numbers.shape != (samples,) or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InvalidValueError(
            f"{argument} must be one integer per sample, of shape ({samples},); got {numbers.dtype} of shape "
            f"{tuple(numbers.shape)}"
        )
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or (largest is not None and high >= largest):
        allowed = "at least 0" if largest is None else f"from 0 to {largest - 1}"
        raise InvalidValueError(f"{argument} must be {allowed}, got numbers from {low} to {high}")
    return numbers.long()
