"""How often bootstrap intervals hold the truth, where the truth is known: the table of docs/concepts/statistics.md.

Normal scores of unit variance, those of the positives 1.5 higher; F1 in a population of the sample's proportions.

    python -m studies.coverage
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import norm

from metricfit.stats import Interval, bootstrap

SHIFT = 1.5
SIZES = (20, 380), (40, 160), (200, 800)
COLUMNS = {
    "fixed": "fixed threshold",
    "threshold": "best threshold",
    "best, percentile": "best F1: percentile",
    "best, corrected": "bias-corrected",
    "chosen, percentile": "F1 to come: percentile",
    "chosen, corrected": "bias-corrected",
    "optimism": "`optimism`",
    "truth": "F1 less F1 to come",
}

MEANS = "optimism", "truth"


def population_f1(threshold: np.ndarray | float, positives: int, negatives: int) -> np.ndarray:
    tp, fp = positives * norm.sf(threshold - SHIFT), negatives * norm.sf(threshold)
    return 2 * tp / (positives + tp + fp)


def holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and bool(interval.low <= truth <= interval.high)


def coverage(positives: int, negatives: int, runs: int, resamples: int) -> dict[str, float]:
    """How many of the runs held the truth, and the sums of the optimism."""
    target = np.repeat([1, 0], [positives, negatives])
    grid = np.linspace(-3, 5, 4001)
    values = population_f1(grid, positives, negatives)
    best, threshold = float(values.max()), float(grid[values.argmax()])
    held = dict.fromkeys(COLUMNS, 0.0)
    for seed in range(runs):
        scores = np.random.default_rng(seed).normal(size=len(target)) + SHIFT * target
        fixed = bootstrap(scores, target, "f1", threshold=threshold, resamples=resamples, seed=seed)
        held["fixed"] += holds(fixed.interval, best)
        for method in ("percentile", "bias_corrected"):
            found = bootstrap(scores, target, "f1", resamples=resamples, seed=seed, method=method)
            assert found.threshold is not None
            assert found.optimism is not None
            to_come = float(population_f1(found.threshold, positives, negatives))
            kind = method.removeprefix("bias_")
            held[f"best, {kind}"] += holds(found.interval, best)
            held[f"chosen, {kind}"] += holds(found.interval, to_come)
        held["threshold"] += holds(found.threshold_interval, threshold)
        held["optimism"] += found.optimism
        held["truth"] += found.value - to_come
    return held


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--resamples", type=int, default=1000)
    given = parser.parse_args(arguments)
    print("| positives, negatives | " + " | ".join(COLUMNS.values()) + " |")
    print("|---|" + "---|" * len(COLUMNS))
    for positives, negatives in SIZES:
        held = coverage(positives, negatives, given.runs, given.resamples)
        shares = " | ".join(f"{held[name] / given.runs:.{3 if name in MEANS else 2}f}" for name in COLUMNS)
        print(f"| {positives}, {negatives} | {shares} |")


if __name__ == "__main__":
    main()
