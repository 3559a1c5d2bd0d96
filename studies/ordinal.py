"""Ordered classes judged by quadratic kappa: losses and decisions beside each other, on four problems and 20 splits.

    python -m studies.ordinal --data ../shared/data --jobs 8   # fit; finished cells are kept in runs/ordinal
    python -m studies.ordinal                                  # collect them, and fill in the page

A cell is one split of one problem: networks of two layers of 64 units are trained with cross-entropy, with the loss of
quadratic kappa, with the sum of both, and with cross-entropy first and the kappa loss afterwards. Decisions are tuned
on the validation rows that stop the training, and judged on test rows. "tuned decision" is that of ``best_decision``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.metrics import cohen_kappa_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor, nn

from metricfit import MetricLoss, fit, metrics
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.offsets import best_offsets
from metricfit.losses import Mix
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.train import Hardware
from studies.common import table, write_page

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = Path(__file__).resolve().parent / "results" / "ordinal.json"
PICTURE, PAGE = DOCS / "img" / "ordinal.svg", "evidence/decisions.md"
KAPPA = metrics.weighted_kappa(power=2)
SPLITS = 20
#: Training and validation rows of the larger problems; up to 10,000 others are test rows.
TRAIN, VALIDATION, MOST_TEST = 3200, 800, 10_000
EPOCHS, PATIENCE, BATCH = 60, 8, 256
#: What every decision is compared with.
REFERENCE = "cross-entropy, tuned decision"


class Grades(NamedTuple):
    """A table and an ordered label, 0 to c - 1."""

    x: pd.DataFrame
    y: np.ndarray[Any, np.dtype[np.int64]]


def progression(data: Path | None, seed: int) -> Grades:
    """Disease progression after a year in five bands of equal size (scikit-learn's diabetes data, 442 rows)."""
    rows = load_diabetes(as_frame=True)
    return Grades(rows.data, pd.qcut(rows.target, 5, labels=False).to_numpy())


def education(data: Path | None, seed: int) -> Grades:
    """The level of education in Adult (less than high school to a master's degree or more), from other columns."""
    rows = _adult(data)
    years = rows["education-num"].astype(int).to_numpy()
    return Grades(rows.drop(columns=["education", "education-num"]), np.digitize(years, [9, 10, 13, 14]))


def age(data: Path | None, seed: int) -> Grades:
    """The age in Adult, in five bands (below 25, 35, 45, 60, and above), from the other columns."""
    rows = _adult(data)
    return Grades(rows.drop(columns="age"), np.digitize(rows["age"].astype(int), [25, 35, 45, 60]))


def simulated(data: Path | None, seed: int) -> Grades:
    """Six grades of a latent sum of ten features with noise; the outer grades are rare."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TRAIN + VALIDATION + MOST_TEST, 10))
    latent = x @ np.linspace(0.1, 0.7, 10) + 0.8 * x[:, 0] * x[:, 1] + 1.2 * rng.standard_t(5, len(x))
    return Grades(pd.DataFrame(x), np.digitize(latent, [-3.5, -1.5, 0.5, 2.5, 4.0]))


PROBLEMS: dict[str, Callable[[Path | None, int], Grades]] = {
    "progression": progression,
    "education": education,
    "age": age,
    "simulated": simulated,
}


def _adult(data: Path | None) -> pd.DataFrame:
    if data is None:
        raise SystemExit("--data names the folder with tabular/adult.parquet")
    return pd.read_parquet(data / "tabular" / "adult.parquet").drop(columns=["target", "split", "fnlwgt"])


class Rows(NamedTuple):
    """Features and grades."""

    x: Tensor
    y: Tensor


def split(grades: Grades, seed: int) -> tuple[Rows, Rows, Rows]:
    """Training, validation and test rows, encoded as numbers by the training rows."""
    n = len(grades.y)
    train_size, validation_size = (TRAIN, VALIDATION) if n > 2000 else (n * 6 // 10, n * 2 // 10)
    tuned, test = train_test_split(
        np.arange(n), train_size=train_size + validation_size, stratify=grades.y, random_state=seed
    )
    train, validation = train_test_split(tuned, train_size=train_size, stratify=grades.y[tuned], random_state=seed)
    numbers = grades.x.select_dtypes("number").columns.tolist()
    others = [name for name in grades.x.columns if name not in numbers]
    one_hot = OneHotEncoder(handle_unknown="ignore", min_frequency=20, sparse_output=False)
    encoder = make_column_transformer((StandardScaler(), numbers), (one_hot, others))
    frame = grades.x.astype(dict.fromkeys(others, str))
    encoder.fit(frame.iloc[train])

    def rows(part: Any) -> Rows:
        x = np.clip(np.asarray(encoder.transform(frame.iloc[part]), dtype=np.float32), -5, 5)
        return Rows(torch.from_numpy(x), torch.from_numpy(grades.y[part].astype(np.int64)))

    return rows(train), rows(validation), rows(test[:MOST_TEST])


def network(columns: int, classes: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    hidden = [nn.Linear(columns, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*hidden, nn.Linear(64, classes))


def train(
    model: nn.Module, parts: tuple[Rows, ...], loss: nn.Module, seed: int, monitor: Any, lr: float, epochs: int
) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kappa loss alone can stall at the start, which is measured here
        fit(
            model,
            tuple(parts[0]),
            loss,
            validation=tuple(parts[1]),
            monitor=monitor,
            epochs=epochs,
            patience=PATIENCE,
            batch_size=BATCH,
            lr=lr,
            seed=seed,
            hardware=Hardware(accelerator="cpu"),
            progress=False,
        )
    return model.eval()


def decide(validation: Tensor, y: Tensor, test: Tensor, *, every: bool) -> dict[str, Tensor]:
    """Decide the test rows by the argmax and by the tuned decision, or in every way."""
    calibration = fit_calibration(validation, y, None)
    calibrated, new = calibration(validation), calibration(test)

    def tuned(rule: Literal["plugin", "empirical"]) -> Tensor:
        held_out = collect_held_out(calibrated, y, None, None)
        return choose_without_intervals(held_out, KAPPA, subject_to=(), average="macro", rule=rule).decide(new)

    decided = {"argmax": test.argmax(1), "tuned decision": tuned("plugin")}
    if not every:
        return decided
    shares, expected = calibrated.softmax(1), _distances(calibrated.softmax(1))
    expected_new = _distances(new.softmax(1))
    return decided | {
        "tuned decision, empirical": tuned("empirical"),
        "offsets on the logits": (new + best_offsets(calibrated, shares, KAPPA).offsets).argmax(1),
        "offsets on the logits, empirical": (new + best_offsets(calibrated, y, KAPPA).offsets).argmax(1),
        "expected grade, rounded": expected_new.argmax(1),
        "expected grade, tuned cut points": (expected_new + best_offsets(expected, y, KAPPA).offsets).argmax(1),
    }


def _distances(shares: Tensor) -> Tensor:
    """Minus the squared distance of each grade from the expected grade; offsets on it are cut points."""
    places = torch.arange(shares.shape[1], dtype=shares.dtype)
    return -((shares @ places)[:, None] - places).square()


def run(data: Path | None, folder: Path, quick: bool, cell: tuple[str, int]) -> str:
    """Train and judge one split of one problem; a cell that is there already is kept."""
    torch.set_num_threads(1)
    name, seed = cell
    path = folder / f"{name}-{seed}.json"
    if path.exists():
        return f"{name} {seed}: kept"
    start, epochs = time.perf_counter(), 2 if quick else EPOCHS
    grades = PROBLEMS[name](data, seed)
    parts = split(grades, seed)
    columns, classes = parts[0].x.shape[1], int(grades.y.max()) + 1
    make = partial(network, columns, classes, seed)
    kappa, entropy = MetricLoss(KAPPA), WeightedCrossEntropyLoss()
    fitted = {"cross-entropy": train(make(), parts, entropy, seed, "loss", 1e-3, epochs)}
    fitted["kappa loss"] = train(make(), parts, kappa, seed, KAPPA, 1e-3, epochs)
    fitted["sum of both"] = train(make(), parts, Mix((entropy, 1.0), (kappa, 0.5)), seed, "loss", 1e-3, epochs)
    second = make()
    second.load_state_dict(fitted["cross-entropy"].state_dict())
    fitted["cross-entropy, then kappa loss"] = train(second, parts, kappa, seed, KAPPA, 3e-4, epochs)
    values = {}
    for loss, model in fitted.items():
        with torch.no_grad():
            validation, test = model(parts[1].x).double(), model(parts[2].x).double()
        for decision, decided in decide(validation, parts[1].y, test, every=loss == "cross-entropy").items():
            values[f"{loss}, {decision}"] = cohen_kappa_score(parts[2].y, decided, weights="quadratic")
    seconds = time.perf_counter() - start
    shares = np.bincount(grades.y, minlength=classes) / len(grades.y)
    kept = {"values": values, "seconds": seconds, "rows": [len(part.y) for part in parts], "shares": shares.tolist()}
    path.write_text(json.dumps(kept), encoding="utf-8")
    return f"{name} {seed}: {seconds:.0f} s, {values[REFERENCE]:.3f}"


def collect(folder: Path) -> dict[str, Any]:
    """The values of every method by problem, in the order of the splits."""
    results: dict[str, Any] = {}
    for name in PROBLEMS:
        cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"{name}-*.json"))]
        if cells:
            methods = cells[0]["values"]
            results[name] = {
                "splits": len(cells),
                "rows": cells[0]["rows"],
                "shares": [round(share, 4) for share in cells[0]["shares"]],
                "seconds": round(statistics.mean(cell["seconds"] for cell in cells), 1),
                "values": {method: [round(cell["values"][method], 5) for cell in cells] for method in methods},
            }
    return results


def rows_of(results: dict[str, Any], methods: list[str]) -> list[list[object]]:
    """One row per method: the mean of each problem, the mean over problems, and wins against the reference."""
    rows = []
    for method in methods:
        means = [statistics.mean(problem["values"][method]) for problem in results.values()]
        wins, losses = _wins(results, method)
        against = "-" if method == REFERENCE else f"{wins} to {losses}"
        rows.append([method, *(f"{mean:.3f}" for mean in means), f"{statistics.mean(means):.3f}", against])
    return rows


def _wins(results: dict[str, Any], method: str) -> tuple[int, int]:
    pairs = [
        (value, other)
        for problem in results.values()
        for value, other in zip(problem["values"][method], problem["values"][REFERENCE], strict=True)
    ]
    return sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)


def tables(results: dict[str, Any]) -> dict[str, str]:
    """The parts of the page."""
    head = ["loss, decision", *results, "mean", "wins to losses against the first row"]
    methods = list(next(iter(results.values()))["values"])
    losses = [REFERENCE, *(method for method in methods if method.endswith(("argmax", "decision")))]
    decisions = [REFERENCE, *(method for method in methods if method.startswith("cross-entropy, "))]
    losses, decisions = (list(dict.fromkeys(each)) for each in (losses, decisions))
    decisions = [method for method in decisions if "kappa loss" not in method]
    about = [
        [name, *problem["rows"], ", ".join(f"{share:.0%}" for share in problem["shares"]), problem["splits"]]
        for name, problem in results.items()
    ]
    return {
        "problems": table(["problem", "train", "validation", "test", "shares of the grades", "splits"], about),
        "losses": table(head, rows_of(results, losses)),
        "decisions": table(head, rows_of(results, decisions)),
    }


SHOWN = {
    "cross-entropy, argmax": "#888888",
    "cross-entropy, offsets on the logits": "#9ecae1",
    "cross-entropy, tuned decision": "#1f77b4",
    "kappa loss, argmax": "#ff7f0e",
    "cross-entropy, then kappa loss, argmax": "#d62728",
}


def draw(results: dict[str, Any], path: Path) -> None:
    """The mean of each problem with its standard error over the splits."""
    plt.rcParams.update({"svg.hashsalt": "metricfit", "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(7.5, 3.2))
    for at, (method, colour) in enumerate(SHOWN.items()):
        values = [problem["values"][method] for problem in results.values()]
        errors = [statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0 for each in values]
        places = np.arange(len(values)) + 0.16 * (at - 2)
        axes.bar(places, [statistics.mean(each) for each in values], 0.15, yerr=errors, color=colour, label=method)
    axes.set(ylabel="quadratic kappa on test rows", xticks=range(len(results)), xticklabels=list(results))
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with tabular/adult.parquet")
    parser.add_argument("--folder", type=Path, default=Path("runs/ordinal"), help="where finished cells are kept")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0 collects what is there")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--only", nargs="*", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--quick", action="store_true", help="two epochs: does it run?")
    parser.add_argument("--out", type=Path, default=DOCS.parent, help="where docs/ and studies/results/ are written")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.jobs:
        cells = [(name, seed) for seed in range(given.splits) for name in given.only]
        with get_context("spawn").Pool(given.jobs) as pool:
            for line in pool.imap_unordered(partial(run, given.data, given.folder, given.quick), cells):
                print(line, flush=True)
        return
    results = collect(given.folder)
    if not results:
        raise SystemExit(f"no cells in {given.folder}: run with --jobs first")
    parts = tables(results)
    print("\n\n".join(parts.values()))
    (given.out / "docs" / "img").mkdir(parents=True, exist_ok=True)
    draw(results, given.out / "docs" / "img" / PICTURE.name)
    write_page(given.out, PAGE, parts)
    kept = given.out / "studies" / "results" / RESULTS.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
