"""Watching a requirement: false alarms over 10,000 looks, and rows until a drop of 0.05 in recall is found.

    python -m studies.watch                # ours and a binomial test at every look; then the page's table
    PEER/bin/python -m studies.watch mapie # MAPIE 1.6's RiskMonitoring, in an environment of its own

A stream is a sequence of positives, each a hit or a miss, and each is looked at. The requirement is recall >= 0.9. Of
streams that meet it exactly, at 0.9, at most 5 % may ever raise an alarm. In other streams the recall falls from 0.92
to 0.87. The delay is counted in positives. MAPIE gets the same bound as its threshold. It spends half of its level on a
reference, which a known bound does not need, so it gets twice the level. It takes seconds per stream, so it sees fewer
of the same streams.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent / "results" / "watch.json"
BOUND, LEVEL, LOOKS, STREAMS, OF_MAPIE = 0.9, 0.05, 10_000, 1000, 40
BEFORE, AFTER, FALLS = 0.92, 0.87, (0, 500, 2000, 5000)


def hits(fall: int | None) -> np.ndarray:
    """Hits and misses, ``(STREAMS, LOOKS)``; without a fall the recall is the bound itself."""
    rng = np.random.default_rng(0 if fall is None else fall + 1)
    recall = np.full(LOOKS, BOUND if fall is None else BEFORE)
    if fall is not None:
        recall[fall:] = AFTER
    return rng.random((STREAMS, LOOKS)) < recall


def by_betting(stream: np.ndarray) -> np.ndarray:
    from metricfit.stats.betting import bet_against

    return np.array([bet_against((each - BOUND) / (1 - BOUND)).wealth >= -np.log(LEVEL) for each in stream])


def by_binomial_tests(stream: np.ndarray) -> np.ndarray:
    """A test at the level at every look, which is not allowed; for its false alarms."""
    from scipy.stats import binom

    return binom.cdf(np.cumsum(stream, axis=1), np.arange(1, LOOKS + 1), BOUND) <= LEVEL


def by_mapie(stream: np.ndarray) -> np.ndarray:
    from mapie.exchangeability_testing import RiskMonitoring

    alarms = []
    for each in stream:
        monitor = RiskMonitoring("recall", test_level=2 * LEVEL, threshold=1 - BOUND, warn=False)
        monitor.update(np.ones(LOOKS, dtype=int), each.astype(int))
        alarms.append(monitor.online_risk_lower_bound_sequence_history > monitor.threshold)
    return np.array(alarms)


METHODS = {
    "betting": by_betting,
    "binomial test at every look": by_binomial_tests,
    "MAPIE": by_mapie,
}


def measure(method: str, streams: int) -> dict[str, object]:
    """The share of streams with a false alarm, and the quartiles of the delay after each fall."""
    test = METHODS[method]
    result: dict[str, object] = {"false_alarms": float(test(hits(None)[:streams]).any(1).mean())}
    for fall in FALLS:
        alarms = test(hits(fall)[:streams])
        early = alarms[:, :fall].any(1)
        after = alarms[~early][:, fall:]
        delay = np.where(after.any(1), after.argmax(1) + 1, np.inf)
        quartiles = np.quantile(delay, [0.25, 0.5, 0.75], method="higher") if len(delay) else [np.inf] * 3
        result[f"fall at {fall}"] = {
            "early": float(early.mean()),
            "delay": [int(each) if np.isfinite(each) else None for each in quartiles],
        }
    return result


def main(arguments: list[str]) -> None:
    mapie = "mapie" in arguments
    stored = json.loads(OUT.read_text())["methods"] if OUT.exists() else {}
    results: dict = {"looks": LOOKS, "streams": STREAMS, "of_mapie": OF_MAPIE, "methods": stored}
    for method in ["MAPIE"] if mapie else list(METHODS)[:2]:
        results["methods"][method] = measure(method, OF_MAPIE if mapie else STREAMS)
    OUT.write_text(json.dumps(results, indent=1) + "\n")
    if not mapie:
        from studies.common import DOCS, fill

        page = DOCS / "watch.md"
        page.write_text(fill(page.read_text(encoding="utf-8"), {"watch": page_table(results)}), encoding="utf-8")


def page_table(results: dict[str, dict]) -> str:
    from studies.common import table

    def delay(measured: dict) -> str:
        low, middle, high = ("never" if each is None else f"{each:,}" for each in measured["delay"])
        return f"{middle} ({low} to {high})"

    head = ["test", "streams with a false alarm", *(f"delay, fall at {fall:,}" for fall in FALLS)]
    rows = [
        [name, f"{100 * each['false_alarms']:.1f} %", *(delay(each[f"fall at {fall}"]) for fall in FALLS)]
        for name, each in results["methods"].items()
    ]
    return table(head, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
