"""How metrics made of users' functions are pickled: by the name under which their module holds them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metricfit.metrics.metric import Metric, MetricFactory, Parameter


def name_in_module(made: Metric | MetricFactory) -> str | None:
    """Return the name by which pickle finds the metric in its function's module, or None if it is not there."""
    if defined_where(made) is not made:
        return None
    made.__module__ = made.formula.__module__
    return str(made.formula.__qualname__)


def defined_where(made: Metric | MetricFactory) -> Metric | MetricFactory | None:
    """Return what stands where the formula was defined, if it is equal to the metric that was made of it."""
    found = getattr(sys.modules.get(made.formula.__module__), getattr(made.formula, "__qualname__", ""), None)
    return found if found == made else None


def call_factory(factory: MetricFactory, parameters: Mapping[str, Parameter]) -> Metric:
    """Make a metric again from its factory and its parameters."""
    return factory(**parameters)
