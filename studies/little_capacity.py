"""Little capacity: does a metric loss gain more over cross-entropy where the model is too small for the data?

    python -m studies.little_capacity --data ../shared/data --jobs 8   # train; cells are in runs/capacity.jsonl
    python -m studies.little_capacity_page --cells runs/capacity.jsonl

Tables: all datasets in tabular/ and imblearn_bench/ with at least 100 positives, at most 20,000 rows and
at most 200 columns, apart from CocktailParty, whose rows belong to frames. Models: linear, and one hidden layer of 2, 8
and 64 units. A cell is one table, width and loss with five splits at once. Every loss has the same four learning
rates, 300 steps of AdamW on all training rows and 15 looks; for each decision (0.5, or a threshold that is tuned on the
validation rows) the rate and the look with the best validation F1 are kept. The test rows are used once.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from torch import Tensor

from metricfit import MetricLoss
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.steps import Identity, Step
from studies.stacked_networks import (
    RATES,
    STEPS,
    Loss,
    Splits,
    Stack,
    append,
    best_f1,
    f1_at,
    finished,
    make_splits,
    train,
)

CELLS = Path("runs") / "capacity.jsonl"
TABLES = (
    "abalone", "car_eval_34", "coil_2000", "letter_img", "mammography", "optical_digits", "pen_digits", "phoneme",
    "satimage", "sick_euthyroid", "thyroid_sick", "us_crime", "wine_quality", "yeast_ml8",
)  # fmt: skip
#: Units of the hidden layer; 0 is a linear model.
WIDTHS = (0, 2, 8, 64)
BLOCKS = (range(5), range(5, 10))


def _bce(positive_weight: float = 1.0) -> WeightedBCELoss:
    return WeightedBCELoss(positive_weight, task="multilabel")


def _metric_loss(step: Step | None = None) -> MetricLoss:
    return MetricLoss("f1", step=step, task="multilabel")


#: The stages of each loss, from the share of positives. Each member of a stack is a label of its own.
LOSSES: dict[str, Callable[[float], list[Loss]]] = {
    "BCE": lambda prior: [_bce()],
    "F1": lambda prior: [_metric_loss()],
    "BCE + 0.5 F1": lambda prior: [Mix((_bce(), 1.0), (_metric_loss(), 0.5))],
    "BCE, then F1": lambda prior: [_bce(), _metric_loss()],
    "F1, Identity": lambda prior: [_metric_loss(Identity())],
    "BCE, weighted": lambda prior: [_bce(math.sqrt((1 - prior) / prior))],
    "BCE, balanced": lambda prior: [_bce((1 - prior) / prior)],
}


def look_at(model: Stack, splits: Splits) -> Tensor:
    """Validation F1 at the best threshold and at 0.5, the same of the test rows, and F1 of the training rows."""
    validation, test, fitted = (
        (model(part.x), part.y.unsqueeze(2)) for part in (splits.validation, splits.test, splits.train)
    )
    tuned, threshold = best_f1(*validation)
    values = [tuned, f1_at(*validation), f1_at(*test, threshold), f1_at(*test), best_f1(*fitted)[0], f1_at(*fitted)]
    return torch.stack([value.double() for value in values], dim=-1)


def measure(splits: Splits, seeds: range, width: int, losses: list[Loss], steps: int = STEPS) -> dict[str, Any]:
    """Train with each rate, and return for each decision and split what the best look has."""
    runs = []
    for rate in RATES:
        model = Stack(seeds, splits.train.x.shape[2], width, 1, splits.prior)
        runs.append(torch.stack(train(model, splits.train, losses, rate, lambda m=model: look_at(m, splits), steps)))
    per_rate = len(runs[0])
    values = torch.cat(runs).squeeze(2)  # (rates * looks, splits, 6)
    cell: dict[str, Any] = {}
    for place, decision in enumerate(("tuned", "0.5")):
        chosen = values[..., place].argmax(0)
        rows = values[chosen, torch.arange(len(seeds))]
        named = {"validation": rows[:, place], "test": rows[:, 2 + place], "train": rows[:, 4 + place]}
        cell[decision] = {key: [round(value, 5) for value in row.tolist()] for key, row in named.items()}
        cell[decision]["kept"] = [[RATES[at // per_rate], (at % per_rate + 1) / per_rate] for at in chosen.tolist()]
    return cell


def run(data: Path, out: Path, name: str, width: int, loss: str, block: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the metric loss alone may stall at the start, which is measured here
    splits, started = make_splits(data, name, BLOCKS[block]), time.perf_counter()
    line = {"table": name, "width": width, "loss": loss, "block": block}
    line |= measure(splits, BLOCKS[block], width, LOSSES[loss](splits.prior))
    seconds = time.perf_counter() - started
    append(out, line)
    print(f"{name} {width} {loss} {block}: {seconds:.1f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="contains tabular/ and imblearn_bench/")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--blocks", type=int, nargs="*", default=[0, 1], help="0: splits 0 to 4; 1: splits 5 to 9")
    options = parser.parse_args(arguments)
    options.cells.parent.mkdir(parents=True, exist_ok=True)
    done = finished(options.cells, "table", "width", "loss", "block")
    Parallel(options.jobs, batch_size=1)(
        delayed(run)(options.data, options.cells, name, width, loss, block)
        for block in options.blocks
        for width in WIDTHS
        for name in TABLES
        for loss in LOSSES
        if (name, width, loss, block) not in done
    )


if __name__ == "__main__":
    main()
