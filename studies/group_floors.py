"""Recall floors per group and parity on Adult: training counts, held-out counts, thresholds per group, fairlearn.

    python -m studies.group_floors --data ../shared/data --jobs 16   # measure; finished cells are kept
    python -m studies.group_floors --collect                         # cells to results/group_floors.json
    python -m studies.group_floors                                   # write the page's tables and its picture

A cell is a number of training rows, a grouping (sex; race as White, Black and all others) and a split. Half as many
rows as are trained on validate, and all others test. The network is d-64-64-1, trained with cross-entropy by AdamW
1e-3, batches of 256, at most 60 epochs, patience 15. Training under a requirement starts from it, with mu = 1 and the
same settings. Variants have AdamW 3e-3, batches of 1,024, at most 100 epochs and patience 25; one of them trains 100
epochs without validation rows. Requirements: recall of at least 0.85 in every group ("floor"), or recalls of all groups
within 0.05 ("parity"); both with the highest accuracy. fairlearn (any version with ThresholdOptimizer(tol=...);
measured with 0.15.0) is left out if it is not installed. Its ThresholdOptimizer gets the network and the validation
rows, its ExponentiatedGradient a logistic regression and the training and validation rows together; it has no floors.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import time
import warnings
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from metricfit import AugmentedLagrangian, Counts, best_threshold, metrics
from metricfit.constraints import RequirementConstraint
from metricfit.constraints.lagrangian import UpdateOn
from metricfit.curves import InfeasibleError
from metricfit.decide import best_group_thresholds
from metricfit.losses import WeightedBCELoss
from metricfit.train import UnmetRequirementWarning, fit
from studies.common import ROOT
from studies.group_floors_page import FLOOR, GAP, GROUPINGS, PROBLEMS, RESULTS, write_page
from studies.recipes import numbers, standardised

SIZES = (3_000, 10_000, 20_000)
SPLITS = 20
SETTINGS = {"epochs": 60, "batch_size": 256, "lr": 1e-3, "patience": 15, "progress": False}
LARGE_BATCHES = {"epochs": 100, "batch_size": 1024, "lr": 3e-3, "patience": 25, "progress": False}


class Part(NamedTuple):
    """Features, labels and group numbers of some rows."""

    x: Tensor
    y: Tensor
    group: Tensor


class Cell(NamedTuple):
    """What a method gets, and the rows that it is judged on."""

    train: Part
    validation: Part
    test: Part
    groups: int
    seed: int


class Way(NamedTuple):
    """A way to train under a requirement; without validation rows the last epoch counts."""

    update_on: UpdateOn
    mu: float = 1.0
    settings: dict[str, Any] = SETTINGS
    validated: bool = True


WAYS = {"training counts": Way("train"), "held-out counts": Way("held_out")}
VARIANTS = {
    "training counts, no validation rows": Way("train", 1.0, LARGE_BATCHES, validated=False),
    "training counts, batches of 1,024": Way("train", 1.0, LARGE_BATCHES),
    "held-out counts, batches of 1,024": Way("held_out", 1.0, LARGE_BATCHES),
    "training counts, batches of 1,024, mu = 5": Way("train", 5.0, LARGE_BATCHES),
    "held-out counts, batches of 1,024, mu = 5": Way("held_out", 5.0, LARGE_BATCHES),
}


def make_cell(folder: Path, size: int, grouping: str, split: int) -> Cell:
    from metricfit_papers.datasets import load

    x, y = numbers("adult", folder)
    column, names = load("adult", folder).X[grouping], GROUPINGS[grouping]
    group = torch.tensor([names.index(value) if value in names else len(names) - 1 for value in column])
    order = torch.from_numpy(np.random.default_rng(split).permutation(len(y)))
    parts = order[:size], order[size : size + size // 2], order[size + size // 2 :]
    scaled = standardised(x, parts[0])
    return Cell(*(Part(scaled[part], y[part], group[part]) for part in parts), len(names), split)


def network(columns: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(columns, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)]
    return nn.Sequential(*layers)


@torch.no_grad()
def probabilities(model: nn.Module, part: Part) -> Tensor:
    return model(part.x).squeeze(1).sigmoid()


def train(cell: Cell, loss: nn.Module, settings: dict[str, Any], start: nn.Module | None = None) -> nn.Module:
    model = network(cell.train.x.shape[1], cell.seed) if start is None else copy.deepcopy(start)

    def rows(part: Part) -> dict[str, Tensor]:
        group = {"group": part.group} if isinstance(loss, AugmentedLagrangian) else {}
        return {"x": part.x, "y": part.y} | group

    validation = rows(cell.validation) if settings.get("patience") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnmetRequirementWarning)
        return fit(model, rows(cell.train), loss, validation=validation, seed=cell.seed, **settings).model


def requirement(problem: str, groups: int) -> RequirementConstraint:
    if problem == "floor":
        return RequirementConstraint(metrics.recall >= FLOOR, groups=groups)
    return RequirementConstraint(metrics.recall.gap(groups) <= GAP)


def constrained(cell: Cell, start: nn.Module, problem: str, way: Way, quick: bool) -> nn.Module:
    rule = requirement(problem, cell.groups)
    lagrangian = AugmentedLagrangian(WeightedBCELoss(), rule, mu=way.mu, update_on=way.update_on)
    settings = way.settings | ({} if way.validated else {"patience": None}) | ({"epochs": 2} if quick else {})
    return train(cell, lagrangian, settings, start)


def group_thresholds(cell: Cell, model: nn.Module, problem: str) -> Any:
    """One threshold per group, chosen on the validation rows."""
    rule = f"recall >= {FLOOR}" if problem == "floor" else metrics.recall.gap(cell.groups) <= GAP
    scores = probabilities(model, cell.validation)
    found = best_group_thresholds(scores, cell.validation.y, cell.validation.group, "accuracy", rule)
    return lambda part: found.decide(probabilities(model, part), part.group)


def one_threshold(cell: Cell, model: nn.Module) -> Any:
    """The highest threshold that meets the floor in every group of the validation rows."""
    scores, rows = probabilities(model, cell.validation), cell.validation
    threshold = min(
        best_threshold(scores[rows.group == k], rows.y[rows.group == k], "specificity", f"recall >= {FLOOR}").threshold
        for k in range(cell.groups)
    )
    return lambda part: (probabilities(model, part) >= threshold).long()


def at_half(model: nn.Module) -> Any:
    return lambda part: (probabilities(model, part) >= 0.5).long()


class Prefit(ClassifierMixin, BaseEstimator):
    """The network as a fitted scikit-learn classifier, for fairlearn."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.classes_, self.is_fitted_ = model, np.array([0, 1]), True

    def fit(self, x: Any, y: Any) -> Prefit:
        """Do nothing, because the network is trained already."""
        return self

    def predict_proba(self, x: Any) -> Any:
        """Return the probabilities of both classes."""
        with torch.no_grad():
            positive = self.model(torch.as_tensor(np.asarray(x))).squeeze(1).sigmoid().double().numpy()
        return np.stack([1 - positive, positive], 1)

    def predict(self, x: Any) -> Any:
        """Return the decisions at 0.5."""
        return (self.predict_proba(x)[:, 1] >= 0.5).astype(int)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def threshold_optimizer(cell: Cell, model: nn.Module) -> Any:
    from fairlearn.postprocessing import ThresholdOptimizer

    made = ThresholdOptimizer(
        estimator=Prefit(model),
        constraints="true_positive_rate_parity",
        objective="accuracy_score",
        prefit=True,
        predict_method="predict_proba",
        tol=GAP,
    )
    rows = cell.validation
    made.fit(rows.x.numpy(), rows.y.numpy(), sensitive_features=rows.group.numpy())
    return lambda part: torch.from_numpy(
        np.asarray(made.predict(part.x.numpy(), sensitive_features=part.group.numpy(), random_state=cell.seed))
    ).long()


def exponentiated_gradient(cell: Cell) -> Any:
    from fairlearn.reductions import ExponentiatedGradient, TruePositiveRateParity
    from sklearn.linear_model import LogisticRegression

    # The bound is on the distance of a group from all rows, so that half of it keeps two groups within the gap.
    made = ExponentiatedGradient(LogisticRegression(max_iter=300), TruePositiveRateParity(difference_bound=GAP / 2))
    x, y, group = (torch.cat(both).numpy() for both in zip(cell.train, cell.validation, strict=True))
    made.fit(x, y, sensitive_features=group)
    return lambda part: torch.from_numpy(np.asarray(made.predict(part.x.numpy(), random_state=cell.seed))).long()


def judge(decide: Any, cell: Cell) -> dict[str, Any]:
    """Recalls of the groups on all three parts, and accuracy and precision on the test rows."""
    result: dict[str, Any] = {}
    for name, part in (("train", cell.train), ("validation", cell.validation), ("test", cell.test)):
        predicted = decide(part)
        recalls = [
            metrics.recall(Counts.from_labels(predicted[part.group == k], part.y[part.group == k])).item()
            for k in range(cell.groups)
        ]
        counts = Counts.from_labels(predicted, part.y)
        result[name] = {"recalls": [round(value, 5) for value in recalls]}
        for metric in (metrics.accuracy, metrics.precision, metrics.recall):
            result[name][metric.name] = round(metric(counts).item(), 5)
    return result


def measure(folder: Path, data: Path, quick: bool, key: tuple[int, str, int]) -> str:
    """Measure all methods in one cell, and write the result when it is complete."""
    torch.set_num_threads(1)
    size, grouping, split = key
    path = folder / f"{size}-{grouping}-{split}.json"
    if path.exists():
        return f"{path.stem}: kept"
    cell, settings = make_cell(data, size, grouping, split), SETTINGS | ({"epochs": 2} if quick else {})
    has_fairlearn, started = importlib.util.find_spec("fairlearn") is not None, time.perf_counter()
    start = train(cell, WeightedBCELoss(), settings)
    results: dict[str, Any] = {}

    def add(problem: str, method: str, make: Any) -> None:
        began = time.perf_counter()
        try:
            results.setdefault(problem, {})[method] = judge(make(), cell)
            results[problem][method]["seconds"] = round(time.perf_counter() - began, 2)
        except InfeasibleError as error:
            results.setdefault(problem, {})[method] = {"error": str(error)}

    for problem in PROBLEMS:
        add(problem, "cross-entropy at 0.5", lambda: at_half(start))
        add(problem, "thresholds per group", partial(group_thresholds, cell, start, problem))
        for name, way in (WAYS | VARIANTS).items():
            model = constrained(cell, start, problem, way, quick)
            add(problem, name, partial(at_half, model))
            if name in WAYS:
                add(problem, f"{name}, then thresholds per group", partial(group_thresholds, cell, model, problem))
    add("floor", "one threshold", partial(one_threshold, cell, start))
    if has_fairlearn:
        add("parity", "fairlearn ThresholdOptimizer", partial(threshold_optimizer, cell, start))
        add("parity", "fairlearn ExponentiatedGradient", partial(exponentiated_gradient, cell))
    path.write_text(json.dumps(results) + "\n", encoding="utf-8")
    return f"{path.stem}: {time.perf_counter() - started:.0f} s"


def collect(folder: Path, sizes: Sequence[int]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for size in sizes:
        for grouping in GROUPINGS:
            for split in range(SPLITS):
                path = folder / f"{size}-{grouping}-{split}.json"
                if path.exists():
                    cells = results.setdefault(str(size), {}).setdefault(grouping, {})
                    cells[str(split)] = json.loads(path.read_text(encoding="utf-8"))
    return results


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: measure what is not yet measured")
    parser.add_argument("--folder", type=Path, default=Path("runs/group_floors"), help="where finished cells are kept")
    parser.add_argument("--collect", action="store_true", help="write the results from the finished cells")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=ROOT, help="where docs/ is written")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--quick", action="store_true", help="two epochs: does it run?")
    options = parser.parse_args(arguments)
    if options.data is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        keys = [(size, name, split) for split in range(options.splits) for size in options.sizes for name in GROUPINGS]
        work = partial(measure, options.folder, options.data, options.quick)
        if options.jobs == 1:
            for key in keys:
                print(work(key), flush=True)
        else:
            with get_context("spawn").Pool(options.jobs) as pool:
                for line in pool.imap_unordered(work, keys, chunksize=1):
                    print(line, flush=True)
    if options.collect:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(
            json.dumps(collect(options.folder, options.sizes), separators=(",", ":")) + "\n", encoding="utf-8"
        )
    if options.data is None and not options.collect:
        write_page(json.loads(options.results.read_text(encoding="utf-8")), options.out)


if __name__ == "__main__":
    main()
