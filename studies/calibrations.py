"""Which calibration of the ensemble gives the best plug-in decisions: by metrics of new rows, not by log-loss.

    python -m studies.portfolio fit --data ../shared/data   # the logits that this study reads
    python -m studies.calibrations judge                    # judge
    python -m studies.calibrations                          # write the page's table from the results

The default's families are weighted on out-of-fold logits, and their mean is calibrated in six ways. The plug-in rule
then chooses the threshold from the calibrated probabilities. Nothing was chosen on these rows before.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from metricfit.core.counts import Counts
from metricfit.decide.calibration import fit_calibration, sigmoid
from metricfit.decide.rules import choose_threshold
from metricfit.metrics import get_metric
from metricfit.stats import compare
from metricfit.tabular.families.choice import DEFAULT
from studies.common import fill, table
from studies.portfolio import PAGE, judge_of

RESULTS = Path(__file__).resolve().parent / "results" / "calibrations.json"
METRICS = ("f1", "mcc", "cost(fp=1, fn=10)")
SMALLEST = 1e-6

Calibrated = Callable[[Any], Any]


def temperature(z: Any, y: Any) -> Calibrated:
    """The library's own: a temperature and a bias."""
    fitted = fit_calibration(z[:, None], y, None)
    return lambda new: fitted(new[:, None])[:, 0]


def _regression(features: Callable[[Any], Any]) -> Callable[[Any, Any], Calibrated]:
    def fit(z: Any, y: Any) -> Calibrated:
        fitted = LogisticRegression(C=100.0, max_iter=1000).fit(features(z), y)
        return lambda new: fitted.decision_function(features(new))

    return fit


def isotonic(z: Any, y: Any) -> Calibrated:
    fitted = IsotonicRegression(y_min=SMALLEST, y_max=1 - SMALLEST, out_of_bounds="clip").fit(z, y)
    return lambda new: _logit(fitted.predict(new))


def venn_abers(z: Any, y: Any) -> Calibrated:
    """The mean of isotonic regressions in which the new row has either label, on a grid of scores."""
    grid = np.unique(np.quantile(z, np.linspace(0, 1, 200)))
    low, high = (
        np.array([IsotonicRegression().fit(np.append(z, s), np.append(y, label)).predict([s])[0] for s in grid])
        for label in (0, 1)
    )
    probability = high / (1 - low + high)
    return lambda new: _logit(np.interp(new, grid, probability))


def _logit(p: Any) -> Any:
    clipped = np.clip(p, SMALLEST, 1 - SMALLEST)
    return np.log(clipped / (1 - clipped))


RULES: dict[str, Callable[[Any, Any], Calibrated]] = {
    "temperature and bias": temperature,
    "none": lambda z, y: lambda new: new,
    "beta": _regression(lambda z: np.stack([np.log(sigmoid(z) + SMALLEST), np.log(sigmoid(-z) + SMALLEST)], axis=1)),
    "quadratic": _regression(lambda z: np.stack([z, np.square(z) / 10], axis=1)),
    "isotonic": isotonic,
    "Venn-Abers": venn_abers,
}


def judge(path: Path) -> dict[str, dict[str, float]]:
    """Return the value of each rule on one draw, by metric."""
    arrays = dict(np.load(path))
    values: dict[str, dict[str, float]] = {}
    for name in METRICS:
        metric, judged = get_metric(name), judge_of(arrays, name)
        held_out, new = judged.mixture(DEFAULT, "both")
        y, z = arrays["y"], held_out[:, 0]
        for rule, fit in RULES.items():
            calibrated = fit(z, y)
            threshold = choose_threshold(calibrated(z), y, None, metric, rule="plugin").threshold
            decided = (calibrated(new[:, 0]) >= threshold).astype(np.int64)
            value = round(float(metric(Counts.from_labels(decided, arrays["y_new"])).item()), 6)
            values.setdefault(name, {})[rule] = value
    return values


def results_table(results: dict[str, Any]) -> str:
    """Each rule's mean over tables, and how it compares with the temperature and bias."""
    tables: dict[str, list[Any]] = {}
    for cell, values in results.items():
        tables.setdefault(cell.rpartition("-")[0], []).append(values)
    rows = []
    for rule in RULES:
        shown: list[Any] = [rule]
        for metric in METRICS:
            own, usual = (
                [statistics.fmean(each[metric][one] for each in cells) for cells in tables.values()]
                for one in (rule, "temperature and bias")
            )
            shown.append(f"{statistics.fmean(own):.3f}")
            if rule != "temperature and bias":
                sign = -1 if get_metric(metric).minimize else 1
                test = compare([sign * each for each in own], [sign * each for each in usual])
                shown[-1] += f" ({test.wins}-{test.losses}, p = {test.p_value:.2g})"
        rows.append(shown)
    return table(["calibration", *METRICS], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["judge"])
    parser.add_argument("--folder", type=Path, default=Path("runs/portfolio"))
    options = parser.parse_args(arguments)
    if options.what == "judge":
        results = {path.stem: judge(path) for path in sorted(options.folder.glob("*.npz"))}
        RESULTS.write_text(json.dumps(results, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"calibrations": results_table(results)}), encoding="utf-8")


if __name__ == "__main__":
    main()
