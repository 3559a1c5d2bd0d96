"""New rows with another class balance: the old threshold, the estimated balance and the true one; and drift.

    python -m studies.prior_shift --data ../shared/data --jobs 16   # measure; finished cells are kept in a folder
    python -m studies.prior_shift --gather                          # put the cells into results/prior_shift.json
    python -m studies.prior_shift                                   # write the page's tables

Tables: half of the rows, with all copies of a row on one side, train a MetricClassifier of logistic regression and
boosted trees, five folds, for F1. Of the other half, positive or negative rows are left out at random, so that the odds
of a positive row are a fifth, the same or five times those of training. The decisions are those of
``rethreshold(metric=..., prevalence=...)``, without their intervals. Drift: the same rows with all columns of numbers
moved or made noisy by half a standard deviation.

Simulation: two normal classes, two standard deviations apart; in "moved" both lie 0.3 further to the right.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from itertools import zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit import Counts, MetricClassifier, get_metric
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.held_out import HeldOut
from metricfit.decide.shift import PriorShift, detect_drift, estimate_prior_shift
from metricfit_papers.datasets import load
from studies.prior_shift_page import write_page

RESULTS = Path(__file__).resolve().parent / "results" / "prior_shift.json"
TABLES = (
    "adult",
    "phoneme",
    "mammography",
    "satimage",
    "pen_digits",
    "coil_2000",
    "optical_digits",
    "wine_quality",
    "abalone",
    "sick_euthyroid",
    "us_crime",
    "car_eval_34",
)
SPLITS = 5
METRICS = ("f1", "mcc", "cost(fp=1, fn=10)")
ODDS = (0.2, 1.0, 5.0)
DRIFT = 0.5  # standard deviations


class Setting(NamedTuple):
    """A simulation: numbers of held-out and new rows, and the shares of positive rows among them."""

    held_out: int
    new: int
    old_share: float
    new_share: float


SETTINGS = (
    Setting(1000, 1000, 0.2, 0.2),
    Setting(1000, 1000, 0.2, 0.6),
    Setting(5000, 500, 0.05, 0.05),
    Setting(5000, 5000, 0.05, 0.2),
    Setting(500, 5000, 0.1, 0.3),
    Setting(20000, 20000, 0.1, 0.02),
)
CHUNKS, CHUNK = 12, 50
MOVE = 0.3


def shares_at(y: NDArray[np.int64], odds: float) -> float:
    """The share of positive rows at which their odds are those of these labels times a factor."""
    now = odds * (y == 1).sum() / (y == 0).sum()
    return float(now / (1 + now))


def resample(y: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many rows as possible, without copies, of which this share is positive."""
    positive, negative = (rng.permutation(np.flatnonzero(y == label)) for label in (1, 0))
    positives = min(len(positive), round(len(negative) * share / (1 - share)))
    negatives = min(len(negative), round(positives * (1 - share) / share))
    return np.sort(np.concatenate([positive[:positives], negative[:negatives]]))


def value_at(held_out: HeldOut, logits: Tensor, y: Tensor, metric: str, shares: Tensor | None) -> float:
    """The metric on new rows, decided for a class balance; None for that of training."""
    at = held_out if shares is None else held_out.with_class_shares(shares)
    decision = choose_without_intervals(at, get_metric(metric), subject_to=[], average="macro")
    labels = decision.decide(logits + (at.logits - held_out.logits)[0])
    return round(get_metric(metric)(Counts.from_labels(labels, y)).item(), 6)


def described(result: PriorShift, truth: float) -> dict[str, Any]:
    low, high = result.intervals[1].tolist()
    return {
        "truth": truth,
        "estimate": float(result.shares[1]),
        "interval": [low, high],
        "p_value": result.drift.p_value,
        "distance": result.drift.distance,
    }


def drifted(rows: pd.DataFrame, kind: str, rng: np.random.Generator) -> pd.DataFrame:
    """The rows with all columns of numbers moved by half a standard deviation, or with as much noise."""
    changed = rows.copy()
    for name in changed.columns:
        if pd.api.types.is_numeric_dtype(changed[name]):
            spread = DRIFT * float(changed[name].std())
            changed[name] = changed[name] + spread * (1.0 if kind == "moved" else rng.normal(size=len(changed)))
    return changed


def halves(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of two halves; all copies of a row are in one of them."""
    copies = rows.groupby(list(rows.columns), dropna=False, observed=True, sort=False).ngroup().to_numpy()
    side = rng.permutation(copies.max() + 1) % 2
    order = rng.permutation(len(rows))
    return order[side[copies[order]] == 0], order[side[copies[order]] == 1]


def measure_table(data: Path, name: str, split: int) -> dict[str, Any]:
    rows, rng = load(name, data), np.random.default_rng(split)
    labels = np.asarray(rows.y, dtype=np.int64)
    train, test = halves(rows.X, rng)
    model = MetricClassifier(
        "f1", models=["linear", "boosting"], members=5, n_jobs=1, time_budget=None, random_state=split
    ).fit(rows.X.iloc[train], labels[train])
    result: dict[str, Any] = {"rows": len(train), "share": float(labels[train].mean()), "odds": {}, "drift": {}}
    held_out = model.held_out_
    for odds in ODDS:
        kept = test[resample(labels[test], shares_at(labels[train], odds), rng)]
        X, y = rows.X.iloc[kept], torch.from_numpy(labels[kept])
        estimate = estimate_prior_shift(*model._comparable_rows(X), seed=split)
        truth = float(y.double().mean())
        balances = {"old": None, "estimated": estimate.shares, "true": torch.tensor([1 - truth, truth])}
        logits = model._calibrated_logits(X)
        values = {
            metric: {way: value_at(held_out, logits, y, metric, shares) for way, shares in balances.items()}
            for metric in METRICS
        }
        result["odds"][str(odds)] = described(estimate, truth) | {"rows": len(kept), "values": values}
    for kind in ("moved", "noisy"):
        X = drifted(rows.X.iloc[test], kind, rng)
        result["drift"][kind] = detect_drift(*model._comparable_rows(X), seed=split).p_value
    return result


def draw(n: int, share: float, rng: np.random.Generator, move: float = 0.0) -> tuple[Tensor, Tensor]:
    y = (rng.random(n) < share).astype(np.int64)
    return torch.from_numpy(rng.normal(size=(n, 1)) + 2.0 * y[:, None] + move), torch.from_numpy(y)


def simulate(setting: Setting, chunk: int) -> dict[str, Any]:
    """P-values without and with drift, and for every fifth sample whether the interval holds the true share."""
    plain, moved, covered = [], [], []
    for number in range(CHUNK):
        seed = chunk * CHUNK + number
        rng = np.random.default_rng(seed)
        z, y = draw(setting.held_out, setting.old_share, rng)
        held_out = HeldOut(z, y, None, None, torch.bincount(y, minlength=2).double() / len(y))
        new, other = (draw(setting.new, setting.new_share, rng, move)[0] for move in (0.0, MOVE))
        plain.append(detect_drift(held_out, new, seed=seed).p_value)
        moved.append(detect_drift(held_out, other, seed=seed).p_value)
        if number % 5 == 0:
            low, high = estimate_prior_shift(held_out, new, seed=seed).intervals[1].tolist()
            covered.append(low <= setting.new_share <= high)
    return {"plain": plain, "moved": moved, "covered": covered}


def run(data: Path, folder: Path, cell: tuple[Any, int]) -> str:
    torch.set_num_threads(1)
    what, number = cell
    path, start = (
        folder / f"{'table' if isinstance(what, str) else 'simulation'}-{label_of(what)}-{number}.json",
        time.perf_counter(),
    )
    if path.exists():
        return f"{path.stem}: kept"
    result = measure_table(data, what, number) if isinstance(what, str) else simulate(what, number)
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    return f"{path.stem}: {time.perf_counter() - start:.0f} s"


def label_of(what: str | Setting) -> str:
    return what if isinstance(what, str) else "_".join(map(str, what))


def gather(folder: Path) -> None:
    """Put finished cells into one file."""
    results: dict[str, Any] = {"tables": {}, "simulations": {}}
    for part, prefix, names in (("tables", "table", TABLES), ("simulations", "simulation", map(label_of, SETTINGS))):
        for name in names:
            paths = sorted(folder.glob(f"{prefix}-{name}-*.json"))
            cells = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            if cells and part == "simulations":
                results[part][name] = {key: [each for cell in cells for each in cell[key]] for key in cells[0]}
            elif cells:
                results[part][name] = cells
    RESULTS.write_text(json.dumps(rounded(results), separators=(",", ":")) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: measure what is not yet measured")
    parser.add_argument("--folder", type=Path, default=Path("runs/prior_shift"), help="where finished cells are kept")
    parser.add_argument("--gather", action="store_true", help="put the cells into results/prior_shift.json")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--only", nargs="*", default=TABLES)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.data is not None:
        cells: list[tuple[Any, int]] = [(name, split) for split in range(options.splits) for name in options.only]
        simulated = [(setting, chunk) for chunk in range(options.chunks) for setting in SETTINGS]
        cells = [cell for pair in zip_longest(cells, simulated) for cell in pair if cell is not None]
        with get_context("fork").Pool(options.jobs) as pool:
            for line in pool.imap_unordered(partial(run, options.data, options.folder), cells):
                print(line, flush=True)
    if options.gather:
        gather(options.folder)
    if options.data is None:
        write_page(json.loads(RESULTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
