"""Label noise: is the surrogate of F-beta with q > 0 more robust, as its paper says, and than which rivals?

    python -m studies.label_noise --data ../shared/data --jobs 8   # train; cells are in runs/noise.jsonl
    python -m studies.label_noise_page --cells runs/noise.jsonl

Tables with at least 1,000 positives that are not split by frames or time: adult, diabetes_100k and
phoneme. Of each, 2,000 rows are for training, 1,000 for validation and 2,000 for the test, in six random splits. Of
the labels of the training rows, 20 or 40 % are wrong: of both classes (symmetric), or of the positives (missed). The
network has 32 hidden units. A cell is one table and one loss, with three splits and all kinds of noise at once. Every
loss has the same four learning rates, 300 steps of AdamW on all training rows and 15 looks. Rate, look and threshold
are chosen by the F1 of validation rows with the same noise, and in another column by the true labels of these rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from metricfit import MetricLoss
from metricfit.losses import ClassBalanced, FocalLoss, MAELoss, Mix, SurrogateFBetaLoss, WeightedBCELoss
from studies.stacked_networks import (
    RATES,
    STEPS,
    Loss,
    Part,
    Splits,
    Stack,
    append,
    best_f1,
    f1_at,
    finished,
    flat,
    make_splits,
    train,
)

CELLS = Path("runs") / "noise.jsonl"
TABLES = ("adult", "diabetes_100k", "phoneme")
SIZES, WIDTH = (2000, 1000, 2000), 32
BLOCKS = (range(3), range(3, 6))
#: Shares of the positives and of the negatives whose label is wrong.
NOISE = {
    "none": (0.0, 0.0),
    **{f"symmetric {rate}": (rate, rate) for rate in (0.2, 0.4)},
    **{f"missed {rate}": (rate, 0.0) for rate in (0.2, 0.4)},
}


def _bce(positive_weight: float = 1.0) -> WeightedBCELoss:
    return WeightedBCELoss(positive_weight, task="multilabel")


def _metric_loss() -> MetricLoss:
    return MetricLoss("f1", task="multilabel")


def _surrogate(q: float) -> Callable[[float], Loss]:
    return lambda prior: SurrogateFBetaLoss(prior=prior, q=q, task="multilabel")


#: Each loss, from the share of positives in the training rows as they are labelled.
LOSSES: dict[str, Callable[[float], Loss]] = {
    "BCE": lambda prior: _bce(),
    "BCE, balanced": lambda prior: _bce((1 - prior) / prior),
    "focal": lambda prior: FocalLoss(gamma=2.0, task="multilabel"),
    "MAE, balanced": lambda prior: flat(ClassBalanced(MAELoss(), prior)),
    "F1": lambda prior: _metric_loss(),
    "BCE + 0.5 F1": lambda prior: Mix((_bce(), 1.0), (_metric_loss(), 0.5)),
    "surrogate, q = 0": _surrogate(0.0),
    "surrogate, q = 0.3": _surrogate(0.3),
    "surrogate, q = 0.7": _surrogate(0.7),
    "surrogate, q = 1": _surrogate(1.0),
}


class ByVersion(nn.Module):
    """The mean over versions of the loss of each, with the share of positives of that version."""

    def __init__(self, make: Callable[[float], Loss], labels: Tensor) -> None:
        super().__init__()
        self.losses = [make(float(labels[..., version].float().mean())) for version in range(labels.shape[2])]

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean; columns are versions of splits."""
        versions = len(self.losses)
        z, t = (each.unflatten(1, (-1, versions)).unbind(2) for each in (logits, y))
        return torch.stack([loss(a, b) for loss, a, b in zip(self.losses, z, t, strict=True)]).mean()


def with_noise(y: Tensor, seeds: range, part: int) -> Tensor:
    """Labels ``(splits, n, versions)``; the wrong labels of less noise are also wrong with more noise."""
    noisy = y.unsqueeze(2).repeat(1, 1, len(NOISE))
    for split, seed in enumerate(seeds):
        generator = np.random.default_rng([seed, part, 6])
        for label in (1, 0):
            rows = torch.from_numpy(generator.permutation(np.flatnonzero(y[split].numpy() == label)))
            for version, rates in enumerate(NOISE.values()):
                noisy[split, rows[: round(rates[1 - label] * len(rows))], version] = 1 - label
    return noisy


def look_at(model: Stack, splits: Splits, noisy: Tensor) -> Tensor:
    """F1 at the best threshold and at 0.5: of validation rows as labelled, of their true labels, of test rows."""
    (x, y), (new, truth) = splits.validation, splits.test
    z, test = model(x), model(new)
    right, truth = y.unsqueeze(2).expand_as(noisy), truth.unsqueeze(2)
    (tuned, threshold), (clean, clean_threshold) = best_f1(z, noisy), best_f1(z, right)
    values = [tuned, f1_at(z, noisy), clean, f1_at(z, right)]
    values += [f1_at(test, truth, threshold), f1_at(test, truth, clean_threshold), f1_at(test, truth)]
    return torch.stack([value.double() for value in values], dim=-1)


#: How rate and look are chosen, and the decision: the place of the value that chooses, and of the test F1.
SELECTIONS = {
    "noisy, tuned": (0, 4),
    "noisy, 0.5": (1, 6),
    "clean, tuned": (2, 5),
    "clean, 0.5": (3, 6),
}


def measure(
    splits: Splits, seeds: range, loss: str, rates: Sequence[float] = RATES, steps: int = STEPS
) -> dict[str, Any]:
    """Train with each rate; test F1 of each noise, split and selection, and "last": without early stopping."""
    labels, noisy = with_noise(splits.train.y, seeds, 0), with_noise(splits.validation.y, seeds, 1)
    runs = []
    for rate in rates:
        model = Stack(seeds, splits.train.x.shape[2], WIDTH, len(NOISE), splits.prior)
        stages = [ByVersion(LOSSES[loss], labels)]
        looks = train(
            model, Part(splits.train.x, labels), stages, rate, lambda m=model: look_at(m, splits, noisy), steps
        )
        runs.append(torch.stack(looks))
    every, last = torch.cat(runs), torch.stack([run[-1] for run in runs])
    chosen = {name: (every, *places) for name, places in SELECTIONS.items()}
    chosen |= {f"last, {name}": (last, *SELECTIONS[f"noisy, {name}"]) for name in ("tuned", "0.5")}
    cell: dict[str, Any] = {}
    for name, (values, by, test) in chosen.items():
        found = values[..., test].gather(0, values[..., by].argmax(0, keepdim=True)).squeeze(0)
        cell[name] = {kind: [round(v, 5) for v in found[:, version].tolist()] for version, kind in enumerate(NOISE)}
    return cell


def run(data: Path, out: Path, name: str, loss: str, block: int, rates: Sequence[float], steps: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the metric loss alone may stall at the start, which is measured here
    splits, started = make_splits(data, name, BLOCKS[block], SIZES), time.perf_counter()
    values = measure(splits, BLOCKS[block], loss, rates, steps)
    append(out, {"table": name, "loss": loss, "block": block, "rates": rates, "steps": steps, **values})
    print(f"noise: {name} {loss} {block}: {time.perf_counter() - started:.1f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that contains tabular/")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--blocks", type=int, nargs="*", default=[0, 1], help="0: splits 0 to 2; 1: splits 3 to 5")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args(arguments)
    options.cells.parent.mkdir(parents=True, exist_ok=True)
    done = finished(options.cells, "table", "loss", "block")
    Parallel(options.jobs, batch_size=1)(
        delayed(run)(options.data, options.cells, name, loss, block, options.rates, options.steps)
        for block in options.blocks
        for loss in LOSSES
        for name in TABLES
        if (name, loss, block) not in done
    )


if __name__ == "__main__":
    main()
