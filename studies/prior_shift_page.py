"""The tables of docs/evidence/decisions.md, from results/prior_shift.json. prior_shift.py measures, and calls this."""

from __future__ import annotations

import statistics
from typing import Any

from metricfit.stats import compare
from studies.common import DOCS, fill, table

PAGE = DOCS / "evidence" / "decisions.md"
WAYS = ("old", "estimated", "true")
NAMES = {"f1": "F1", "mcc": "MCC", "cost(fp=1, fn=10)": "cost(fp=1, fn=10), lower is better"}
BALANCES = {"0.2": "a fifth", "1.0": "the same", "5.0": "five times"}
LEVEL = 0.01


def means(results: dict[str, Any], metric: str, odds: str, way: str) -> list[float]:
    """The mean over splits for each table."""
    return [
        statistics.fmean(cell["odds"][odds]["values"][metric][way] for cell in cells)
        for cells in results["tables"].values()
    ]


def values_table(results: dict[str, Any]) -> str:
    """Each metric at each balance: means over tables, and on how many tables the estimate beats the old threshold."""
    rows = []
    for metric, name in NAMES.items():
        for odds, balance in BALANCES.items():
            by_way = {way: means(results, metric, odds, way) for way in WAYS}
            sign = -1 if metric.startswith("cost") else 1
            better = compare(
                [sign * each for each in by_way["estimated"]], [sign * each for each in by_way["old"]], samples=1
            )
            values = [f"{statistics.fmean(by_way[way]):.3f}" for way in WAYS]
            rows.append([name, balance, *values, f"{better.wins}-{better.losses}, p = {better.p_value:.2g}"])
    head = ["metric", "odds of positive rows", "threshold of training", "**estimated balance**", "true balance"]
    return table([*head, "estimated against training"], rows)


def estimates_table(results: dict[str, Any]) -> str:
    """For each table: true and estimated share, and how often the interval holds the truth."""
    rows = []
    for name, cells in results["tables"].items():
        row: list[object] = [name, f"{statistics.fmean(cell['share'] for cell in cells):.3f}"]
        for odds in BALANCES:
            parts = [cell["odds"][odds] for cell in cells]
            truth, estimate = (statistics.fmean(part[key] for part in parts) for key in ("truth", "estimate"))
            held = sum(part["interval"][0] <= part["truth"] <= part["interval"][1] for part in parts)
            row.append(f"{truth:.3f}: {estimate:.3f}, {held} of {len(parts)}")
        rows.append(row)
    return table(["table", "share in training", *(f"odds {balance}" for balance in BALANCES.values())], rows)


def alarms_table(results: dict[str, Any]) -> str:
    """How often drift was found on the tables."""
    cells = [cell for of_table in results["tables"].values() for cell in of_table]
    rows = [
        [f"odds {balance}, no drift", share([cell["odds"][odds]["p_value"] for cell in cells])]
        for odds, balance in BALANCES.items()
    ]
    rows += [
        [text, share([cell["drift"][kind] for cell in cells])]
        for kind, text in (("moved", "numbers moved by 0.5 sd"), ("noisy", "numbers with noise of 0.5 sd"))
    ]
    return table(["new rows", "drift found"], rows)


def simulations_table(results: dict[str, Any]) -> str:
    """False alarms, detections and coverage of the simulations."""
    rows = []
    for name, found in results["simulations"].items():
        covered = found["covered"]
        held = f"{sum(covered)} of {len(covered)} ({sum(covered) / len(covered):.1%})"
        rows.append([*name.split("_"), share(found["plain"]), share(found["moved"]), held])
    head = ["held-out rows", "new rows", "old share", "new share", "false alarms", "drift found, classes moved"]
    return table([*head, "interval holds the share"], rows)


def share(p_values: list[float]) -> str:
    alarms = sum(p_value <= LEVEL for p_value in p_values)
    return f"{alarms} of {len(p_values)} ({alarms / len(p_values):.1%})"


def parts(results: dict[str, Any]) -> dict[str, str]:
    return {
        "values": values_table(results),
        "estimates": estimates_table(results),
        "alarms": alarms_table(results),
        "simulations": simulations_table(results),
    }


def write_page(results: dict[str, Any]) -> None:
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts(results)), encoding="utf-8")
