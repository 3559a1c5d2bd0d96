"""Pickling of metrics: by their names, and user-defined ones by the name that their module holds them under."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from metricfit.metrics import registry

if TYPE_CHECKING:
    from metricfit.metrics.metric import Metric, MetricFactory
    from metricfit.metrics.metric_parameters import Parameter


def reduce_by_name(metric: Metric) -> str | tuple[object, ...] | None:
    """Return what ``__reduce__`` returns for a metric that is found again by its name; None if it is not."""
    from metricfit.metrics.metric import get_metric

    if metric.class_index is not None and metric.class_name is not None:
        return of_class, (metric.of_class(None), metric.class_index, metric.class_name)
    if metric.found_by_name:
        return get_metric, (metric.name,)
    if metric.of_one_class:
        all_classes, index = metric.of_class(None), metric.class_index
        return operator.getitem, (find_definition(all_classes) or all_classes, metric.class_name or index)
    if metric.parameters:
        return call_factory, (registry.find(metric.base_name), metric.parameters)
    return name_in_module(metric)


def name_in_module(entry: Metric | MetricFactory[...]) -> str | None:
    """Return the name of the metric in its formula's module, or None if it is not there."""
    if find_definition(entry) is not entry:
        return None
    entry.__module__ = entry.formula.__module__
    return str(entry.formula.__qualname__)


def find_definition(entry: Metric | MetricFactory[...]) -> Metric | MetricFactory[...] | None:
    """Return what the formula's module holds under the formula's name, if it is this metric; otherwise None."""
    definition = getattr(sys.modules.get(entry.formula.__module__), getattr(entry.formula, "__qualname__", ""), None)
    return definition if definition == entry else None


def call_factory(factory: MetricFactory[...], parameters: Mapping[str, Parameter]) -> Metric:
    """Recreate a metric from its factory and its parameters."""
    return factory(**parameters)


def of_class(metric: Metric, index: int, name: str | int) -> Metric:
    """Recreate the metric of a class that has a number and a name."""
    return metric.of_class(index, name)
