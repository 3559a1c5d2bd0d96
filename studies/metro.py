"""METRO (Mao, Mohri and Zhong, ICML 2025), a rival of metric losses, on fourteen tables and on the wrong linear model.

    python -m studies.metro --data ../shared/data --jobs 2   # train linear models; cells are in runs/metro.jsonl
    python -m studies.metro                                  # write the page's table from the stored results

A metric that is a ratio of two linear functions of the counts has the value t for a decision exactly where a weighted
sum of errors is zero, and the best decision minimises this sum for the best value t. METRO therefore trains with
cost-sensitive losses, one for each t of a grid, and keeps the best t on validation rows. The weights of the two classes
are the derivatives of the metric where its value is t; for F1 they are 2 - t and t. The surrogate is the logistic loss,
whose minimiser decides at logit 0, so nothing else is tuned. Learning rates, steps, looks and splits are the ones of
``little_capacity``; "weights chosen" has as many weights as METRO, geometrically spaced from 1 to the ratio of the
classes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from metricfit import Counts, MetricLoss, get_metric
from metricfit.core.numerics import duals
from metricfit.losses import WeightedBCELoss
from metricfit.metrics import Metric
from studies import little_capacity, wrong_model
from studies.common import DOCS, fill, plain, table
from studies.little_capacity import BLOCKS, TABLES
from studies.pays_tables import against
from studies.stacked_networks import append, finished, make_splits

CELLS = Path("runs") / "metro.jsonl"
RESULTS, PAGE = DOCS.parent / "studies" / "results" / "metro.json", DOCS / "evidence" / "losses.md"
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
METRO, WEIGHTS = "METRO", "BCE, weights chosen"
BASELINE = "BCE"
DECISIONS = ("0.5", "tuned")
#: A search for the counts of a level stops here.
CLOSE = 1e-12


def class_weights(metric: Metric, level: float, prior: float) -> tuple[float, float]:
    """Return the weights of errors on positives and on negatives where a metric of ratios has this value.

    The derivatives of such a metric have one direction on all counts with this value, so those between the worst and
    the best decision are enough.
    """
    low, high = 0.0, 1.0
    while high - low > CLOSE:
        middle = (low + high) / 2
        value = _at(metric, middle, prior).value
        low, high = (middle, high) if (value < level) != metric.minimize else (low, middle)
    tp, fp, fn, tn = _at(metric, high, prior).slopes
    positive, negative = (tp - fn, tn - fp) if not metric.minimize else (fn - tp, fp - tn)
    return positive / (positive + negative), negative / (positive + negative)


def _at(metric: Metric, share: float, prior: float) -> Any:
    """Return the metric with its derivatives: this share of the way from the worst to the best decision."""
    tp, fp = share * prior, (1 - share) * (1 - prior)
    return metric(Counts(*duals([tp, fp, prior - tp, 1 - prior - fp])))


def metro_loss(level: float, prior: float) -> WeightedBCELoss:
    """Return the logistic loss with METRO's weights for F1, up to a factor, which AdamW ignores."""
    positive, negative = class_weights(get_metric("f1"), level, prior)
    return WeightedBCELoss(positive / negative, task="multilabel")


def chosen_weight(place: int, prior: float) -> WeightedBCELoss:
    """Return cross-entropy with one of as many weights as METRO has levels."""
    share = place / (len(LEVELS) - 1)
    return WeightedBCELoss(((1 - prior) / prior) ** share, task="multilabel")


#: Candidates of each method: a function from the share of positives to a loss.
CANDIDATES = {
    BASELINE: [lambda prior: chosen_weight(0, prior)],
    "F1": [lambda prior: MetricLoss("f1", task="multilabel")],
    WEIGHTS: [partial(chosen_weight, place) for place in range(len(LEVELS))],
    METRO: [partial(metro_loss, level) for level in LEVELS],
}


def run(data: Path, out: Path, name: str, block: int, method: str, place: int) -> None:
    """Train one candidate on five splits of one table, and append the cell."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the metric loss alone may stall at the start, which is measured here
    splits, started = make_splits(data, name, BLOCKS[block]), time.perf_counter()
    cell = little_capacity.measure(splits, BLOCKS[block], 0, [CANDIDATES[method][place](splits.prior)])
    append(out, {"table": name, "block": block, "method": method, "place": place, **cell})
    print(f"{name} {block} {method} {place}: {time.perf_counter() - started:.1f} s", flush=True)


def collect(lines: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return each method's mean test F1 per table: for each split, the candidate with the best validation F1."""
    cells: dict[tuple[str, str, str], list[tuple[list[float], list[float]]]] = {}
    for line in sorted(lines, key=lambda line: (line["place"], line["block"])):
        for decision in DECISIONS:
            places = cells.setdefault((decision, line["method"], line["table"]), [])
            if line["block"] == 0:
                places.append(([], []))
            for kept, part in zip(places[-1], ("validation", "test"), strict=True):
                kept.extend(line[decision][part])
    values: dict[str, dict[str, list[float]]] = {
        decision: {method: [] for method in CANDIDATES} for decision in DECISIONS
    }
    for decision, method, name in ((d, m, t) for d in DECISIONS for m in CANDIDATES for t in TABLES):
        validation, test = np.array(cells[decision, method, name]).swapaxes(0, 1)
        best = np.take_along_axis(test, validation.argmax(0, keepdims=True), 0)
        values[decision][method].append(round(float(best.mean()), 5))
    return values


def measure_wrong_model() -> dict[str, dict[str, float]]:
    """Return the F1 of each of METRO's levels on the wrong linear model."""
    rows, new = wrong_model.draws(0), wrong_model.draws(100)
    return {
        f"{METRO}, t = {level}": wrong_model.measure([metro_loss(level, wrong_model.PRIOR)], rows, new)["0.5"]
        for level in LEVELS
    }


def parts_of_page(stored: dict[str, Any]) -> dict[str, str]:
    """Return the table of the page."""
    compared = {decision: against(stored["tables"][decision], BASELINE) for decision in DECISIONS}
    rows = []
    for method in CANDIDATES:
        row = [method]
        for decision in DECISIONS:
            text = f" ({compared[decision][method]})" if method != BASELINE else ""
            row.append(f"{statistics.fmean(stored['tables'][decision][method]):.3f}{text}")
        rows.append(row)
    lines = [[name, *(f"{value:.3f}" for value in values.values())] for name, values in stored["wrong model"].items()]
    head = ["wrong linear model, F1 at 0.5", "one start", f"best of {wrong_model.STARTS} starts"]
    return {"metro": table(["F1, linear models", "at 0.5", "threshold tuned"], rows) + "\n\n" + table(head, lines)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="contains tabular/ and imblearn_bench/; without it, only the page")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=CELLS)
    options = parser.parse_args(arguments)
    if options.data:
        options.cells.parent.mkdir(parents=True, exist_ok=True)
        done = finished(options.cells, "table", "block", "method", "place")
        Parallel(options.jobs, batch_size=1)(
            delayed(run)(options.data, options.cells, *key)
            for name in TABLES
            for block in range(len(BLOCKS))
            for method in CANDIDATES
            for place in range(len(CANDIDATES[method]))
            if (key := (name, block, method, place)) not in done
        )
        lines = [json.loads(line) for line in options.cells.read_text(encoding="utf-8").splitlines()]
        stored = {"tables": collect(lines), "wrong model": measure_wrong_model()}
        RESULTS.write_text(json.dumps(plain(stored), indent=1) + "\n", encoding="utf-8")
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts_of_page(stored)), encoding="utf-8")


if __name__ == "__main__":
    main()
