"""How often requirements of several classes and of several labels fail on new rows, where the truth is known exactly.

    python -m studies.guarantees_classes --draws runs/classes --number 200 --jobs 16   # minutes on 16 cores
    python -m studies.guarantees_classes --collect runs/classes                         # collect the results
    python -m studies.guarantees_classes                                                # write page and picture

A row of class k has the scores x, normal with mean ``shift`` in place k and 0 elsewhere, and the logits are the exact
log-probabilities. The confusion matrix of ``argmax(logits + offsets)`` in the population is an integral over one score.
A row with several labels has one normal score per label, shifted where the label is there. A common part of their noise
and of the labels makes the labels of a row depend on each other; each label alone has known counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from scipy.stats import norm

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.decide.calibration import fit_calibration, fit_label_calibration
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.labels import LabelGoals, choose_required_thresholds
from metricfit.decide.rules import Goal, Guarantee
from metricfit.metrics import averaged, get_metric, parse_requirement
from studies.guarantees import CONFIDENCE, summary

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "guarantees_classes.json"
DRAWS = 200
Floats = NDArray[np.float64]


class Population(NamedTuple):
    """The share of each class or label, and the shift of their scores."""

    shares: tuple[float, ...]
    shift: float
    has_labels: bool = False


POPULATIONS = {
    "3 classes": Population((0.5, 0.3, 0.2), 1.7),
    "5 classes": Population((0.4, 0.25, 0.15, 0.1, 0.1), 2.2),
    "3 labels": Population((0.4, 0.25, 0.15), 1.8, has_labels=True),
}


class Case(NamedTuple):
    """A population, and what is asked for."""

    population: str
    rows: int
    metric: str
    average: str
    requirements: tuple[str, ...]


CASES = [
    Case("3 classes", 600, "f1", "macro", ("recall[2] >= 0.85",)),
    Case("3 classes", 1500, "f1", "macro", ("recall >= 0.75",)),
    Case("3 classes", 1000, "recall", "macro", ("precision[1] >= 0.82", "precision[2] >= 0.82")),
    Case("5 classes", 1500, "f1", "macro", ("recall[4] >= 0.85", "accuracy >= 0.78")),
    Case("3 labels", 500, "precision", "macro", ("recall >= 0.75",)),
    Case("3 labels", 1000, "f1", "micro", ("precision >= 0.6", "recall[0] >= 0.75")),
]
METHODS = ("empirical", "plug-in", f"confidence {CONFIDENCE:g}")


def draw_classes(population: Population, rows: int, draw: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and class numbers of a calibration set."""
    rng = np.random.default_rng((draw, rows, len(population.shares)))
    y = rng.choice(len(population.shares), rows, p=population.shares)
    x = rng.normal(size=(rows, len(population.shares))) + population.shift * np.eye(len(population.shares))[y]
    return torch.from_numpy(population.shift * x + np.log(population.shares)), torch.from_numpy(y)


def confusion_of(population: Population, offsets: Floats) -> torch.Tensor:
    """The confusion matrix of the decisions in the population; its cells sum to 1."""
    shares, shift = np.array(population.shares), population.shift
    level = (np.log(shares) + offsets) / shift
    u = np.linspace(-8, 8 + shift, 4001)
    matrix = np.empty((len(shares), len(shares)))
    for true in range(len(shares)):
        mean = shift * (np.arange(len(shares)) == true)
        for decided in range(len(shares)):
            others = [each for each in range(len(shares)) if each != decided]
            below = np.prod([norm.cdf(u + level[decided] - level[each] - mean[each]) for each in others], axis=0)
            matrix[true, decided] = shares[true] * trapezoid(norm.pdf(u - mean[decided]) * below, u)
    return torch.from_numpy(matrix)


def draw_labels(population: Population, rows: int, draw: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of a calibration set."""
    rng = np.random.default_rng((draw, rows, 7))
    shares, shift = np.array(population.shares), population.shift
    common = rng.normal(size=(rows, 2, 1)) * np.sqrt(0.5)
    latent = rng.normal(size=(rows, 2, len(shares))) * np.sqrt(0.5) + common
    y = (latent[:, 0] > norm.isf(shares)).astype(np.int64)
    x = latent[:, 1] + shift * y
    return torch.from_numpy(shift * (x - shift / 2) + np.log(shares / (1 - shares))), torch.from_numpy(y)


def label_counts(population: Population, thresholds: Floats) -> Counts:
    """The counts of each label in the population, as shares of the rows."""
    shares, shift = np.array(population.shares), population.shift
    score = (thresholds - np.log(shares / (1 - shares))) / shift + shift / 2
    tp, fp = shares * norm.sf(score - shift), (1 - shares) * norm.sf(score)
    return Counts(*map(torch.from_numpy, (tp, fp, shares - tp, 1 - shares - fp)), exclusive=False)


def decide(case: Case, method: str, draw: int) -> Counts | None:
    """The counts in the population of what a method decides on a draw; None if it says that nothing is allowed."""
    population = POPULATIONS[case.population]
    rule = "empirical" if method == "empirical" else "plugin"
    guarantee = Guarantee(CONFIDENCE, draw) if method.startswith("confidence") else None
    requirements = requirements_of(case)
    metric, average = get_metric(case.metric), case.average
    if population.has_labels:
        z, y = draw_labels(population, case.rows, draw)
        calibration = fit_label_calibration(z, y, None)
        goals = LabelGoals(Goal(metric, requirements, average, rule, guarantee), y.shape[1])
        chosen, met = choose_required_thresholds(calibration(z), y, None, goals)
        if not all(met.values()):
            return None
        return label_counts(population, calibration.invert(chosen))
    z, y = draw_classes(population, case.rows, draw)
    calibration = fit_calibration(z, y, None)
    held_out = collect_held_out(calibration(z), y, None, None)
    decision = choose_without_intervals(
        held_out, metric, subject_to=requirements, average=average, rule=rule, guarantee=guarantee
    )
    if decision.evidence.not_reachable is not None:
        return None
    offsets = decision.before(calibration).offsets
    return ConfusionMatrix(confusion_of(population, offsets))


def requirements_of(case: Case) -> list[Any]:
    """The requirements of a case, one for each class or label."""
    population = POPULATIONS[case.population]
    several = [parse_requirement(text) for text in case.requirements]
    return class_requirements(several, len(population.shares), has_labels=population.has_labels)


def judge(case: Case, counts: Counts | None) -> list[float] | None:
    """Whether a requirement fails in the population, the metric there, and the first requirement's rate."""
    if counts is None:
        return None
    requirements = requirements_of(case)
    fails = any(not bool(requirement.holds(counts).all()) for requirement in requirements)
    value = float(averaged(get_metric(case.metric), counts, case.average))
    return [float(fails), round(value, 5), round(float(requirements[0].metric(counts).squeeze(-1)), 5)]


def measure(place: int, first: int, last: int, folder: Path) -> None:
    """Judge every method on some draws of a case; what is there already is not repeated."""
    path = folder / f"{place}-{first}-{last}.json"
    if path.exists():
        return
    torch.set_num_threads(1)
    case = CASES[place]
    found = {name: [judge(case, decide(case, name, draw)) for draw in range(first, last)] for name in METHODS}
    path.write_text(json.dumps({"place": place, "methods": found}))


def collect(folder: Path) -> None:
    """Summarise all draws of a folder in the results."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*-*-*.json"))]
    cases = []
    for place, case in enumerate(CASES):
        of_case = [part["methods"] for part in parts if part["place"] == place]
        if of_case:
            methods = {name: summary([each for part in of_case for each in part[name]]) for name in METHODS}
            cases.append(case._asdict() | {"methods": {name: _rounded(found) for name, found in methods.items()}})
    RESULTS.write_text(json.dumps({"confidence": CONFIDENCE, "cases": cases}, indent=1) + "\n")


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in values.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=Path, help="measure, and keep the draws in this folder")
    parser.add_argument("--collect", type=Path, help="summarise the draws of this folder")
    parser.add_argument("--number", type=int, default=DRAWS, help="number of draws")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    given = parser.parse_args(arguments)
    if given.draws is not None:
        from joblib import Parallel, delayed

        given.draws.mkdir(parents=True, exist_ok=True)
        starts = range(0, given.number, 10)
        cells = [(place, first, min(first + 10, given.number)) for first in starts for place in range(len(CASES))]
        Parallel(given.jobs)(delayed(measure)(*cell, given.draws) for cell in cells)
        return
    if given.collect is not None:
        collect(given.collect)
    from studies.guarantees_classes_page import write_page

    write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
