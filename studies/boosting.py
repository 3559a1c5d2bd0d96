"""Boosted trees trained for a metric, and stopped on it, beside log-loss, class weights and focal loss.

    python -m studies.boosting --data ../shared/data --jobs 16   # fit; finished cells are kept in runs/boosting
    python -m studies.boosting --gather                          # complete splits into results/boosting.json
    python -m studies.boosting                                   # write the page's tables

The nineteen tables and the 80/20 splits of tables.py. Each way of training is fitted on five folds; a fold's model
stops on the held-out fold, and test logits are averaged over the five models. Everything is trained through gradients
and second derivatives, from the prior, so that the ways of training differ in nothing else. One training serves all
rules of stopping: it goes on until each rule has waited for 50 rounds, and each rule takes the trees up to its own best
round.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from metricfit import MetricLoss, best_threshold, boosting
from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit.steps import Identity
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.family import Features, TrainingRows
from metricfit.tabular.row_folds import stratified_folds as row_folds
from metricfit.train.data.batches import derive_seed
from metricfit_papers.datasets import STUDY, load
from metricfit_papers.folds import stratified_folds
from studies.boosting_page import write_page

Floats = NDArray[np.float64]
RESULTS = Path(__file__).resolve().parent / "results" / "boosting.json"
SPLITS, FOLDS, ROUNDS, PATIENCE = 10, 5, 1000, 50
LIBRARIES = ("lightgbm", "xgboost")
METRICS = ("f1", "mcc")
STRENGTH, GAMMA = 0.5, 2.0
OWN_LOSS = "own loss"


class Training(NamedTuple):
    """A way of training: derivatives and loss of logits, labels and weights; and whether classes weigh the same."""

    derivatives: Callable[[Floats, Floats, Floats | None], tuple[Floats, Floats]]
    loss: Callable[[Floats, Floats, Floats | None], float]
    balanced: bool = False


def cross_entropy(z: Floats, y: Floats, weight: Floats | None) -> float:
    return float(np.average(np.logaddexp(0.0, np.where(y == 1, -z, z)), weights=weight))


def focal_derivatives(z: Floats, y: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
    """Derivatives of ``-(1 - p)^2 log p``, p the probability of the true class.

    The second derivative is negative below p = 0.06; below 0.1, where both are nearly equal, it is that of log-loss.
    """
    sign = np.where(y == 1, 1.0, -1.0)
    p = expit(sign * z)
    log_p, rest = -np.logaddexp(0.0, -sign * z), 1 - p
    inner = GAMMA * p * log_p + p - 1
    exact = p * rest * (rest**GAMMA * (GAMMA * log_p + GAMMA + 1) - GAMMA * rest ** (GAMMA - 1) * inner)
    return sign * rest**GAMMA * inner, np.maximum(np.where(p < 0.1, p * rest, exact), 1e-6)


def focal_loss(z: Floats, y: Floats, weight: Floats | None) -> float:
    margin = np.where(y == 1, z, -z)
    return float(np.mean(expit(-margin) ** GAMMA * np.logaddexp(0.0, -margin)))


def for_metric(metric: str) -> Training:
    made = boosting.objective(metric, strength=STRENGTH)
    soft = MetricLoss(metric, step=Identity(), task="binary")

    def loss(z: Floats, y: Floats, weight: Floats | None) -> float:
        return cross_entropy(z, y, None) + STRENGTH * float(soft(torch.from_numpy(z), torch.from_numpy(y).long()))

    return Training(lambda z, y, weight: made(y, z, weight), loss)


def trainings() -> dict[str, Training]:
    plain = boosting.objective("f1", strength=0.0)
    return {
        "log-loss": Training(lambda z, y, weight: plain(y, z, weight), cross_entropy),
        "scale_pos_weight": Training(lambda z, y, weight: plain(y, z, weight), cross_entropy, balanced=True),
        "focal": Training(focal_derivatives, focal_loss),
        **{f"objective {metric}": for_metric(metric) for metric in METRICS},
    }


class Rules:
    """Rules of stopping that share one training: the own loss, and each metric at its best threshold."""

    def __init__(self, training: Training, metrics: tuple[str, ...]) -> None:
        self.training = training
        self.evaluations = {metric: boosting.eval_metric(metric, "xgboost") for metric in metrics}
        self.best = dict.fromkeys((OWN_LOSS, *metrics), (np.inf, 0))

    def all_stopped(self, round_number: int, z: Floats, y: Floats, weight: Floats | None) -> bool:
        """Take note of the held-out scores after a round, and return whether no rule waits for another one."""
        losses = {OWN_LOSS: self.training.loss(z, y, weight)}
        losses |= {metric: evaluation(y, z) for metric, evaluation in self.evaluations.items()}
        for rule, loss in losses.items():
            if loss < self.best[rule][0]:
                self.best[rule] = (loss, round_number)
        return all(round_number - at >= PATIENCE for _, at in self.best.values())


class Part(NamedTuple):
    """Rows of a fold."""

    x: Floats
    y: Floats
    weight: Floats | None


def predictions_of_lightgbm(
    training: Training, rules: Rules, train: Part, held_out: Part, test: Floats, seed: int
) -> dict[str, tuple[Floats, Floats]]:
    import lightgbm

    start = boosting.prior_logits(train.y, train.weight)[0]
    quiet = {"verbose": -1, "num_threads": 1, "feature_pre_filter": False}
    rows = [
        lightgbm.Dataset(part.x, part.y, init_score=np.full(len(part.y), start), params=quiet)
        for part in (train, held_out)
    ]
    settings = quiet | {"learning_rate": 0.05, "metric": "none", "deterministic": True, "force_col_wise": True}
    settings |= {"seed": seed, "objective": lambda z, _: training.derivatives(z, train.y, train.weight)}

    def evaluate(z: Floats, _: Any) -> tuple[str, float, bool]:
        nonlocal stopped, rounds
        rounds += 1
        stopped = rules.all_stopped(rounds, z, held_out.y, held_out.weight)
        return "rules", 0.0, False

    def stop(_: Any) -> None:
        if stopped:
            raise lightgbm.callback.EarlyStopException(rounds, [])

    stopped, rounds = False, 0
    model = lightgbm.train(
        settings, rows[0], ROUNDS, valid_sets=[rows[1].set_reference(rows[0])], feval=evaluate, callbacks=[stop]
    )
    return {
        rule: (
            start + model.predict(held_out.x, raw_score=True, num_iteration=best, num_threads=1),
            start + model.predict(test, raw_score=True, num_iteration=best, num_threads=1),
        )
        for rule, (_, best) in rules.best.items()
    }


def predictions_of_xgboost(
    training: Training, rules: Rules, train: Part, held_out: Part, test: Floats, seed: int
) -> dict[str, tuple[Floats, Floats]]:
    import xgboost

    start = boosting.prior_logits(train.y, train.weight)[0]
    rows, held_out_rows, test_rows = (
        xgboost.DMatrix(x, label, base_margin=np.full(len(x), start), nthread=1)
        for x, label in ((train.x, train.y), (held_out.x, held_out.y), (test, None))
    )

    def evaluate(z: Floats, _: Any) -> tuple[str, float]:
        nonlocal stopped, rounds
        rounds += 1
        stopped = rules.all_stopped(rounds, z.astype(np.float64), held_out.y, held_out.weight)
        return "rules", 0.0

    class Stop(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return stopped

    stopped, rounds = False, 0
    model = xgboost.train(
        {"eta": 0.05, "nthread": 1, "seed": seed, "disable_default_eval_metric": True, "tree_method": "hist"},
        rows,
        ROUNDS,
        obj=lambda z, _: training.derivatives(z.astype(np.float64), train.y, train.weight),
        custom_metric=evaluate,
        evals=[(held_out_rows, "held_out")],
        callbacks=[Stop()],
        verbose_eval=False,
    )
    return {
        rule: (
            model.predict(held_out_rows, output_margin=True, iteration_range=(0, best)).astype(np.float64),
            model.predict(test_rows, output_margin=True, iteration_range=(0, best)).astype(np.float64),
        )
        for rule, (_, best) in rules.best.items()
    }


PREDICTIONS = {"lightgbm": predictions_of_lightgbm, "xgboost": predictions_of_xgboost}


def judge(held_out: Floats, y: Floats, test: Floats, y_test: Floats, metric: str) -> list[float]:
    """The metric on the test rows at the probability 0.5, and at the threshold that is best out of fold."""
    chosen = best_threshold(held_out, y, metric).threshold
    counts = (
        Counts.from_labels(torch.from_numpy(test >= threshold).long(), torch.from_numpy(y_test).long())
        for threshold in (0.0, chosen)
    )
    return [round(get_metric(metric)(cell).item(), 6) for cell in counts]


def fit(data: Path, folder: Path, cell: tuple[str, str, int]) -> str:
    """Train in every way with one library on one split of one table, and keep the values."""
    torch.set_num_threads(1)
    library, name, split = cell
    path, start = folder / f"{library}-{name}-{split}.json", time.perf_counter()
    if path.exists():
        return f"{path.stem}: kept"
    rows = load(name, data)
    train, test = (
        part.numpy() for part in stratified_folds(torch.as_tensor(rows.y), 5, derive_seed("split", split))[0]
    )
    encoder = TableEncoder()
    features = Features(encoder.fit(rows.X.iloc[train]))
    new = encoder.transform(rows.X.iloc[test]).astype(np.float64)
    y, y_test = (np.asarray(rows.y[part], dtype=np.float64) for part in (train, test))
    splits = row_folds(TrainingRows(features, y.astype(np.int64), None, 2), FOLDS, None, split)
    x = features.encoded.astype(np.float64)
    values: dict[str, dict[str, list[float]]] = {metric: {} for metric in METRICS}
    rounds: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for way, training in trainings().items():
        began = time.perf_counter()
        metrics = (way.split()[1],) if way.startswith("objective") else METRICS
        held_out = {rule: np.zeros(len(y)) for rule in (OWN_LOSS, *metrics)}
        tested = {rule: np.zeros(len(y_test)) for rule in held_out}
        for inside, outside in splits:
            weight = (y == 0).sum() / (y == 1).sum()
            weights = np.where(y == 1, weight, 1.0) if training.balanced else None
            parts = [Part(x[at], y[at], None if weights is None else weights[at]) for at in (inside, outside)]
            rules = Rules(training, metrics)
            for rule, scores in PREDICTIONS[library](training, rules, parts[0], parts[1], new, split).items():
                held_out[rule][outside] = scores[0]
                tested[rule] += scores[1] / len(splits)
                rounds[f"{way}|{rule}"] = rounds.get(f"{way}|{rule}", 0.0) + rules.best[rule][1] / len(splits)
        for metric in metrics:
            for rule in (OWN_LOSS, metric):
                key = f"{way.split()[0]}|{'metric' if rule == metric else rule}"
                values[metric][key] = judge(held_out[rule], y, tested[rule], y_test, metric)
        seconds[way] = round(time.perf_counter() - began, 2)
    result = {"values": values, "rounds": {key: round(mean, 1) for key, mean in rounds.items()}, "seconds": seconds}
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    return f"{path.stem}: {time.perf_counter() - start:.0f} s"


def gather(folder: Path) -> None:
    """Put finished cells into one file: library, table, split. Splits that lack a cell of any table are left out."""
    found = {tuple(path.stem.split("-")): path for path in sorted(folder.glob("*-*-*.json"))}
    libraries = [library for library in LIBRARIES if any(library == cell[0] for cell in found)]
    names = [name for name in STUDY if any(name == cell[1] for cell in found)]
    complete = [
        split
        for split in map(str, range(SPLITS))
        if all((library, name, split) in found for library in libraries for name in names)
    ]
    results = {
        library: {
            name: {split: json.loads(found[library, name, split].read_text(encoding="utf-8")) for split in complete}
            for name in names
        }
        for library in libraries
    }
    RESULTS.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the datasets: fit what is not yet fitted")
    parser.add_argument("--folder", type=Path, default=Path("runs/boosting"), help="where finished cells are kept")
    parser.add_argument("--gather", action="store_true", help="put the cells into results/boosting.json")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--only", nargs="*", default=STUDY)
    parser.add_argument("--libraries", nargs="*", default=LIBRARIES)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.data is not None:
        installed = [library for library in options.libraries if importlib.util.find_spec(library)]
        cells = [
            (library, name, split)
            for split in range(options.splits)
            for library in reversed(installed)
            for name in reversed(options.only)
        ]
        with get_context("fork").Pool(options.jobs) as pool:
            for line in pool.imap_unordered(partial(fit, options.data, options.folder), cells):
                print(line, flush=True)
    if options.gather:
        gather(options.folder)
    if options.data is None:
        write_page(json.loads(RESULTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
