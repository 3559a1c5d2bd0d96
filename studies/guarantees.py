"""How often requirements fail on new rows where the truth is known: plain tuning, confidence= and MAPIE.

    python -m studies.guarantees --measure --data ../shared/data --draws runs/guarantees   # minutes
    PEER/bin/python -m studies.guarantees_mapie runs/guarantees      # MAPIE 1.6, in an environment of its own
    python -m studies.guarantees --cross-validated --data ../shared/data --jobs 16 --draws runs/guarantees
    python -m studies.guarantees --draws runs/guarantees              # collect the results, write page and picture
    python -m studies.guarantees                                      # write page and picture from the results

A case is a population of scores, a metric and requirements. A draw is a calibration set of that population, on which
every method chooses a threshold; the threshold is then judged by the population. Simulated scores are normal, with the
shift and the share of positives of the case, given as the exact log-odds, and the population is known exactly. On
tables, ten models (HistGradientBoostingClassifier on 2,000 rows each) score all other rows, 40 calibration sets are
drawn from these for each model, and the rows that are left, with 2,000 positives at least, are the population. Credit
card fraud has 492 positives in all, too few to judge by, and is left out.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from metricfit.core.counts import Counts
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.certified import choose_certified
from metricfit.decide.rules import Goal, Guarantee, choose_threshold
from metricfit.metrics import get_metric, parse_requirement

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "guarantees.json"
CONFIDENCE, MODELS, DRAWS_PER_MODEL = 0.9, 10, 40
DRAWS = MODELS * DRAWS_PER_MODEL
#: MAPIE takes its default grid of thresholds, and every second draw.
GRID = [-np.inf, *(float(np.log(at / (1 - at))) for at in np.linspace(0, 0.99, 100)[1:])]
PEER_EVERY = 2
Floats = NDArray[np.float64]


class Case(NamedTuple):
    """A population, and what is asked for."""

    population: str
    rows: int
    metric: str
    requirements: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the case's files."""
        return re.sub(r"[^a-z0-9.]+", "-", f"{self.population} {self.rows} {' '.join(self.requirements)}")


#: Simulated populations: the share of positives, and the shift of their scores.
SIMULATED = {"normal, 10 %": (0.1, 2.0), "normal, 30 %": (0.3, 1.5)}
CASES = [
    Case("normal, 10 %", 300, "precision", ("recall >= 0.8",)),
    Case("normal, 10 %", 1000, "precision", ("recall >= 0.9",)),
    Case("normal, 30 %", 500, "recall", ("precision >= 0.6",)),
    Case("normal, 30 %", 500, "recall", ("fpr <= 0.1",)),
    Case("normal, 30 %", 1000, "precision", ("recall >= 0.7", "selection_rate <= 0.45")),
    Case("adult", 500, "precision", ("recall >= 0.9",)),
    Case("adult", 500, "recall", ("precision >= 0.7",)),
    Case("adult", 500, "recall", ("selection_rate <= 0.2",)),
    Case("diabetes_100k", 1000, "precision", ("recall >= 0.8",)),
    Case("diabetes_100k", 1000, "recall", ("precision >= 0.8",)),
    Case("diabetes_100k", 1000, "recall", ("fpr <= 0.05",)),
]
#: What is reported beside the violations: the value of the case's metric.
Judge = Callable[[float], Counts]


def simulated_counts(share: float, shift: float) -> Judge:
    def counts(threshold: float) -> Counts:
        score = (threshold - np.log(share / (1 - share))) / shift + shift / 2
        tp, fp = share * norm.sf(score - shift), (1 - share) * norm.sf(score)
        return Counts(*(torch.tensor([[cell]]) for cell in (tp, fp, share - tp, 1 - share - fp)))

    return counts


def counts_of(scores: Floats, y: NDArray[np.int64], threshold: float) -> Counts:
    cells = Counts.from_labels(torch.from_numpy((scores >= threshold).astype(np.int64)), torch.from_numpy(y))
    return cells.map(lambda cell: cell.reshape(1, 1))


def simulated_draws(case: Case, draws: int) -> Iterator[tuple[Floats, NDArray[np.int64], Judge]]:
    """Calibration scores and labels of each draw, with the population; scores are what a model would give."""
    share, shift = SIMULATED[case.population]
    for draw in range(draws):
        rng = np.random.default_rng((draw, case.rows))
        y = (rng.random(case.rows) < share).astype(np.int64)
        scores = rng.normal(size=case.rows) + shift * y
        yield shift * (scores - shift / 2) + np.log(share / (1 - share)), y, simulated_counts(share, shift)


@functools.lru_cache(maxsize=2 * MODELS)  # the cases of a table share its models
def table_scores(name: str, data: Path, model: int) -> tuple[Floats, NDArray[np.int64]]:
    """The logits that a model gives to the rows that it was not fitted on."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    from metricfit.tabular.encoding.encoder import TableEncoder
    from metricfit_papers.datasets import load

    rows = load(name, data)
    y = np.asarray(rows.y, dtype=np.int64)
    order = np.random.default_rng((model, 18)).permutation(len(y))
    train, others = order[:2000], order[2000:]
    encoder = TableEncoder()
    x = encoder.fit(rows.X.iloc[train])
    fitted = HistGradientBoostingClassifier(learning_rate=0.05, random_state=model).fit(x, y[train])
    probability = np.clip(fitted.predict_proba(encoder.transform(rows.X.iloc[others]))[:, 1], 1e-9, 1 - 1e-9)
    return np.log(probability / (1 - probability)), y[others]


def table_draws(case: Case, data: Path, draws: int) -> Iterator[tuple[Floats, NDArray[np.int64], Judge]]:
    per_model = -(-draws // MODELS)
    for model in range(-(-draws // per_model)):
        scores, y = table_scores(case.population, data, model)
        for draw in range(min(per_model, draws - model * per_model)):
            order = np.random.default_rng((model, draw, case.rows)).permutation(len(y))
            drawn, left = order[: case.rows], order[case.rows :]
            assert y[left].sum() >= 2000
            rest, labels = scores[left], y[left]
            yield scores[drawn], y[drawn], lambda at, rest=rest, labels=labels: counts_of(rest, labels, at)


def methods(case: Case, seed: int) -> dict[str, Callable[[torch.Tensor, torch.Tensor], float | None]]:
    """Ways to choose a threshold of scores; None where they say that there is none."""
    metric, requirements = get_metric(case.metric), [parse_requirement(text) for text in case.requirements]

    def plain(rule: Any) -> Callable[[torch.Tensor, torch.Tensor], float | None]:
        def choose(z: torch.Tensor, y: torch.Tensor) -> float | None:
            calibration = fit_calibration(z[:, None], y, None)
            chosen = choose_threshold(calibration(z[:, None]).squeeze(1), y, None, metric, requirements, rule=rule)
            raw = float(calibration.invert([chosen.threshold])[0])
            return raw if chosen.feasible else None

        return choose

    def certified(confidence: float) -> Callable[[torch.Tensor, torch.Tensor], float | None]:
        def choose(z: torch.Tensor, y: torch.Tensor) -> float | None:
            calibration = fit_calibration(z[:, None], y, None)
            logits, guarantee = calibration(z[:, None]).squeeze(1), Guarantee(confidence, seed)
            chosen = choose_certified(logits, y, None, Goal(metric, requirements, guarantee=guarantee))
            raw = float(calibration.invert([chosen.threshold])[0])
            return raw if chosen.feasible else None

        return choose

    levels = {f"confidence {level:g}": certified(level) for level in (0.5, 0.8, 0.9, 0.95)}
    return {"empirical": plain("empirical"), "plug-in": plain("plugin")} | levels


def judged(case: Case, threshold: float | None, population: Judge) -> list[float] | None:
    """Whether a requirement fails in the population, the metric there, and the first requirement's rate."""
    if threshold is None:
        return None
    counts = population(threshold)
    requirements = [parse_requirement(text) for text in case.requirements]
    fails = any(not bool(requirement.holds(counts).all()) for requirement in requirements)
    values = (get_metric(case.metric)(counts), requirements[0].metric(counts))
    return [float(fails), *(round(float(value.squeeze()), 5) for value in values)]


def measure(case: Case, data: Path | None, draws: int, folder: Path) -> None:
    """Judge every method on every draw of a case, and keep the draws for MAPIE."""
    path = folder / f"{case.name}.json"
    if path.exists():
        return
    torch.set_num_threads(1)
    simulated = case.population in SIMULATED
    source = simulated_draws(case, draws) if simulated else table_draws(case, data or Path(), draws)
    found: dict[str, list[Any]] = {}
    kept: dict[str, list[Any]] = {"scores": [], "y": [], "counts": []}
    for draw, (scores, y, population) in enumerate(source):
        for name, choose in methods(case, draw).items():
            threshold = choose(torch.from_numpy(scores), torch.from_numpy(y))
            found.setdefault(name, []).append(judged(case, threshold, population))
        if draw % PEER_EVERY == 0:
            cells = [[float(cell.squeeze()) for cell in population(logit)] for logit in GRID]
            for key, value in (("scores", scores.astype(np.float32)), ("y", y), ("counts", cells)):
                kept[key].append(np.asarray(value))
    np.savez_compressed(folder / f"{case.name}.npz", **{key: np.stack(values) for key, values in kept.items()})
    path.write_text(json.dumps({"case": case._asdict(), "methods": found}))
    print(case.name, flush=True)


def peers(case: Case, folder: Path) -> dict[str, list[Any]]:
    """Judge the thresholds that guarantees_mapie.py chose on the same draws, if it did."""
    path = folder / f"{case.name}.mapie.json"
    if not path.exists():
        return {}
    counts = np.load(folder / f"{case.name}.npz")["counts"]
    found = {}
    for name, places in json.loads(path.read_text()).items():
        found[name] = []
        for cells, place in zip(counts[: len(places)], places, strict=True):
            there = None if place is None else Counts(*(torch.tensor([[cell]]) for cell in cells[place]))
            found[name].append(None if there is None else judged(case, 0.0, lambda _, there=there: there))
    return found


def summary(results: list[Any]) -> dict[str, float]:
    """The share of draws in which a requirement failed, in which there was no threshold, and the metric's mean."""
    chosen = [result for result in results if result is not None]
    fails = sum(result[0] for result in chosen)
    return {
        "draws": len(results),
        "violations": fails / len(results),
        "standard_error": float(np.sqrt(fails / len(results) * (1 - fails / len(results)) / len(results))),
        "none": 1 - len(chosen) / len(results),
        "metric": float(np.mean([result[1] for result in chosen])) if chosen else 0.0,
        "rate": float(np.mean([result[2] for result in chosen])) if chosen else 0.0,
    }


def collect(folder: Path) -> None:
    """Summarise what the folder holds. Parts of the results that it does not hold stay as they are."""
    from studies.guarantees_mammography import gather_halves
    from studies.guarantees_out_of_fold import gather

    results: dict[str, Any] = {"confidence": CONFIDENCE, "cases": [], "cross_validated": [], "mammography": {}}
    if RESULTS.exists():
        results |= json.loads(RESULTS.read_text())
    earlier = {Case(**{name: case[name] for name in Case._fields}).name: case for case in results["cases"]}
    results["cases"] = []
    for case in CASES:
        path = folder / f"{case.name}.json"
        if path.exists():
            found = json.loads(path.read_text())
            summaries = {name: summary(values) for name, values in (found["methods"] | peers(case, folder)).items()}
            results["cases"].append(case._asdict() | {"methods": summaries})
        elif case.name in earlier:
            results["cases"].append(earlier[case.name])
    if any(folder.glob("out-of-fold-*.json")):
        results["cross_validated"] = gather(folder)
    if any(folder.glob("half-*.json")):
        results["mammography"] = gather_halves(folder)
    RESULTS.write_text(json.dumps(_rounded(results), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return round(value, 5) if isinstance(value, float) else value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="judge methods on draws of calibration sets")
    parser.add_argument("--cross-validated", action="store_true", help="judge estimators that decide out of fold")
    parser.add_argument("--data", type=Path, help="the folder with the datasets")
    parser.add_argument("--draws", type=Path, help="the folder of the draws")
    parser.add_argument("--number", type=int, default=DRAWS, help="number of draws")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    given = parser.parse_args(arguments)
    if given.draws is not None:
        given.draws.mkdir(parents=True, exist_ok=True)
    if given.measure:
        from joblib import Parallel, delayed

        Parallel(given.jobs)(delayed(measure)(case, given.data, given.number, given.draws) for case in CASES)
    if given.cross_validated:
        from studies.guarantees_mammography import judge_halves
        from studies.guarantees_out_of_fold import judge_estimators

        judge_halves(given.data, given.draws, given.jobs)
        judge_estimators(given.data, given.draws, given.number, given.jobs)
    if given.draws is not None and not given.measure and not given.cross_validated:
        collect(given.draws)
    if not given.measure and not given.cross_validated:
        from studies.guarantees_page import write_page

        write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
