"""``metricfit metrics`` and ``metricfit datasets``: what is known by name."""

from __future__ import annotations

from metricfit.cli.options import AsJson
from metricfit.cli.printing import show
from metricfit.metrics import registry


def metrics(as_json: AsJson = False) -> None:
    """The metrics by name, with their formulas over true and false positives and negatives."""
    found = {repr(entry): entry.summary for entry in map(registry.find, registry.names())}
    width = max(map(len, found))
    lines = [f"{name:{width}}  {formula}" for name, formula in found.items()]
    show({"metrics": [{"name": name, "formula": formula} for name, formula in found.items()]}, as_json, lines)


def datasets(as_json: AsJson = False) -> None:
    """The datasets that metricfit.data.load and fetch know: their size, what is positive, where to get them."""
    from metricfit.data.catalogue import CATALOGUE, names  # its package loads pandas and more, metrics needs none

    found = []
    for name in names():
        entry = CATALOGUE[name]
        found.append({"name": name, "rows": entry.rows, "positives": entry.positives, "positive": entry.positive})
        found[-1] |= {"source": entry.source, "fetch": entry.openml is not None}
    width = max(len(str(each["name"])) for each in found)
    shown = "{name:{width}}  {rows} rows, {positives} positive: {positive}; {source}"
    lines = [shown.format(width=width, **each) for each in found]
    show({"datasets": found}, as_json, lines)
