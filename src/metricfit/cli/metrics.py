"""``metricfit metrics``."""

from __future__ import annotations

from metricfit.cli.options import AsJson
from metricfit.cli.terminal import print_result
from metricfit.metrics import registry


def metrics(as_json: AsJson = False) -> None:
    """List the metrics with their formulas over true and false positives and negatives."""
    formulas = {repr(entry): entry.summary for entry in map(registry.find, registry.names())}
    width = max(map(len, formulas))
    lines = [f"{name:{width}}  {formula}" for name, formula in formulas.items()]
    listed = [{"name": name, "formula": formula} for name, formula in formulas.items()]
    print_result({"metrics": listed}, as_json, lines)
