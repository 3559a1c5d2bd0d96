"""Write the table of every metric from the registry into docs/concepts/metrics.md."""

from __future__ import annotations

from page import fill

from metricfit.metrics import Metric, registry

PAGE, MARK = "concepts/metrics.md", "metrics"
#: Bounds that depend on the parameters, in words.
BOUNDS = {
    "cost": "0 to the larger cost",
    "cost_matrix": "the lowest to the highest cost, and 0",
    "weighted_kappa": "-1 to 1 (to power 2)",
}


def metrics_table() -> str:
    """One row a metric, in the order of the registry."""
    lines = ["| name, also called | formula | better | bounds | needs |", "|---|---|---|---|---|"]
    for name in registry.names():
        entry = registry.find(name)
        settings = vars(entry) if isinstance(entry, Metric) else entry.settings
        called = repr(entry)
        cells = [
            ", ".join(f"`{written}`" for written in (called, *registry.aliases(name))),
            entry.summary.rstrip(".").removesuffix("; lower is better"),
            "lower" if settings["minimize"] else "higher",
            BOUNDS.get(name) or "{:g} to {:g}".format(*entry.bounds),
            ", ".join(sorted(settings["needs"], reverse=True)) or "-",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    fill(PAGE, MARK, metrics_table())
