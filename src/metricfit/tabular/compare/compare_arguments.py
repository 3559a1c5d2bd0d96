"""The arguments of ``compare``: metric and requirements become text."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from metricfit.decide.guarantees.guarantee_checks import checked_guarantee
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.tabular.families.family import Integers


def name_of_metric(metric: str | Metric) -> str:
    """Return the metric as text, because the cells of a comparison keep it in their files."""
    if isinstance(metric, str):
        get_metric(metric)
        return metric
    try:
        known = get_metric(metric.name) == metric
    except ValueError:
        known = False
    if not known:
        raise InvalidValueError(
            f"compare takes metrics that metricfit knows by name, such as 'fbeta(beta=2)'; got {quote(metric)}"
        )
    return metric.name


def requirement_texts(subject_to: Requirements | None) -> list[str]:
    """Return the requirements as text, after checking them."""
    as_requirements(subject_to)
    if subject_to is None:
        return []
    several = [subject_to] if isinstance(subject_to, (str, Requirement)) else subject_to
    return [str(requirement) for requirement in several]


def numbered_requirements(requirements: Sequence[Requirement], classes: int) -> tuple[str, ...]:
    """Return requirements as text for rows whose labels are class numbers.

    Args:
        requirements: The requirements, on classes by their numbers (``class_requirements``).
        classes: The number of classes.

    Example:
        >>> from metricfit.metrics import recall
        >>> numbered_requirements([recall.of_class(1, "gold") >= 0.9], 3)
        ('recall[1] >= 0.9',)
    """
    indices = [requirement.metric.class_index if classes > 2 else None for requirement in requirements]
    pairs = zip(requirements, indices, strict=True)
    return tuple(str(replace(each, metric=each.metric.of_class(index))) for each, index in pairs)


def check_confidence_of_folds(
    requirements: Sequence[Requirement],
    confidence: float | None,
    labels: Integers,
    groups: NDArray[Any] | None,
    splits: Sequence[tuple[Integers, Integers]],
) -> None:
    """Refuse a confidence that the training rows of some fold cannot give, before anything is trained.

    Raises:
        InfeasibleError: There are too few rows; the message says how many are needed.
        InvalidValueError: There are no requirements, or requirements or rows without exact bounds.
    """
    if confidence is None:
        return
    for training_rows, _ in splits:
        y = torch.from_numpy(labels[training_rows])
        checked_guarantee(requirements, y, confidence, groups=None if groups is None else groups[training_rows])


@contextmanager
def cell_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Give the folder that keeps the trainings, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="metricfit-compare-") as temporary:
        yield Path(temporary)
