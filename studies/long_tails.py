"""Long tails: seven losses and three decisions on Fashion-MNIST and CIFAR-10 with 10:1 and 100:1 between the classes.

    python -m studies.long_tails --data ../shared/data     # one GPU; finished cells are in runs/tails
    python -m studies.long_tails_page                      # collect them, and fill in the page

A cell is one set, one ratio, one network and one loss, with five seeds. Every loss is tuned in the same way: it is
trained with the same three learning rates, and the rate is kept whose mean over the seeds is best on the held-out rows
(macro F1 of the argmax and of tuned offsets, on the rows as they are and weighted to equal classes; the mean of these
four). Number of steps, schedule, batches, first weights and augmentation are the same for all; the last weights are
taken. Settings of losses (weight of a mix, margins) are those of the library or the paper. Offsets are chosen on the
held-out rows for the metric that they are judged by. The test rows are used once, for the values that are stored.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricfit import Counts, MetricLoss
from metricfit.core.steps import Identity
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.offsets import best_offsets, offset_problem, search_offsets
from metricfit.losses import LDAMLoss, LogitAdjustedLoss, Mix
from metricfit.metrics import get_metric
from metricfit.metrics.average import averaged
from studies.long_tails_data import CLASSES, Batches, class_sizes, split_rows
from studies.long_tails_training import Group, Loss

CELLS = Path("runs") / "tails"
SETS, RATIOS, NETWORKS = ("cifar10", "fashion-mnist"), (10, 100), ("CNN", "ResNet")
SEEDS, RATES, STEPS, BATCH = 5, (5e-4, 2e-3, 8e-3), 1000, 256
METRICS = ("f1", "balanced_accuracy", "mcc")
MIXES = ("long-tailed", "balanced")
DECISIONS = ("argmax", "offsets", "offsets, smoothed")
#: The share of steps of the first stage, where there are two: cross-entropy before the metric, and LDAM before weights.
FIRST_STAGE = {"CE, then F1": 0.6, "LDAM-DRW": 0.8}
#: Of the effective numbers by which the second stage of LDAM-DRW weights the classes (Cao et al. 2019).
EFFECTIVE_BETA = 0.9999
LOSSES = ("CE", "CE + 0.5 F1", "F1", "CE, then F1", "logit-adjusted", "LDAM", "LDAM-DRW")
#: Measured after the others: another weight and another step of the mix.
VARIANTS = ("CE + F1", "CE + 0.5 F1, Identity")


class Rows(NamedTuple):
    """Logits ``(n, 10)`` and class numbers."""

    logits: Tensor
    y: Tensor


class Logits(NamedTuple):
    """Logits of a cell's models ``(models, n, 10)``, by learning rate and then by seed, and labels, for a process."""

    held_out: NDArray[np.float32]
    held_out_labels: NDArray[np.int64]
    test: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write the logits in half precision, so that a run that is cut short can be judged later."""
        halves = {"held_out": self.held_out.astype(np.float16), "test": self.test.astype(np.float16)}
        np.savez(path, **(self._asdict() | halves))

    @classmethod
    def load(cls, path: Path) -> Logits:
        """Read what ``save`` wrote."""
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in cls._fields}
        for name in ("held_out", "test"):
            arrays[name] = arrays[name].astype(np.float32)
        return cls(**arrays)

    def rows(self) -> tuple[list[Rows], list[Rows]]:
        """Held-out rows and test rows of every model."""
        seeds = len(self.held_out_labels)
        held_out = [
            Rows(torch.from_numpy(z), torch.from_numpy(self.held_out_labels[model % seeds]))
            for model, z in enumerate(self.held_out)
        ]
        return held_out, [Rows(torch.from_numpy(z), torch.from_numpy(self.test_labels)) for z in self.test]


def stages(name: str, counts: Sequence[int], device: torch.device) -> list[tuple[Callable[[], Loss], float]]:
    """The losses of a way of training, one after the other, with the share of the steps that each has."""

    def made(loss: nn.Module) -> Loss:
        return loss.to(device)

    makers: dict[str, Callable[[], Loss]] = {
        "CE": lambda: made(nn.CrossEntropyLoss()),
        "CE + 0.5 F1": lambda: made(Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1"), 0.5))),
        "F1": lambda: made(MetricLoss("f1")),
        "CE + F1": lambda: made(Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1"), 1.0))),
        "CE + 0.5 F1, Identity": lambda: made(
            Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1", step=Identity()), 0.5))
        ),
        "logit-adjusted": lambda: made(LogitAdjustedLoss(counts)),
        "LDAM": lambda: made(LDAMLoss(counts)),
    }
    if name == "CE, then F1":
        return [(makers["CE"], FIRST_STAGE[name]), (makers["F1"], 1 - FIRST_STAGE[name])]
    if name == "LDAM-DRW":
        effective = torch.tensor([(1 - EFFECTIVE_BETA) / (1 - EFFECTIVE_BETA**n) for n in counts], device=device)

        def weighted() -> Loss:
            loss = made(LDAMLoss(counts))
            return lambda logits, y: loss(logits, y, weight=effective[y])

        return [(makers["LDAM"], FIRST_STAGE[name]), (weighted, 1 - FIRST_STAGE[name])]
    return [(makers[name], 1.0)]


def shares_of(ratio: float, mix: str) -> Tensor:
    """The class shares that a value is measured for."""
    sizes = torch.tensor(class_sizes(ratio) if mix == "long-tailed" else [1] * CLASSES, dtype=torch.float64)
    return sizes / sizes.sum()


def row_weights(y: Tensor, shares: Tensor) -> Tensor:
    """Weights with which the classes of these rows have the given shares."""
    present = torch.bincount(y, minlength=CLASSES).double()
    return (shares / present)[y] * len(y)


def value(decided: Tensor, y: Tensor, metric: str, shares: Tensor) -> float:
    counts = Counts.from_labels(decided, y, num_classes=CLASSES, weight=row_weights(y, shares))
    return float(averaged(get_metric(metric), counts, "macro"))


def smoothed_offsets(held_out: Rows, metric: str, shares: Tensor) -> Tensor:
    """Offsets by the expected counts of calibrated probabilities, moved to the given class shares."""
    calibration = fit_calibration(held_out.logits, held_out.y, None)
    present = torch.bincount(held_out.y, minlength=CLASSES).double()
    shift = (shares / (present / present.sum())).log()
    z, weight = calibration(held_out.logits) + shift, row_weights(held_out.y, shares)
    rows = (z.double().numpy(), held_out.y.numpy(), weight.double().numpy())
    problem = offset_problem(*rows, get_metric(metric), "macro", rule="plugin")
    offsets = calibration.bias + shift.numpy() + search_offsets(problem, 10).offsets
    return torch.from_numpy(calibration.temperature * offsets)


def choose_value(held_out: Rows, ratio: float) -> float:
    """What a learning rate is chosen by: macro F1 of held-out rows, argmax and offsets, for both class shares."""
    values = []
    for mix in MIXES:
        shares = shares_of(ratio, mix)
        weight = row_weights(held_out.y, shares)
        values.append(value(held_out.logits.argmax(1), held_out.y, "f1", shares))
        values.append(best_offsets(held_out.logits, held_out.y, "f1", weight=weight, starts=1).value)
    return statistics.fmean(values)


def judge(held_out: Rows, test: Rows, ratio: float) -> dict[str, dict[str, dict[str, float]]]:
    """The values of the test rows by decision, class shares and metric."""
    values: dict[str, dict[str, dict[str, float]]] = {decision: {} for decision in DECISIONS}
    for mix in MIXES:
        shares = shares_of(ratio, mix)
        weight = row_weights(held_out.y, shares)
        for metric in METRICS:
            offsets = {
                "argmax": torch.zeros(CLASSES),
                "offsets": best_offsets(held_out.logits, held_out.y, metric, weight=weight).offsets,
                "offsets, smoothed": smoothed_offsets(held_out, metric, shares),
            }
            for decision, shift in offsets.items():
                decided = (test.logits + shift).argmax(1)
                values[decision].setdefault(mix, {})[metric] = round(value(decided, test.y, metric, shares), 5)
    return values


def measure(path: Path, cell: dict[str, Any]) -> str:
    """Choose the learning rate of a cell by the logits beside it, judge its models, and write the cell."""
    started = time.perf_counter()
    torch.set_num_threads(1)
    logits = Logits.load(path.with_suffix(".npz"))
    held_out, test = logits.rows()
    seeds = len(logits.held_out_labels)
    ratio, number = cell["ratio"], len(held_out) // seeds
    chosen_by = [[choose_value(held_out[r * seeds + s], ratio) for s in range(seeds)] for r in range(number)]
    best = max(range(number), key=lambda r: statistics.fmean(chosen_by[r]))
    balanced = shares_of(ratio, "balanced")
    models = range(best * seeds, (best + 1) * seeds)
    cell = cell | {
        "rate": cell["rates"][best],
        "held_out": [[round(one, 4) for one in of_rate] for of_rate in chosen_by],
        "argmax_by_rate": [
            [
                round(value(rows.logits.argmax(1), rows.y, "f1", balanced), 4)
                for rows in test[r * seeds : (r + 1) * seeds]
            ]
            for r in range(number)
        ],
        "values": [judge(held_out[model], test[model], ratio) for model in models],
    }
    path.write_text(json.dumps(cell), encoding="utf-8")
    path.with_suffix(".npz").unlink()
    argmax = statistics.fmean(one["argmax"]["balanced"]["f1"] for one in cell["values"])
    tuned = statistics.fmean(one["offsets"]["balanced"]["f1"] for one in cell["values"])
    seconds = time.perf_counter() - started
    return f"{path.stem}: rate {cell['rate']:g}, balanced F1 {argmax:.3f}, offsets {tuned:.3f}; {seconds:.0f} s"


def train_cell(batches: Batches, ratio: int, kind: str, loss: str, options: argparse.Namespace) -> Logits:
    """Train all seeds and learning rates of a cell."""
    splits = [split_rows(batches.pool_labels, ratio, seed) for seed in range(options.seeds)]
    batches.draw(splits, options.steps, options.batch)
    counts = torch.bincount(batches.pool_labels[splits[0].train], minlength=CLASSES).tolist()
    group = Group(kind, options.rates, options.seeds, batches, cosine=loss.startswith("LDAM"))
    done = 0
    for make, share in stages(loss, counts, batches.device):
        steps = min(round(share * options.steps), options.steps - done)
        group.train([make() for _ in group.models], steps, graph=not options.direct)
        done += steps
    held_out = group.logits([batches.pixels[split.held_out.to(batches.device)] for split in splits])
    return Logits(
        torch.stack(held_out).numpy(),
        torch.stack([batches.pool_labels[split.held_out] for split in splits]).numpy(),
        torch.stack(group.logits([batches.test_pixels] * options.seeds)).numpy(),
        batches.test_labels.numpy(),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cells", type=Path, default=CELLS)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--ratios", nargs="*", type=int, default=RATIOS)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--losses", nargs="*", default=LOSSES, help="also: " + ", ".join(VARIANTS))
    parser.add_argument("--rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--workers", type=int, default=4, help="processes that choose offsets")
    parser.add_argument("--direct", action="store_true", help="without CUDA graphs")
    options = parser.parse_args(arguments)
    options.cells.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        pending: list[Future[str]] = []
        for name in options.sets:
            batches = Batches(name, options.data, device)
            cells = [(r, k, loss) for k in options.networks for r in options.ratios for loss in options.losses]
            for ratio, kind, loss in cells:
                path = options.cells / f"{name}-{ratio}-{kind}-{loss.replace(' ', '_')}.json"
                if path.exists():
                    continue
                started = time.perf_counter()
                if not path.with_suffix(".npz").exists():
                    train_cell(batches, ratio, kind, loss, options).save(path.with_suffix(".npz"))
                    print(f"{path.stem}: trained in {time.perf_counter() - started:.1f} s", flush=True)
                cell = {"set": name, "ratio": ratio, "network": kind, "loss": loss, "rates": list(options.rates)}
                future = pool.submit(measure, path, cell)
                future.add_done_callback(lambda one: print(one.result(), flush=True))
                pending.append(future)
        for future in pending:
            future.result()


if __name__ == "__main__":
    sys.exit(main())
