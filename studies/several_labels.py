"""Several labels: losses and decisions on nine tables of Mulan, judged by macro, micro and samples F1.

    python -m studies.several_labels --data ../shared/data --jobs 12   # train; finished cells are in runs/labels
    python -m studies.several_labels_page                              # collect them, and fill in the page

A cell is one table, one loss and one of five random splits (60 % of the rows to train on, 20 % for validation, 20 % for
the test). The network has one hidden layer of 256 units. Every loss is tuned in the same way: it is trained with two
learning rates for 2,000 steps, with 20 looks at the validation rows in each. For every average the learning rate and
the look with the best F1 of the validation rows are kept: the mean of the F1 at 0.5 and the F1 at the best thresholds.
Settings of losses (gamma, weights of a mix) are not tuned. Decisions are chosen on the validation rows as well. The
test rows are used once, for the values that are stored.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from torch import Tensor, nn

from metricfit import MetricLoss, RunningCounts
from metricfit.core.types import LabelAverage
from metricfit.decide import per_row
from metricfit.decide.calibration import fit_label_calibration
from metricfit.decide.labels import choose_label_thresholds, label_value
from metricfit.losses import FocalLoss, Mix, WeightedBCELoss
from metricfit.metrics import f1
from studies.mulan import MOST_DENSE_COLUMNS, read

CELLS = Path("runs") / "labels"
TABLES = ("bibtex", "birds", "emotions", "enron", "genbase", "medical", "scene", "tmc2007-500", "yeast")
SEEDS, RATES, STEPS, LOOKS, BATCH, HIDDEN = 5, (1e-3, 4e-3), 2000, 20, 128, 256
AVERAGES: tuple[LabelAverage, ...] = ("macro", "micro", "samples")
DECISIONS = ("0.5", "one threshold", "per label", "per label, smoothed", "per row")
#: One threshold for all labels is searched among those that call these multiples of the true positives positive.
MULTIPLES = torch.linspace(0.4, 2.2, 25).tolist()


def _bce() -> nn.Module:
    return WeightedBCELoss(task="multilabel")


def _metric_loss() -> nn.Module:
    return MetricLoss("f1", task="multilabel")


#: The stages of each way of training; all stages of one way have the same number of steps.
LOSSES: dict[str, Callable[[], list[nn.Module]]] = {
    "BCE": lambda: [_bce()],
    "BCE + F1": lambda: [Mix((_bce(), 1.0), (_metric_loss(), 1.0))],
    "F1": lambda: [_metric_loss()],
    "focal": lambda: [FocalLoss(gamma=2.0, task="multilabel")],
    "asymmetric focal": lambda: [FocalLoss(gamma=2.0, asymmetric=True, task="multilabel")],
    "BCE + 0.5 F1": lambda: [Mix((_bce(), 1.0), (_metric_loss(), 0.5))],
    "BCE, then F1": lambda: [_bce(), _metric_loss()],
    "BCE + F1, memory": lambda: [
        Mix((_bce(), 1.0), (MetricLoss("f1", task="multilabel", memory=RunningCounts()), 1.0))
    ],
}
#: Measured after the others: they answer which form of the mix to prefer.
VARIANTS = ("BCE + 0.5 F1", "BCE, then F1", "BCE + F1, memory")


class Rows(NamedTuple):
    """Columns ``(n, d)`` and labels ``(n, c)``."""

    x: Tensor
    y: Tensor


class Kept(NamedTuple):
    """The best look: its value on the validation rows, its learning rate, logits of both parts, and its weights."""

    value: float
    rate: float
    step: int
    validation: Tensor
    test: Tensor
    weights: dict[str, Tensor]


def split(data: Path, name: str, seed: int) -> list[Rows]:
    """Training, validation and test rows; labels with fewer than two positives to train on are left out."""
    x, y = read(data, name)
    scaler = StandardScaler() if x.shape[1] < MOST_DENSE_COLUMNS else MaxAbsScaler()
    rows = np.random.default_rng(seed).permutation(len(x))
    parts = np.split(rows, [len(x) * 6 // 10, len(x) * 8 // 10])
    scaler.fit(x[parts[0]])
    kept = y[parts[0]].sum(0) >= 2
    return [
        Rows(torch.from_numpy(scaler.transform(x[part])).float(), torch.from_numpy(y[part][:, kept])) for part in parts
    ]


def train(parts: Sequence[Rows], stages: Sequence[nn.Module], rate: float, seed: int) -> dict[str, Kept]:
    """Train one network, and keep the look with the best validation rows for each average.

    A second stage starts from the weights of the best look of the first (by macro F1), and only its looks count.
    """
    torch.manual_seed(seed)
    (x, y), validation, test = parts
    model = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Dropout(0.3), nn.Linear(HIDDEN, y.shape[1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-2)
    kept: dict[str, Kept] = {}
    rows: list[Tensor] = []
    for step in range(1, STEPS + 1):
        stage = (step - 1) * len(stages) // STEPS
        if kept and stage and (step - 1) * len(stages) % STEPS == 0:
            model.load_state_dict(kept["macro"].weights)
            kept = {}
        model.train()
        rows = rows or list(torch.randperm(len(x)).split(BATCH))
        batch = rows.pop()
        optimizer.zero_grad()
        stages[stage](model(x[batch]), y[batch].float()).backward()
        optimizer.step()
        if step % (STEPS // LOOKS):
            continue
        model.eval()
        with torch.no_grad():
            logits, new = model(validation.x).double(), model(test.x).double()
        for average in AVERAGES:
            value = validation_value(logits, validation.y, average)
            if average not in kept or value > kept[average].value:
                weights = {name: weight.clone() for name, weight in model.state_dict().items()}
                kept[average] = Kept(value, rate, step, logits, new, weights)
    return kept


def validation_value(logits: Tensor, y: Tensor, average: LabelAverage) -> float:
    """The mean of the F1 at 0.5 and the F1 at tuned thresholds: one per label for macro, otherwise one for all."""
    if average == "macro":
        tuned = torch.from_numpy(choose_label_thresholds(logits, y, None, f1, average, rule="empirical"))
    else:
        tuned = one_threshold(logits, y, average)
    return statistics.fmean(label_value(logits >= cut, y, None, f1, average) for cut in (torch.zeros(()), tuned))


def one_threshold(logits: Tensor, y: Tensor, average: LabelAverage) -> Tensor:
    """The logit with the best F1 if all labels are decided at it."""
    falling = logits.flatten().sort(descending=True).values
    counts = {min(len(falling), max(1, math.floor(int(y.sum()) * multiple))) for multiple in MULTIPLES}
    candidates = falling[[count - 1 for count in sorted(counts)]]
    values = [label_value(logits >= cut, y, None, f1, average) for cut in candidates]
    return candidates[int(np.argmax(values))]


def decide(validation: Tensor, y: Tensor, test: Tensor, average: LabelAverage) -> dict[str, Tensor]:
    """The labels of the test rows by each decision, chosen on the validation rows."""
    calibration = fit_label_calibration(validation, y, None)
    z, new = calibration(validation), calibration(test)
    tuned = choose_label_thresholds(validation, y, None, f1, average, rule="empirical")
    smoothed = choose_label_thresholds(z, y, None, f1, average, rule="plugin")
    return {
        "0.5": test >= 0,
        "one threshold": test >= one_threshold(validation, y, average),
        "per label": test >= torch.from_numpy(tuned),
        "per label, smoothed": new >= torch.from_numpy(smoothed),
        "per row": per_row(new.sigmoid(), "f1"),
    }


def measure(data: Path, name: str, loss: str, seed: int, cells: Path) -> None:
    path = cells / f"{name}-{loss.replace(' ', '_')}-{seed}.json"
    if path.exists():
        return
    started = time.perf_counter()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the metric loss alone may stall at the start, which is measured here
    parts = split(data, name, seed)
    runs = [train(parts, LOSSES[loss](), rate, seed) for rate in RATES]
    values: dict[str, dict[str, float]] = {}
    kept = {average: max((run[average] for run in runs), key=lambda one: one.value) for average in AVERAGES}
    for average, best in kept.items():
        decided = decide(best.validation, parts[1].y, best.test, average)
        values[average] = {
            decision: round(label_value(labels, parts[2].y, None, f1, average), 5)
            for decision, labels in decided.items()
        }
    cell = {"table": name, "loss": loss, "seed": seed, "values": values}
    cell["kept"] = {average: [best.rate, best.step] for average, best in kept.items()}
    path.write_text(json.dumps(cell), encoding="utf-8")
    print(f"{path.stem}: {time.perf_counter() - started:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that contains multilabel/")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--losses", nargs="*", default=list(LOSSES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    options.cells.mkdir(parents=True, exist_ok=True)
    work = [
        (options.data, name, loss, seed, options.cells)
        for late in (False, True)
        for seed in range(options.seeds)
        for name in options.tables
        for loss in options.losses
        if (loss in VARIANTS) == late
    ]
    Parallel(options.jobs)(delayed(measure)(*cell) for cell in work)


if __name__ == "__main__":
    main()
