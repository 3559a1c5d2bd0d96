"""Losses and decisions for segmentation: CamVid and membrane slices with a small U-Net.

    python -m studies.segmentation --measure camvid --images FOLDER --cells camvid.jsonl      # needs a GPU
    python -m studies.segmentation --measure membrane --images FOLDER --cells membrane.jsonl  # needs a GPU
    python -m studies.segmentation_page camvid.jsonl membrane.jsonl  # the results, the page and the picture

FOLDER holds ``camvid/{train,val,test}`` and ``membrane``. Every loss gets the same network, batches, number of steps
and learning rates to choose from. Rates, thresholds, offsets and calibrations are chosen on validation images; test
images are scored once, with what was chosen. Finished cells are not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from studies.segmentation_data import MEMBRANE_FOLDS, Images, Split, read_camvid, read_membrane
from studies.segmentation_scores import METRICS, Scored, decisions, exact_gap, validation_value
from studies.segmentation_training import LOSSES, Training, train_side_by_side

RATES = (1e-3, 3e-3, 1e-2)
SEEDS = 5


@dataclass(frozen=True)
class Plan:
    """How long and how wide.

    Attributes:
        width: Channels of the first level of the U-Net.
        steps: Training steps.
        batch: Images per step.
        seeds: Repetitions: seeds of CamVid, folds of the membrane slices.
    """

    width: int
    steps: int
    batch: int
    seeds: int


PLANS = {"camvid": Plan(24, 2400, 8, SEEDS), "membrane": Plan(24, 1200, 4, MEMBRANE_FOLDS)}


class Cells:
    """The finished cells, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.done: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def add(self, cell: dict[str, Any]) -> None:
        """Write a finished cell."""
        self.done.append(cell)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell) + "\n")

    def of_seed(self, seed: int) -> list[dict[str, Any]]:
        """Return the finished cells of a seed."""
        return [cell for cell in self.done if cell["seed"] == seed]

    def rate(self, loss: str) -> float:
        """The rate that was chosen with the first seed."""
        return next(cell["rate"] for cell in self.of_seed(0) if cell["loss"] == loss)


def read_split(name: str, folder: Path, seed: int, device: torch.device) -> Split:
    """Return the problem of a seed; the membrane slices have another one for each fold."""
    return read_camvid(folder, device) if name == "camvid" else read_membrane(folder, seed, device)


def made_up_split(name: str, seed: int) -> Split:
    """Return a tiny problem in which the class of a pixel follows from its brightness."""
    random = torch.Generator().manual_seed(seed)
    classes, channels = (11, 3) if name == "camvid" else (1, 1)
    parts = []
    for count in (6, 3, 4):
        labels = torch.randint(classes + 1, (count, 4, 5), generator=random).repeat_interleave(12, 1)
        labels = labels.repeat_interleave(12, 2).to(torch.uint8)
        noise = torch.randint(20, (*labels.shape, channels), generator=random)
        parts.append(Images((20 * labels[..., None] + noise).to(torch.uint8), labels))
    return Split(*parts, classes=classes, crop=(32, 32))


def measure(
    name: str, plan: Plan, cells: Cells, split_of: Callable[[int], Split], seconds: float, log: Callable[[str], None]
) -> None:
    """Run the cells that are not done, seed by seed, as long as the time allows another group of losses."""
    start = time.monotonic()
    training_takes = scoring_takes = 0.0
    for seed in range(plan.seeds):
        if cells.of_seed(seed):
            continue
        split = split_of(seed)
        chooses = seed == 0
        groups = len(RATES) if chooses else 1
        if training_takes and time.monotonic() - start + groups * training_takes + scoring_takes > seconds:
            log(f"{name}: seed {seed} does not fit any more")
            return
        candidates: dict[str, list[tuple[float, Training]]] = {}
        for number in range(groups):
            began = time.monotonic()
            rate_of = {loss: RATES[number] if chooses else cells.rate(loss) for loss in LOSSES}
            for training in _trained(split, rate_of, seed, plan, log):
                validation = Scored.of(training.logits(split.validation), split.validation.labels)
                candidates.setdefault(training.name, []).append((validation_value(validation), training))
            training_takes = time.monotonic() - began
            log(f"{name} seed {seed} group {number}: {training_takes:.1f} s")
        began = time.monotonic()
        finished = [_score(name, split, found, log) for found in candidates.values()]
        scoring_takes = time.monotonic() - began
        for cell in finished:  # together, because a seed counts only with all losses
            cells.add(cell)


def _score(name: str, split: Split, found: list[tuple[float, Training]], log: Callable[[str], None]) -> dict[str, Any]:
    """Score the network with the best validation value on the test images, once."""
    began = time.monotonic()
    best, training = max(found, key=lambda pair: pair[0])
    validation, test = (Scored.of(training.logits(images), images.labels) for images in (split.validation, split.test))
    cell = {
        "set": name,
        "loss": training.name,
        "seed": training.seed,
        "rate": training.rate,
        "steps": training.steps,
        "validation": best,
        "rates": {str(each.rate): round(score, 5) for score, each in found},
        "scores": decisions(validation, test),
    }
    if training.name == "cross-entropy" and name == "membrane":
        side = split.test.labels.shape[1]
        cell["exact gap"] = {metric: exact_gap(test, metric, side) for metric in METRICS}
    log(f"  {training.name}: rate {training.rate:g}, validation {best:.4f}, {time.monotonic() - began:.1f} s")
    return cell


def _trained(
    split: Split, rate_of: dict[str, float], seed: int, plan: Plan, log: Callable[[str], None]
) -> Iterator[Training]:
    trainings = [
        Training(split, loss, rate, seed, width=plan.width, steps=plan.steps, batch=plan.batch)
        for loss, rate in rate_of.items()
    ]
    train_side_by_side(trainings, log)
    yield from trainings


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", choices=list(PLANS), required=True)
    parser.add_argument("--images", type=Path, help="folder with the images")
    parser.add_argument("--cells", type=Path, help="file of finished cells, which is continued")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no group that would end later")
    parser.add_argument("--steps", type=int, help="training steps")
    parser.add_argument("--quick", action="store_true", help="a tiny version on made-up images: does it run?")
    given = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    plan = Plan(4, 2, 2, 2) if given.quick else PLANS[given.measure]
    if given.steps:
        plan = Plan(plan.width, given.steps, plan.batch, plan.seeds)
    splits: dict[int, Split] = {}

    def split_of(seed: int) -> Split:
        number = 0 if given.measure == "camvid" else seed
        if number not in splits and given.quick:
            splits[number] = made_up_split(given.measure, number)
        elif number not in splits:
            splits[number] = read_split(given.measure, given.images, number, device)
        return splits[number]

    began = time.monotonic()

    def log(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} {text}", flush=True)

    measure(given.measure, plan, Cells(given.cells), split_of, given.seconds, log)


if __name__ == "__main__":
    main()
