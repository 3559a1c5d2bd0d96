"""Write the table of every metric from the registry into docs/concepts/metrics.md."""

from __future__ import annotations

from page import fill

from metricfit.metrics import Metric
from metricfit.metrics import parsing as registry

PAGE, MARK = "concepts/metrics.md", "metrics"


def metrics_table() -> str:
    """One row a metric, in the order of the registry."""
    lines = ["| name, also called | formula | better | bounds | needs |", "|---|---|---|---|---|"]
    for name in registry.names():
        entry = registry.find(name)
        settings = vars(entry) if isinstance(entry, Metric) else entry.settings
        called = entry.name if isinstance(entry, Metric) else repr(entry).replace(": 'float | Tensor'", "")
        cells = [
            ", ".join(
                f"`{one}`" for one in (called, *(alias for alias, of in registry._ALIASES.items() if of == name))
            ),
            " ".join((entry.formula.__doc__ or "").split()).rstrip(".").removesuffix("; lower is better"),
            "lower" if settings["minimize"] else "higher",
            "0 to the larger cost" if callable(entry.bounds) else "{:g} to {:g}".format(*entry.bounds),
            ", ".join(sorted(settings["needs"], reverse=True)) or "-",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    fill(PAGE, MARK, metrics_table())
