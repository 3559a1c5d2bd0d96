"""The arguments of ``compare``: removed ones are refused, metric and requirements become text."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.curves import Requirements, as_requirements

#: Parameters of version 0.1.0, and what replaces them.
REMOVED = ("network", "members", "epochs")
SUCCESSOR = (
    "every method is trained as MetricClassifier trains it, methods=[...] chooses what is compared, and time_budget= "
    "limits each training"
)


def refuse_removed(parameters: dict[str, Any]) -> None:
    """Raise an error for parameters that ``compare`` does not have, with the successors of those it once had."""
    for name in parameters:
        if name in REMOVED:
            raise InvalidTypeError(f"compare has no parameter {name!r} any more: {SUCCESSOR}")
        raise InvalidTypeError(f"compare() got an unexpected keyword argument {name!r}")


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


@contextmanager
def cell_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Give the folder that keeps the trainings, or a temporary one."""
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="metricfit-compare-") as temporary:
        yield Path(temporary)
