"""``metricfit metrics``."""

from __future__ import annotations

from metricfit.cli.options import Metrics
from metricfit.cli.terminal import print_result
from metricfit.metrics import registry


def run(options: Metrics) -> None:
    """List the metrics; the options are those of ``options.Metrics``."""
    formulas = {repr(entry): entry.summary for entry in map(registry.find, registry.names())}
    width = max(map(len, formulas))
    lines = [f"{name:{width}}  {formula}" for name, formula in formulas.items()]
    listed = [{"name": name, "formula": formula} for name, formula in formulas.items()]
    print_result({"metrics": listed}, options.as_json, lines)
