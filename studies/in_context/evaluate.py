"""The yardstick of the in-context classifier: real tables, the same folds for every learner.

    python -m studies.in_context.evaluate families --data ../shared/data --cells runs/in_context
    python -m studies.in_context.evaluate tabpfn   --cells runs/in_context --tabpfn FOLDER
    python -m studies.in_context.cells             --cells runs/in_context
    python -m studies.in_context.evaluate judge    --cells runs/in_context
    python -m studies.in_context.evaluate page

A cell is one split of one study table: at most 1,000 stratified training rows and at most 1,500 test rows. ``families``
makes the cells and fits the default's five families on eight folds. ``tabpfn`` and ``cells`` add a learner that
reads the training rows as context: once per fold for held-out logits, and once with all training rows for test logits.
``judge`` calibrates each learner on its held-out logits, and measures it alone and with the five families. ``page``
writes the tables of docs/evidence/tables.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.curves import auroc
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.rules import choose_threshold
from metricfit.metrics import get_metric
from metricfit.stats import compare
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import SMALLEST_WEIGHT, Selection
from metricfit.tabular.families.choice import DEFAULT, make_families
from metricfit.tabular.families.family import Deadline, Features, TrainingRows
from metricfit.tabular.out_of_fold import fit_families
from metricfit.tabular.row_folds import stratified_folds
from metricfit_papers.datasets import STUDY, load
from studies.common import DOCS, fill, table
from studies.in_context.cells import Learner, fit_learner, read_cell, write_arrays

Floats = NDArray[np.float64]
METRICS = ("f1", "mcc", "fbeta(beta=2)", "gmean", "cost(fp=1, fn=10)")
TRAINING_ROWS, TEST_ROWS, FOLDS = 1000, 1500, 8
#: Splits that may be looked at while choices are made; the other splits are reported.
SPLITS_FOR_CHOICES = (0, 1)
SPLITS = (0, 1, 2, 3)
FAMILIES = "five families"
RESULTS = Path(__file__).with_name("results") / "yardstick.json"
PAGE = DOCS / "evidence" / "tables.md"
#: How the page calls the learners that read the training rows as context.
TITLES = {
    "tabpfn": "TabPFN v1, two configurations",
    "in_context": "our network",
    "in_context_4": "our network, mean of four",
    "in_context_965": "our network after 965 s of training",
}


def make_cell(x: Floats, y: NDArray[np.int64], split: int) -> dict[str, NDArray[Any]]:
    """Draw training rows, test rows and folds.

    Args:
        x: The columns; NaN is missing.
        y: Labels 0 and 1.
        split: Seed of the draw.

    Returns:
        ``x``, ``y`` and the ``fold`` of each training row, ``x_test`` and ``y_test``.
    """
    rng = np.random.default_rng([split, len(y)])
    size = min(TRAINING_ROWS, int(0.8 * len(y)))
    training: list[NDArray[np.int64]] = []
    test: list[NDArray[np.int64]] = []
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        taken = round(size * len(rows) / len(y))
        training.append(rows[:taken])
        test.append(rows[taken : taken + round(TEST_ROWS * len(rows) / len(y))])
    a, b = rng.permutation(np.concatenate(training)), rng.permutation(np.concatenate(test))
    rows_of_cell = TrainingRows(Features(TableEncoder().fit(x[a])), y[a], None, 2)
    fold = np.zeros(len(a), dtype=np.int64)
    for number, (_, held_out) in enumerate(stratified_folds(rows_of_cell, FOLDS, None, split)):
        fold[held_out] = number
    return {"x": x[a], "y": y[a], "fold": fold, "x_test": x[b], "y_test": y[b]}


def fit_default(cell: dict[str, NDArray[Any]], seed: int) -> dict[str, NDArray[Any]]:
    """Fit the default's families on the folds of a cell, and return their held-out and test logits."""
    encoder = TableEncoder()
    rows = TrainingRows(Features(encoder.fit(cell["x"])), cell["y"], None, 2)
    metric, device = get_metric("f1"), torch.device("cpu")
    families = make_families(DEFAULT, metric=metric, average="macro", requirements=(), device=device)
    numbers = range(int(cell["fold"].max()) + 1)
    splits = [(np.flatnonzero(cell["fold"] != number), np.flatnonzero(cell["fold"] == number)) for number in numbers]
    results, _ = fit_families(families, rows, splits, seed=seed, jobs=1, deadline=Deadline())
    new = Features(encoder.transform(cell["x_test"]))
    logits = {f"{result.name}|held_out": result.logits[:, 0] for result in results}
    return logits | {f"{result.name}|test": result.model.logits(new)[:, 0] for result in results}


def tabpfn_learner(folder: Path) -> Learner:
    """Return TabPFN v1 with two configurations.

    Args:
        folder: Where a module ``tabpfn_v1`` imports the package and its weights; README.md says how to get them.
    """
    sys.path.insert(0, str(folder))
    classifier = importlib.import_module("tabpfn_v1").I.TabPFNClassifier

    def logits(x: Floats, y: NDArray[np.int64], new: Floats) -> Floats:
        varies = x.std(0) > 0
        model = classifier(N_ensemble_configurations=2)
        probabilities = model.fit(x[:, varies], y).predict_proba(new[:, varies])[:, 1].astype(float)
        clipped = np.clip(probabilities, 1e-7, 1 - 1e-7)
        return np.asarray(np.log(clipped / (1 - clipped)))

    return logits


class Cell:
    """The calibrated logits of one cell, and what is measured on them."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self.y, self.y_test = (torch.as_tensor(arrays[key], dtype=torch.long) for key in ("y", "y_test"))
        self.held_out: dict[str, Tensor] = {}
        self.test: dict[str, Tensor] = {}
        for name in (key.split("|")[0] for key in arrays if key.endswith("|test")):
            raw = torch.as_tensor(arrays[f"{name}|held_out"]).double()[:, None]
            calibration = fit_calibration(raw, self.y, None)
            self.held_out[name] = calibration(raw)
            self.test[name] = calibration(torch.as_tensor(arrays[f"{name}|test"]).double()[:, None])

    def alone(self, name: str) -> dict[str, float]:
        """Return a learner's log-loss and AUROC on the test rows."""
        logits = self.test[name].squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, self.y_test.double())
        return {"log_loss": float(loss), "auroc": float(auroc(logits, self.y_test))}

    def together(self, names: Sequence[str], metric_name: str) -> float:
        """Return the metric on the test rows: weights half by log-loss and half by the metric, and the plug-in rule."""
        metric = get_metric(metric_name)
        shares = Selection(self.y, None, metric, "macro").weights([self.held_out[name] for name in names])
        shares = shares * (shares >= SMALLEST_WEIGHT)
        shares = shares / shares.sum()
        mixture, new = (
            sum(share * logits[name] for share, name in zip(shares, names, strict=True))
            for logits in (self.held_out, self.test)
        )
        calibration = fit_calibration(mixture, self.y, None)
        threshold = choose_threshold(calibration(mixture).squeeze(1), self.y, None, metric, rule="plugin").threshold
        decided = (calibration(new).squeeze(1) >= threshold).long()
        return metric(Counts.from_labels(decided, self.y_test)).item()


def judge_cell(arrays: dict[str, NDArray[Any]], learners: Sequence[str]) -> dict[str, Any]:
    """Measure every learner alone, and the five families without and with each of the learners."""
    cell = Cell(arrays)
    families = [name for name in cell.test if name not in learners]
    ensembles = {FAMILIES: families, **{f"with {name}": [*families, name] for name in learners}}
    return {
        "alone": {name: cell.alone(name) for name in cell.test},
        "together": {
            metric: {name: cell.together(members, metric) for name, members in ensembles.items()} for metric in METRICS
        },
    }


def summarise(results: dict[str, dict[str, Any]], splits: Sequence[int]) -> dict[str, Any]:
    """Average over splits, then over tables, and compare ensembles over tables.

    Args:
        results: For each ``table-split``, what ``judge_cell`` returned.
        splits: The splits to average over.

    Returns:
        Means of each learner alone, and of each ensemble by metric; for each learner the gain of adding it, with the
        tables won and lost, and Wilcoxon's p.
    """
    cells = {name: cell for name, cell in results.items() if int(name.rsplit("-", 1)[1]) in splits}
    tables = sorted({name.rsplit("-", 1)[0] for name in cells})

    def means(pick: Callable[[dict[str, Any]], float]) -> list[float]:
        return [
            statistics.fmean(pick(cell) for name, cell in cells.items() if name.rsplit("-", 1)[0] == table)
            for table in tables
        ]

    first = next(iter(cells.values()))
    alone = {
        name: {key: round(statistics.fmean(means(lambda c: c["alone"][name][key])), 4) for key in first["alone"][name]}  # noqa: B023
        for name in first["alone"]
    }
    together: dict[str, Any] = {}
    for metric, ensembles in first["together"].items():
        sign = -1 if get_metric(metric).minimize else 1
        values = {name: means(lambda c: c["together"][metric][name]) for name in ensembles}  # noqa: B023
        together[metric] = {name: {"mean": round(statistics.fmean(values[name]), 4)} for name in ensembles}
        for name in ensembles:
            if name != FAMILIES:
                outcome = compare([sign * v for v in values[name]], [sign * v for v in values[FAMILIES]])
                together[metric][name] |= {
                    "won": outcome.wins,
                    "lost": outcome.losses,
                    "p": round(float(outcome.p_value), 3),
                }
    return {"splits": list(splits), "tables": tables, "alone": alone, "together": together}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("families", "tabpfn", "judge", "page"))
    parser.add_argument("--data", type=Path, help="the folder with the datasets, for the stage families")
    parser.add_argument("--cells", type=Path, default=Path("runs/in_context"), help="where logits are kept")
    parser.add_argument("--tabpfn", type=Path, help="the folder of tabpfn_v1.py, for the stage tabpfn")
    parser.add_argument("--learners", nargs="*", default=["tabpfn", "in_context"], help="learners to judge")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", nargs="*", default=list(STUDY))
    parser.add_argument("--splits", nargs="*", type=int, default=list(SPLITS))
    return parser.parse_args(arguments)


def _fit_stage(options: argparse.Namespace) -> None:
    learner = tabpfn_learner(options.tabpfn) if options.stage == "tabpfn" else None
    for split in options.splits:
        for name in options.tables:
            start, path = time.perf_counter(), options.cells / f"{name}-{split}.npz"
            if learner is None and not path.exists():
                rows = load(name, options.data)
                cell = make_cell(rows.X.to_numpy(float), np.asarray(rows.y, dtype=np.int64), split)
                write_arrays(path, cell | fit_default(cell, split))
            elif learner is not None and path.exists():
                target = path.with_suffix(".tabpfn.npz")
                if not target.exists():
                    write_arrays(target, fit_learner(dict(np.load(path)), learner, "tabpfn"))
            print(f"{options.stage} {name} {split}: {time.perf_counter() - start:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one stage."""
    options = _parse(arguments)
    torch.set_num_threads(1)
    if options.stage == "page":
        write_page(options.results)
        return
    options.cells.mkdir(parents=True, exist_ok=True)
    if options.stage != "judge":
        _fit_stage(options)
        return
    names = [f"{table}-{split}" for table in options.tables for split in options.splits]
    read = {name: read_cell(options.cells, name, options.learners) for name in names}
    results = {name: judge_cell(cell, options.learners) for name, cell in read.items() if cell is not None}
    groups = {
        "splits for choices": [split for split in options.splits if split in SPLITS_FOR_CHOICES],
        "unseen splits": [split for split in options.splits if split not in SPLITS_FOR_CHOICES],
    }
    summary = {name: summarise(results, splits) for name, splits in groups.items() if splits}
    options.results.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=1))


def alone_table(summary: dict[str, Any]) -> str:
    """Each learner alone: log-loss and AUROC on splits for choices and on unseen ones."""
    groups = list(summary.values())
    rows = [
        [TITLES.get(name, f"`{name}`"), *(f"{group['alone'][name][key]:.4f}" for group in groups for key in value)]
        for name, value in sorted(groups[-1]["alone"].items(), key=lambda pair: pair[1]["log_loss"])
    ]
    return table(["learner", "log-loss, splits for choices", "AUROC", "log-loss, unseen splits", "AUROC"], rows)


def together_table(summary: dict[str, Any], group: str) -> str:
    """The five families, and each other learner with them, by each metric."""
    together = summary[group]["together"]
    rows = []
    for name in next(iter(together.values())):
        cells = [each[name] for each in together.values()]
        rows.append(
            [
                TITLES.get(name.removeprefix("with "), name),
                *(
                    f"{cell['mean']:.4f}" + (f" ({cell['won']}-{cell['lost']}, p = {cell['p']})" if "p" in cell else "")
                    for cell in cells
                ),
            ]
        )
    return table(["the five families with", *together], rows)


def write_page(results: Path) -> None:
    """Write the tables of the page from the stored results."""
    summary = json.loads(results.read_text(encoding="utf-8"))
    parts = {"context alone": alone_table(summary)} | {
        f"context, {group}": together_table(summary, group) for group in summary
    }
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main()
