"""``metricfit datasets``."""

from __future__ import annotations

from metricfit.cli.options import AsJson
from metricfit.cli.terminal import print_result
from metricfit.data.catalogue import CATALOGUE, names


def datasets(as_json: AsJson = False) -> None:
    """List the datasets of metricfit.data.load and fetch: their size, positive class and source."""
    listed, lines = [], []
    width = max(map(len, names()))
    for name in names():
        entry = CATALOGUE[name]
        listed.append(
            {
                "name": name,
                "rows": entry.rows,
                "positives": entry.positives,
                "positive": entry.positive,
                "source": entry.source,
                "fetch": entry.openml is not None,
            }
        )
        counts = f"{entry.rows} rows, {entry.positives} positive"
        lines.append(f"{name:{width}}  {counts}: {entry.positive}; {entry.source}")
    print_result({"datasets": listed}, as_json, lines)
