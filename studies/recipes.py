"""Which recipe? Nineteen tables, twenty splits, eight out-of-fold members, four ways to train, and boosted trees.

    python -m studies.recipes --data ../shared/data            # on a GPU if there is one; finished tables are kept
    python -m studies.recipes --data ../shared/data --trees    # the trees' row too (needs lightgbm)
    python -m studies.recipes                                  # write the page's tables from what was measured

MLP d-128-128-1, dropout 0.2, AdamW 1e-3 (second stage 3e-4), weight decay 1e-4, batch min(1024, n), at most
min(500, 2500 / steps an epoch) and at least 40 epochs, patience a sixth of that on the validation loss, best weights
kept. The 80 members of ten splits are trained as one population.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.core.counts import Counts
from metricfit.curves import best_threshold
from metricfit.losses import MetricLoss, Mix, WeightedBCELoss
from metricfit.metrics import f1
from metricfit.train import FitResult, Stage
from metricfit.train.data.batches import derive_seed
from metricfit_papers.folds import stratified_folds
from metricfit_papers.models import study_mlp
from metricfit_papers.populations import fit_population
from studies.common import fill, table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "recipes.json"
PAGE = HERE.parent / "docs" / "evidence" / "losses.md"
SPLITS, AT_ONCE, MEMBERS, CLIP = 20, 10, 8, 5.0

#: The published figures: mean F1 at 0.5 and tuned on out-of-fold scores, as this project's first study gave them.
BEFORE = {
    "bce": (0.542, 0.652),
    "mix": (0.631, 0.657),
    "two_stage": (0.651, 0.659),
    "metric": (0.649, 0.649),
    "trees": (None, 0.659),
}
NAMES = {
    "bce": "cross-entropy",
    "mix": "cross-entropy + 0.5 (1 - soft F1)",
    "two_stage": "cross-entropy, then soft F1",
    "metric": "soft F1 alone",
    "trees": "LightGBM",
}


def numbers(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    """A table as numbers: text columns as 0/1 columns, missing numbers as NaN; and its labels."""
    import pandas as pd

    from metricfit_papers.datasets import load

    table = load(name, folder)
    text = [column for column in table.X.columns if not pd.api.types.is_numeric_dtype(table.X[column])]
    frame = pd.get_dummies(table.X, columns=text, dtype=float)
    return torch.tensor(frame.to_numpy(dtype="float64")).float(), torch.as_tensor(table.y).long()


def standardised(x: Tensor, train: Tensor) -> Tensor:
    """Standardised on the training rows and clipped; columns constant there dropped, missing numbers at the mean."""
    known = x[train].double()
    varies = (known.nan_to_num(-math.inf).amax(0) > known.nan_to_num(math.inf).amin(0)).logical_and(
        ~known.isnan().all(0)
    )
    known, every = known[:, varies], x[:, varies].double()
    mean = known.nanmean(0)
    deviation = (known - mean).square().nanmean(0).sqrt()
    return ((every - mean) / deviation).nan_to_num(0.0).clamp(-CLIP, CLIP).float()


def splits_of(y: Tensor, first: int) -> list[tuple[Tensor, Tensor]]:
    """Ten stratified 80/20 splits, from a number on."""
    return [stratified_folds(y, 5, derive_seed("split", at))[0] for at in range(first, first + AT_ONCE)]


def settings(samples: int) -> dict[str, Any]:
    """Batch size, epochs and patience for so many training samples."""
    batch = min(1024, samples)
    steps = -(-samples // batch)
    epochs = max(40, min(500, 2500 // steps))
    return {"batch_size": batch, "epochs": epochs, "patience": max(1, epochs // 6)}


class Cells:
    """The 80 members of a table: eight folds of each of ten splits, grouped where columns differ between splits."""

    def __init__(self, x: Tensor, y: Tensor, first: int = 0) -> None:
        self.y = y
        self.inputs, self.folds = [], []
        self.splits = splits_of(y, first)
        for at, (train, _) in enumerate(self.splits):
            self.inputs.append(standardised(x, train))
            inner = stratified_folds(y[train], MEMBERS, derive_seed("folds", first + at))
            self.folds.append([(train[inside], train[outside]) for inside, outside in inner])

    def groups(self) -> Iterator[list[int]]:
        """Splits whose tables have as many columns, to be trained together."""
        widths = [given.shape[1] for given in self.inputs]
        for width in sorted(set(widths)):
            yield [at for at, each in enumerate(widths) if each == width]


def train(
    cells: Cells, group: list[int], models: list[nn.Module], loss: nn.Module, lr: float, **where: Any
) -> list[FitResult]:
    """All members of a group of splits, as one population."""
    n = len(cells.y)
    x, y = torch.cat([cells.inputs[at] for at in group]), cells.y.repeat(len(group))
    parts = [(a + k * n, b + k * n) for k, at in enumerate(group) for a, b in cells.folds[at]]
    seeds = [derive_seed("member", at, fold) for at in group for fold in range(MEMBERS)]
    return fit_population(
        models,
        (x, y),
        Stage(loss),
        splits=parts,
        seeds=seeds,
        lr=lr,
        optimizer=functools.partial(torch.optim.AdamW, weight_decay=1e-4),
        start_at_prior=False,
        progress=False,
        **settings(len(parts[0][0])),
        **where,
    )


@torch.no_grad()
def scored(cells: Cells, at: int, members: list[nn.Module]) -> dict[str, float]:
    """Test F1 at 0.5 and at the best threshold on the out-of-fold probabilities."""
    x, y = cells.inputs[at], cells.y
    rows, test = cells.splits[at]
    out = torch.empty(len(y))
    device = next(members[0].parameters()).device
    for model, (_, held_out) in zip(members, cells.folds[at], strict=True):
        out[held_out] = model.eval()(x[held_out].to(device)).squeeze(1).cpu()
    logits = torch.stack([model(x[test].to(device)).squeeze(1).cpu() for model in members]).mean(0)
    return f1_of(out[rows].double(), y[rows], logits.double(), y[test])


def f1_of(out: Tensor, y: Tensor, test: Tensor, y_test: Tensor) -> dict[str, float]:
    """F1 at 0.5, tuned on out-of-fold logits."""
    threshold = best_threshold(out.sigmoid(), y, "f1").threshold
    return {
        "half": f1(Counts.hard(test, y_test)).item(),
        "tuned": f1(Counts.hard(test, y_test, threshold=threshold)).item(),
    }


def networks(cells: Cells, **where: Any) -> dict[str, list[dict[str, float]]]:
    """The four networks' scores, one a split."""
    found: dict[str, list[Any]] = {name: [None] * AT_ONCE for name in ("bce", "mix", "two_stage", "metric")}
    losses: dict[str, Callable[[], nn.Module]] = {
        "bce": WeightedBCELoss,
        "mix": lambda: Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5)),
        "metric": lambda: MetricLoss("f1"),
    }
    for group in cells.groups():
        width = cells.inputs[group[0]].shape[1]

        def fresh(group: list[int] = group, width: int = width) -> list[nn.Module]:
            made = []
            for at in group:
                for fold in range(MEMBERS):
                    torch.manual_seed(derive_seed("weights", at, fold))
                    made.append(study_mlp(width))
            return made

        for name, loss in losses.items():
            models = fresh()
            train(cells, group, models, loss(), 1e-3, **where)
            note(cells, group, models, found[name])
            if name == "bce":
                train(cells, group, models, MetricLoss("f1"), 3e-4, **where)
                note(cells, group, models, found["two_stage"])
    return found


def note(cells: Cells, group: list[int], models: list[nn.Module], into: list[Any]) -> None:
    """Each split's scores, of its eight members."""
    for k, at in enumerate(group):
        into[at] = scored(cells, at, models[k * MEMBERS : (k + 1) * MEMBERS])


def trees(cells: Cells) -> list[dict[str, float]]:
    """Boosted trees on the same folds, stopped on the eighth, scores averaged before the sigmoid."""
    import lightgbm

    found = []
    for at, (rows, test) in enumerate(cells.splits):
        x, y = cells.inputs[at].numpy(), cells.y.numpy()
        out, total = torch.empty(len(y), dtype=torch.float64), torch.zeros(len(test), dtype=torch.float64)
        for inside, held_out in cells.folds[at]:
            model = lightgbm.LGBMClassifier(
                n_estimators=1000, learning_rate=0.05, verbose=-1, n_jobs=1, random_state=at
            )
            stop = lightgbm.early_stopping(50, verbose=False)
            model.fit(x[inside], y[inside], eval_X=x[held_out], eval_y=y[held_out], callbacks=[stop])
            out[held_out] = torch.as_tensor(model.predict(x[held_out], raw_score=True))
            total += torch.as_tensor(model.predict(x[test], raw_score=True)) / MEMBERS
        found.append(f1_of(out[rows], cells.y[rows], total, cells.y[test]))
    return found


def measure(
    data: Path | None, cache: Path | None, with_trees: bool, only: list[str] | None, results: Path, **settings: Any
) -> None:
    """Every table that has no results yet, written down one by one."""
    from_cache = torch.load(cache, weights_only=True) if cache is not None else {}
    done = json.loads(results.read_text()) if results.exists() else {}
    for name in only or list(from_cache) or study_names():
        wanted = {"bce", "trees"} if with_trees else {"bce"}
        if wanted <= done.get(name, {}).keys():
            continue
        began = time.perf_counter()
        x, y = from_cache[name] if name in from_cache else numbers(name, data or Path())
        parts = [Cells(x, y, first) for first in range(0, SPLITS, AT_ONCE)]
        found = done.setdefault(name, {})
        if "bce" not in found:
            several = [networks(cells, **settings) for cells in parts]
            found |= {key: [row for each in several for row in each[key]] for key in several[0]}
        if with_trees and "trees" not in found:
            found["trees"] = [row for cells in parts for row in trees(cells)]
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(done, indent=1))
        line = ", ".join(f"{key} {mean(found[key], 'tuned'):.3f}" for key in found)
        print(
            f"{name}: {len(y)} rows, {int(y.sum())} positives, {time.perf_counter() - began:.0f} s; {line}", flush=True
        )


def study_names() -> list[str]:
    from metricfit_papers.datasets import STUDY

    return list(STUDY)


def mean(rows: list[dict[str, float]], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets")
    parser.add_argument("--cache", type=Path, help="tables as numbers: read if there, else written, by --pack")
    parser.add_argument("--pack", action="store_true", help="only write the cache, for a machine without pandas")
    parser.add_argument("--trees", action="store_true", help="boosted trees too")
    parser.add_argument("--only", nargs="*", help="these tables alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.pack:
        torch.save({name: numbers(name, given.data) for name in study_names()}, given.cache)
        return
    if given.data is not None or given.cache is not None:
        measure(given.data, given.cache, given.trees, given.only, given.results)
    if given.results == RESULTS:
        write_page()


def write_page() -> None:
    """Fill in the page's tables."""
    found = json.loads(RESULTS.read_text())
    parts = {"means": means(found), "tables": tables(found)}
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


def means(found: dict[str, Any]) -> str:
    """The mean over tables of each way's F1, its standard error over splits, the first study's, and the comparison."""
    from metricfit.stats import compare

    rows = []
    tuned_bce = [mean(of_table["bce"], "tuned") for of_table in found.values()]
    for way, name in NAMES.items():
        cells = [name]
        for key, before in zip(("half", "tuned"), BEFORE[way], strict=True):
            of_split = [statistics.fmean(of_table[way][at][key] for of_table in found.values()) for at in range(SPLITS)]
            error = statistics.stdev(of_split) / math.sqrt(SPLITS)
            cells += [f"{statistics.fmean(of_split):.3f} ± {error:.3f}", "" if before is None else f"{before:.3f}"]
        versus = compare([mean(of_table[way], "tuned") for of_table in found.values()], tuned_bce)
        same = f"{versus.wins} wins, {versus.losses} losses, p = {versus.p_value:.2f}"
        rows.append([*cells, "" if way == "bce" else same])
    head = ["trained with", "F1 at 0.5", "first study", "F1, tuned", "first study", "against tuned cross-entropy"]
    return table(head, rows)


def tables(found: dict[str, Any]) -> str:
    """Each table's tuned F1, the best in bold."""
    rows = []
    for name in sorted(found):
        values = {way: mean(found[name][way], "tuned") for way in NAMES}
        best = f"{max(values.values()):.3f}"
        shown = [f"{value:.3f}" for value in values.values()]
        rows.append([name, *(f"**{value}**" if value == best else value for value in shown)])
    return table(["table", *NAMES.values()], rows)


if __name__ == "__main__":
    main()
