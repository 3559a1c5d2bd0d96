"""``metricfit metrics``."""

from __future__ import annotations

from typing import TypedDict

from metricfit.cli.options import Metrics
from metricfit.cli.terminal import print_result
from metricfit.metrics import registry


class Listed(TypedDict):
    """One metric.

    Attributes:
        name: Name, with its parameters.
        formula: Its formula over counts.
    """

    name: str
    formula: str


class Result(TypedDict):
    """What ``metrics --json`` prints.

    Attributes:
        metrics: The metrics.
    """

    metrics: list[Listed]


def run(options: Metrics) -> None:
    """List the metrics; ``options.Metrics`` lists the options."""
    formulas = {repr(entry): entry.summary for entry in map(registry.find, registry.names())}
    width = max(map(len, formulas))
    lines = [f"{name:{width}}  {formula}" for name, formula in formulas.items()]
    listed = [Listed(name=name, formula=formula) for name, formula in formulas.items()]
    print_result(Result(metrics=listed), options.as_json, lines)
