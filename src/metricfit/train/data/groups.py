"""Groups of samples, for requirements that are to hold in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metricfit.errors import InvalidValueError
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.samples import InMemory, Source, as_tensor
from metricfit.train.stage import Objective, Stage


def with_groups(data: Source, groups: Any, stages: Sequence[Stage], name: str, argument: str) -> Source:
    """The data with a group number for each sample.

    Args:
        data: The samples.
        groups: One whole number per sample, from 0 on, or None. A Dataset or a DataLoader may give dictionaries with
            the key "group" instead.
        stages: The stages, of which one must use groups if there are any.
        name: What messages call the samples: "train" or "validation".
        argument: What messages call the groups: "groups" or "validation_groups".

    Raises:
        ValueError: Groups are needed and were not given, are not needed, or do not go with the samples.
    """
    objectives = [Objective(stage.objective) for stage in stages]
    if groups is None:
        if isinstance(data, InMemory) and _number_of_groups(objectives):
            raise InvalidValueError(
                f"the objective has a requirement per group: give {argument}=, one number per {name} sample"
            )
        return data
    if not any(objective.accepts.group for objective in objectives):
        raise InvalidValueError(
            f"{argument} were given, but no objective uses them; use RequirementConstraint(..., groups=k) in an "
            "AugmentedLagrangian, or a loss whose forward takes group="
        )
    if isinstance(data, FromLoader):
        raise InvalidValueError(
            f"{argument} are for (X, y) and a Dataset; let the DataLoader give dictionaries with 'group'"
        )
    return data.with_group(_checked(groups, len(data), _number_of_groups(objectives), argument))


def _number_of_groups(objectives: Sequence[Objective]) -> int | None:
    """The smallest number of groups that a requirement is for; None if no requirement is per group."""
    numbers = [each.groups for objective in objectives for each in objective.requirements() if each.groups]
    return min(numbers, default=None)


def _checked(groups: Any, samples: int, largest: int | None, argument: str) -> Tensor:
    numbers = as_tensor(groups, argument)
    if numbers.shape != (samples,) or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InvalidValueError(
            f"{argument} must be one whole number per sample, of shape ({samples},); got {numbers.dtype} of shape "
            f"{tuple(numbers.shape)}"
        )
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or (largest is not None and high >= largest):
        allowed = "at least 0" if largest is None else f"from 0 to {largest - 1}"
        raise InvalidValueError(f"{argument} must be {allowed}, got numbers from {low} to {high}")
    return numbers.long()
