"""The best precision with recall at least 0.9: trained for, or by a threshold? Mammography and Adult, ten splits.

    python -m studies.requirement --data ../shared/data     # measure, and write the page's tables
    python -m studies.requirement                           # write the tables from what was measured

Each split is 64 % training, 16 % validation, 20 % test, stratified, all copies of a row on one side. MLP d-128-128-1,
dropout 0.2, AdamW 1e-3, at most 150 epochs a stage, patience 30. Both ways choose the threshold on the validation set:
the highest precision with recall at least 0.9.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metricfit import metrics
from metricfit.core.counts import Counts
from metricfit.curves import best_threshold
from metricfit.train import Stage
from metricfit.train import recipes as ready
from metricfit.train.data.batches import derive_seed
from metricfit_papers.models import study_mlp
from metricfit_papers.populations import fit_population
from studies.common import fill, table
from studies.recipes import numbers, standardised

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "requirement.json"
PAGE = HERE.parent / "docs" / "evidence" / "requirements.md"
TABLES = ("mammography", "adult")
SPLITS, RECALL = 10, 0.9
REQUIREMENT = f"recall >= {RECALL}"


def ways() -> dict[str, list[Stage]]:
    """What is compared: cross-entropy alone, and then under the requirement."""
    return {
        "bce": ready.bce(monitor="loss"),
        "constrained": ready.constrained("precision", REQUIREMENT),
    }


Packed = tuple[Tensor, Tensor, list[list[Tensor]]]


def packed(name: str, folder: Path) -> Packed:
    """A table as numbers, its labels, and the rows of each split's three parts."""
    from metricfit.data import split
    from metricfit_papers.datasets import load

    table = load(name, folder)
    parts = [[torch.as_tensor(part) for part in split(table.X, table.y, seed=at)] for at in range(SPLITS)]
    return *numbers(name, folder), parts


class Splits:
    """Ten splits of a table, each standardised on its own training part."""

    def __init__(self, x: Tensor, y: Tensor, parts: list[list[Tensor]]) -> None:
        self.y, self.parts = y, parts
        self.inputs = [standardised(x, of_split[0]) for of_split in parts]

    def groups(self) -> Iterator[list[int]]:
        """Splits with as many columns, to be trained as one population."""
        widths = [given.shape[1] for given in self.inputs]
        for width in sorted(set(widths)):
            yield [at for at, each in enumerate(widths) if each == width]


def train(splits: Splits, group: list[int], stages: list[Stage], **settings: Any) -> list[nn.Module]:
    """The models of a group of splits, as one population."""
    n = len(splits.y)
    models = []
    for at in group:
        torch.manual_seed(derive_seed("weights", at))
        models.append(study_mlp(splits.inputs[at].shape[1]))
    x, y = torch.cat([splits.inputs[at] for at in group]), splits.y.repeat(len(group))
    parts = [(splits.parts[at][0] + k * n, splits.parts[at][1] + k * n) for k, at in enumerate(group)]
    usual = {"epochs": 150, "patience": 30, "lr": 1e-3, "progress": False}
    fit_population(
        models,
        (x, y),
        stages,
        splits=parts,
        seeds=list(group),
        optimizer=functools.partial(torch.optim.AdamW, weight_decay=1e-4),
        **(usual | settings),
    )
    return models


@torch.no_grad()
def scored(model: nn.Module, x: Tensor, y: Tensor, parts: list[Tensor]) -> dict[str, float]:
    """Test precision and recall at the threshold chosen on the validation set, and at 0.5."""
    device = next(model.parameters()).device
    validation, test = (model(x[part].to(device)).squeeze(1).cpu() for part in parts[1:])
    found = best_threshold(validation.sigmoid(), y[parts[1]], "precision", subject_to=REQUIREMENT)
    counts = Counts.hard(test, y[parts[2]], threshold=found.threshold)
    half = Counts.hard(test, y[parts[2]])
    positives = [int(y[part].sum()) for part in parts[1:]]
    return {
        "precision": metrics.precision(counts).item(),
        "recall": metrics.recall(counts).item(),
        "precision_half": metrics.precision(half).item(),
        "recall_half": metrics.recall(half).item(),
        "validation_precision": found.value,
        "allowed": RECALL - 2 * math.sqrt(RECALL * (1 - RECALL) * sum(1 / each for each in positives)),
    }


def measure(splits: Splits, **settings: Any) -> dict[str, list[dict[str, float]]]:
    """Every split's scores, by way of training."""
    found: dict[str, list[Any]] = {way: [None] * SPLITS for way in ways()}
    for group in splits.groups():
        for way, stages in ways().items():
            models = train(splits, group, stages, **settings)
            for model, at in zip(models, group, strict=True):
                found[way][at] = scored(model, splits.inputs[at], splits.y, splits.parts[at])
    return found


def write_page() -> None:
    """Fill in the page's table."""
    found = json.loads(RESULTS.read_text())
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), {"requirement": compared(found)}), encoding="utf-8")


def compared(found: dict[str, Any]) -> str:
    """Precision and recall of both ways, how often the recall held, and the paired difference in precision."""
    from metricfit.stats import compare_splits

    rows = []
    for name, ways in found.items():
        for way, title in (("bce", "cross-entropy, threshold"), ("constrained", "trained under the requirement")):
            of = ways[way]
            held = sum(row["recall"] >= row["allowed"] for row in of)
            numbers = [f"{sum(row[key] for row in of) / len(of):.3f}" for key in ("precision", "recall")]
            versus = ""
            if way == "constrained":
                both = ([row["precision"] for row in ways[each]] for each in ("constrained", "bce"))
                found_difference = compare_splits(*both, test_fraction=0.2)
                low, high = found_difference.interval
                versus = f"{found_difference.difference:+.3f} ({low:+.3f} to {high:+.3f})"
            rows.append([name, title, *numbers, f"{held} of {len(of)}", versus])
    head = ["table", "way", "test precision", "test recall", "recall held", "difference in precision (95 %)"]
    return table(head, rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets")
    parser.add_argument("--cache", type=Path, help="tables as numbers: written by --pack, read without")
    parser.add_argument("--pack", action="store_true", help="only write the cache, for a machine without pandas")
    parser.add_argument("--only", nargs="*", default=TABLES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.pack:
        torch.save({name: packed(name, given.data) for name in TABLES}, given.cache)
        return
    if given.data is not None or given.cache is not None:
        cache = torch.load(given.cache, weights_only=True) if given.cache else {}
        done = json.loads(given.results.read_text()) if given.results.exists() else {}
        for name in given.only:
            done[name] = measure(Splits(*(cache[name] if name in cache else packed(name, given.data))))
            given.results.parent.mkdir(parents=True, exist_ok=True)
            given.results.write_text(json.dumps(done, indent=1))
    if given.results == RESULTS:
        write_page()


if __name__ == "__main__":
    main()
