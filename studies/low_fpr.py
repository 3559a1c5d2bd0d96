"""Low false positive rates: losses over pairs and the ranking constraint beside cross-entropy, on tables.

    python -m studies.low_fpr --data ../shared/data --jobs 8   # train; cells are in runs/low_fpr.jsonl
    python -m studies.low_fpr_page --cells runs/low_fpr.jsonl

Judged by the false positive rate of the test rows at true positive rates of 0.9, 0.95 and 0.98. Tables: those of
little_capacity.py with at least 250 positives after duplicates are removed, and Credit card with all positives and
15,000 random negatives (V columns rounded to half precision). Networks with 32 hidden units, five splits at once (60,
20 and 20 % of the rows). Every loss has the same four learning rates, 300 steps of AdamW on all training rows and 15
looks; the rate and the look with the lowest mean of the three false positive rates on the validation rows are kept.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from torch import Tensor

from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.losses import FocalLoss, Mix, PairHingeLoss, PairSquareLoss, WeightedBCELoss
from metricfit.losses.ranking import PartialAUCLoss
from studies.stacked_networks import RATES, STEPS, Loss, Splits, Stack, append, finished, make_splits, train

CELLS = Path("runs") / "low_fpr.jsonl"
TABLES = (
    "abalone", "coil_2000", "creditcard", "letter_img", "mammography", "optical_digits", "pen_digits", "phoneme",
    "satimage", "sick_euthyroid",
)  # fmt: skip
TPR = (0.9, 0.95, 0.98)
WIDTH, SEEDS = 32, range(5)


def _bce(positive_weight: float = 1.0) -> WeightedBCELoss:
    return WeightedBCELoss(positive_weight, task="multilabel")


class Constrained:
    """Cross-entropy under the ranking constraint; the multipliers move after every step, that is, before the next."""

    def __init__(self, rows: int) -> None:
        constraint = RankingConstraint(
            margin=1.0, size=rows, normalize=True, classes=list(range(len(SEEDS))), task="multilabel"
        )
        self.loss, self.index, self.started = AugmentedLagrangian(_bce(), constraint, mu=1.0), torch.arange(rows), False

    def __call__(self, logits: Tensor, y: Tensor) -> Tensor:
        """The augmented objective."""
        if self.started:
            self.loss.update()
        self.started = True
        return self.loss(logits, y, index=self.index)


#: The stages of each loss, from the share of positives and the number of training rows.
LOSSES: dict[str, Callable[[float, int], list[Loss]]] = {
    "BCE": lambda prior, rows: [_bce()],
    "BCE, balanced": lambda prior, rows: [_bce((1 - prior) / prior)],
    "focal": lambda prior, rows: [FocalLoss(gamma=2.0, task="multilabel")],
    "AUC, square": lambda prior, rows: [PairSquareLoss(task="multilabel")],
    "AUC, hinge": lambda prior, rows: [PairHingeLoss(task="multilabel")],
    "partial AUC, TPR >= 0.8": lambda prior, rows: [PartialAUCLoss(min_tpr=0.8, task="multilabel")],
    "partial AUC, TPR >= 0.8, FPR <= 0.5": lambda prior, rows: [
        PartialAUCLoss(min_tpr=0.8, max_fpr=0.5, task="multilabel")
    ],
    "BCE + partial AUC": lambda prior, rows: [
        Mix((_bce(), 1.0), (PartialAUCLoss(min_tpr=0.8, task="multilabel"), 1.0))
    ],
    "BCE, then ranking constraint": lambda prior, rows: [_bce(), Constrained(rows)],
}


def fpr_at_tpr(logits: Tensor, y: Tensor) -> Tensor:
    """False positive rates ``(splits, len(TPR))`` of logits ``(splits, n)``; all splits have equally many positives."""
    positives = logits[y == 1].view(len(y), -1).sort(dim=1, descending=True).values
    negatives = logits[y == 0].view(len(y), -1)
    places = [math.ceil(rate * positives.shape[1] - 1e-9) - 1 for rate in TPR]
    return (negatives.unsqueeze(2) >= positives[:, None, places]).double().mean(1)


def look_at(model: Stack, splits: Splits) -> Tensor:
    """One minus the mean validation rate, and the rates of the test rows."""
    validation, test = (fpr_at_tpr(model(part.x).squeeze(2), part.y) for part in (splits.validation, splits.test))
    return torch.cat([1 - validation.mean(1, keepdim=True), test], dim=1).unsqueeze(1)


def measure(splits: Splits, loss: str, rates: Sequence[float] = RATES, steps: int = STEPS) -> dict[str, Any]:
    """Train with each rate, and return the test rates of the best look of each split."""
    runs = []
    for rate in rates:
        model = Stack(SEEDS, splits.train.x.shape[2], WIDTH, 1, splits.prior)
        stages = LOSSES[loss](splits.prior, splits.train.x.shape[1])
        runs.append(torch.stack(train(model, splits.train, stages, rate, lambda m=model: look_at(m, splits), steps)))
    values = torch.cat(runs).squeeze(2)
    chosen = values[..., 0].argmax(0)
    rows = values[chosen, torch.arange(len(SEEDS))]
    found = {f"{rate}": [round(value, 5) for value in rows[:, 1 + place].tolist()] for place, rate in enumerate(TPR)}
    return {"fpr": found, "rates": [rates[at // len(runs[0])] for at in chosen.tolist()]}


def run(data: Path, out: Path, name: str, loss: str, rates: Sequence[float], steps: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    splits, started = make_splits(data, name, SEEDS), time.perf_counter()
    append(out, {"table": name, "loss": loss, "steps": steps, **measure(splits, loss, rates, steps)})
    print(f"low FPR: {name} {loss}: {time.perf_counter() - started:.1f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="contains tabular/ and imblearn_bench/")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args(arguments)
    options.cells.parent.mkdir(parents=True, exist_ok=True)
    done = finished(options.cells, "table", "loss")
    Parallel(options.jobs, batch_size=1)(
        delayed(run)(options.data, options.cells, name, loss, options.rates, options.steps)
        for name in options.tables
        for loss in LOSSES
        if (name, loss) not in done
    )


if __name__ == "__main__":
    main()
