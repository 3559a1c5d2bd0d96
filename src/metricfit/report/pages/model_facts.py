"""Facts about a model that several pages state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metricfit.report import formatting
from metricfit.report.facts import positive_class_fact
from metricfit.report.model_decisions import class_names
from metricfit.tabular import MetricClassifier


def refer_region(model: MetricClassifier) -> str:
    """Say which rows are referred to a person."""
    assert model.refer_region_ is not None
    low, high = model.refer_region_
    return f"rows with a probability of “{model.pos_label_}” from {low:.4g} to {high:.4g}"


def bracketed(ends: tuple[float, float] | None) -> str:
    """Write an interval in brackets; nothing if there is none."""
    return "" if ends is None else f" (95 % interval {formatting.between(ends)})"


def positive_class_of(model: MetricClassifier) -> dict[str, str]:
    """Say which class is the positive one; nothing for several classes."""
    return {} if model.pos_label_ is None else positive_class_fact(class_names(model))


def requirements_of(model: MetricClassifier) -> list[Any]:
    """Return the requirements of a model."""
    given: Any = model.subject_to
    if given is None:
        return []
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
