"""``metricfit datasets``."""

from __future__ import annotations

from metricfit.cli.commands import Given
from metricfit.cli.terminal import print_result
from metricfit.data.datasets import CATALOGUE, names


def run(given: Given) -> None:
    """List the datasets; the options are those of ``commands.datasets``."""
    listed, lines = [], []
    width = max(map(len, names()))
    for name in names():
        entry = CATALOGUE[name]
        facts = {field: getattr(entry, field) for field in ("rows", "positives", "positive", "source")}
        listed.append({"name": name, **facts, "fetch": entry.openml is not None})
        counts = f"{entry.rows} rows, {entry.positives} positive"
        lines.append(f"{name:{width}}  {counts}: {entry.positive}; {entry.source}")
    print_result({"datasets": listed}, given.as_json, lines)
