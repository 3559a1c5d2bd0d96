"""What a bar is, and the verdict on it from measured tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unit:
    """The unit of a fixed limit: its name, and how many seconds or bytes it is."""

    name: str
    amount: float


RATIO, MILLISECONDS, SECONDS = Unit("x", 1.0), Unit(" ms", 1e-3), Unit(" s", 1.0)


@dataclass(frozen=True)
class Bar:
    """A bound on one line of a table: relative to the line ``baseline``, or absolute in ``unit`` if there is none."""

    name: str
    work: str
    table: str
    ours: str
    limit: float
    baseline: str | None = None
    at_least: bool = False
    quantity: str = "seconds"
    unit: Unit = RATIO
    before: str = ""

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"at {'least' if self.at_least else 'most'} {self.limit:,g}{self.unit.name}"

    def value(self, lines: Mapping[str, Any]) -> float | None:
        """Return the measured value that the bound is on, or None where a line is missing."""
        ours = lines.get(self.ours, {}).get(self.quantity)
        if self.baseline is None:
            return None if ours is None else float(ours) / self.unit.amount
        other = lines.get(self.baseline, {}).get(self.quantity)
        if ours is None or other is None:
            return None
        if self.quantity == "bytes":  # a loss that allocates nothing but its result
            ours, other = max(ours, 1.0), max(other, 1.0)
        return float(other / ours if self.at_least else ours / other)

    def holds(self, value: float) -> bool:
        """Check whether a measured value is within the bound; what the table would round away does not count."""
        shown = float(f"{value:.3g}")
        return shown >= self.limit if self.at_least else shown <= self.limit


@dataclass(frozen=True)
class Verdict:
    """A bar with the measured value and the table that it comes from, which says why if there is none."""

    bar: Bar
    value: float | None
    table: Mapping[str, Any]

    @property
    def lines(self) -> dict[str, Any]:
        """The lines of the table by their names."""
        return {line["name"]: line for line in self.table.get("lines", ())}

    @property
    def holds(self) -> bool | None:
        """Whether the bar holds; None if it was not measured."""
        return None if self.value is None else self.bar.holds(self.value)

    @property
    def excess(self) -> float:
        """How many times the measured value is beyond the bound."""
        value = self.value or 0.0
        return self.bar.limit / value if self.bar.at_least else value / self.bar.limit


def judge(bars: Sequence[Bar], machines: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Return the verdict on every bar, from the first machine that measured it."""
    verdicts = []
    for bar in bars:
        found = [
            Verdict(bar, bar.value({line["name"]: line for line in table["lines"]}), table)
            for machine in machines
            for table in machine["tables"]
            if table["name"] == bar.table
        ]
        measured = [verdict for verdict in found if verdict.value is not None]
        verdicts.append((measured or found or [Verdict(bar, None, {"reason": "not measured"})])[0])
    return verdicts
