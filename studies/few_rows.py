"""Decisions that were chosen on few rows: what they are worth on new rows, and whether requirements hold there.

    python -m studies.few_rows --jobs 16   # simulate and write the page; samples are kept in runs/few_rows
    python -m studies.few_rows --jobs 0    # write the page from the samples that are there

Three simulations. *Value*: estimates of the value on new rows, for a threshold and for a threshold of the best of six
models. *Requirement*: whether a requirement holds on new rows, if the threshold meets it on the labels, on the expected
counts, or on both. *Classes*: offsets of several classes, chosen by the plug-in rule and by the empirical rule. "New
rows" are 100,000 rows with the same shares of the classes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit._files import hash_bytes
from metricfit.core.counts import Counts
from metricfit.decide.calibration import Calibration, fit_calibration
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.optimism import corrected_value
from metricfit.decide.rules import Goal, choose_threshold
from metricfit.metrics import averaged, get_metric, parse_requirement
from metricfit.metrics.curves import best_of_allowed
from metricfit.metrics.feasibility import allowed_thresholds
from metricfit.metrics.metric import Metric
from metricfit.metrics.sweep import expected_sweep, sweep

PAGE = "evidence/decisions.md"
NEW_ROWS = 100_000
RESAMPLES = 100
MODELS, SEPARATION = 6, 1.5

#: Rows and positives, and how many samples of each setting.
SIZES_OF_VALUES, SAMPLES_OF_VALUES = ((200, 20), (500, 50), (2000, 50), (2000, 200)), 23
KINDS = {
    "model": "best of six models, plug-in threshold",
    "plugin": "one model, plug-in threshold",
    "empirical": "one model, empirical threshold",
}
ESTIMATES = {
    "same rows": "value on the same rows",
    "harrell": "Harrell's correction",
    ".632+": ".632+",
    "left out": "rows that the resamples left out (ours)",
}

SIZES_OF_REQUIREMENTS, SAMPLES_OF_REQUIREMENTS = ((300, 30), (1000, 100), (3000, 100)), 30
PAIRS = (
    ("precision", "recall >= 0.8"),
    ("recall", "precision >= 0.5"),
    ("f1", "recall >= 0.7"),
    ("specificity", "recall >= 0.9"),
)
SCORES = ("normal", "unequal spread", "heavy tails")
RULES = {"labels": "labels", "expected": "expected counts", "both": "both (ours)"}

ROWS_OF_CLASSES, SAMPLES_OF_CLASSES = (200, 2000), 10
METRICS_OF_CLASSES = ("f1", "mcc", "gmean")

#: Part, setting and sample.
Cell = tuple[str, tuple[Any, ...], int]


class Choice(NamedTuple):
    """A model, its calibration and a threshold."""

    model: int
    calibration: Calibration | None
    threshold: float

    def decide(self, z: Tensor) -> Tensor:
        """Return 0 or 1 for each row of the scores of all models."""
        scores = z[:, [self.model]]
        return ((scores if self.calibration is None else self.calibration(scores)) >= self.threshold).long().squeeze(1)


def labels(rows: int, positives: int) -> Tensor:
    return (torch.arange(rows) < positives).long()


def value(metric: Metric, decided: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
    return metric(Counts.from_labels(decided, y, weight=weight)).item()


def scores_of_models(y: Tensor, generator: torch.Generator) -> Tensor:
    """Scores of six equally good models; half of the variance of their noise is the same for all."""
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    noise = math.sqrt(0.5) * (draw(len(y), 1) + draw(len(y), MODELS))
    return SEPARATION * y[:, None] + noise


def choose(z: Tensor, y: Tensor, metric: Metric, kind: str, weight: Tensor) -> Choice:
    """Choose the threshold, and the model whose best threshold has the best value."""
    best, best_value = None, -math.inf
    for model in range(MODELS if kind == "model" else 1):
        scores = z[:, [model]]
        calibration = None if kind == "empirical" else fit_calibration(scores, y, weight)
        logits = (scores if calibration is None else calibration(scores)).squeeze(1)
        rule = "empirical" if kind == "empirical" else "plugin"
        chosen = choose_threshold(logits, y, weight, metric, rule=rule)
        if chosen.value > best_value:
            best, best_value = Choice(model, calibration, chosen.threshold), chosen.value
    assert best is not None
    return best


def simulate_value(kind: str, rows: int, positives: int, name: str, generator: torch.Generator) -> dict[str, float]:
    """Return the value on new rows, and what each estimate says about it."""
    metric, y = get_metric(name), labels(rows, positives)
    z, everything = scores_of_models(y, generator), torch.ones(rows, dtype=torch.float64)
    decisions: list[tuple[Tensor, Tensor]] = []

    def fit_decision(weights: Any) -> Tensor:
        weight = torch.from_numpy(weights)
        decisions.append((weight, choose(z, y, metric, kind, weight).decide(z)))
        return decisions[-1][1]

    held_out = collect_held_out(z[:, :1], y, None, None)
    left_out = corrected_value(fit_decision, held_out, Goal(metric), resamples=RESAMPLES).value
    decided, resamples = decisions[0][1], decisions[1:]
    apparent = value(metric, decided, y)
    optimism = [value(metric, drawn, y, weight) - value(metric, drawn, y) for weight, drawn in resamples]
    # .632+ (Efron and Tibshirani 1997): the more the value falls towards that of a decision that says nothing about the
    # labels, the more the rows that were left out count.
    share, prior = float(decided.double().mean()), positives / rows
    cells = (share * prior, share * (1 - prior), (1 - share) * prior, (1 - share) * (1 - prior))
    nothing = metric(Counts(*cells)).item()
    fall = (apparent - left_out) / (apparent - nothing) if apparent > nothing else 0.0
    part = 0.632 / (1 - 0.368 * min(max(fall, 0.0), 1.0))
    new_y = labels(NEW_ROWS, round(NEW_ROWS * prior))
    return {
        "truth": value(
            metric, choose(z, y, metric, kind, everything).decide(scores_of_models(new_y, generator)), new_y
        ),
        "same rows": apparent,
        "harrell": apparent - statistics.fmean(optimism),
        ".632+": (1 - part) * apparent + part * left_out,
        "left out": left_out,
    }


def scores_for_requirement(y: Tensor, shape: str, generator: torch.Generator) -> Tensor:
    """Scores whose log-odds are linear, or which have another spread among positives, or heavy tails."""
    noise = torch.randn(len(y), generator=generator, dtype=torch.float64)
    if shape == "heavy tails":  # Student's t with 3 degrees of freedom
        squares = torch.randn(len(y), 3, generator=generator, dtype=torch.float64).square().mean(1)
        noise = noise / squares.sqrt()
    spread = 1.0 + y if shape == "unequal spread" else 1.0
    return (2.0 * y + spread * noise)[:, None]


def simulate_requirement(
    shape: str, rows: int, positives: int, name: str, text: str, generator: torch.Generator
) -> dict[str, float]:
    """Return for each rule whether the requirement holds on new rows, the violation and the value there."""
    metric, requirement = get_metric(name), parse_requirement(text)
    y, new_y = labels(rows, positives), labels(NEW_ROWS, round(NEW_ROWS * positives / rows))
    z, new = (scores_for_requirement(part, shape, generator) for part in (y, new_y))
    calibration = fit_calibration(z, y, None)
    logits, new_logits = calibration(z).squeeze(1), calibration(new).squeeze(1)
    observed, expected = sweep(logits, y, None), expected_sweep(logits, None)
    thresholds = {
        rule: middle(logits, best_of_allowed(expected, metric, allowed_thresholds(counts, [requirement])[0]).threshold)
        for rule, counts in (("labels", observed.counts), ("expected", expected.counts))
    }
    thresholds["both"] = choose_threshold(logits, y, None, metric, [requirement], rule="plugin").threshold
    result: dict[str, float] = {}
    for rule, threshold in thresholds.items():
        counts = Counts.from_labels((new_logits >= threshold).long(), new_y)
        result |= {
            f"{rule}: held": float(requirement.holds(counts).item()),
            f"{rule}: violation": max(0.0, requirement.violation(counts).item()),
            f"{rule}: value": metric(counts).item(),
        }
    return result


def middle(scores: Tensor, threshold: float) -> float:
    """Return the middle between a threshold and the next lower score, as ``choose_threshold`` does."""
    lower = scores[scores < threshold]
    return (threshold + float(lower.max())) / 2 if math.isfinite(threshold) and len(lower) else threshold


def logits_of_classes(y: Tensor, prior: Tensor, generator: torch.Generator) -> Tensor:
    """Logits of a model that knows the classes in part, and is too sure of itself."""
    draw = partial(torch.randn, len(y), len(prior), generator=generator, dtype=torch.float64)
    x = SEPARATION * torch.nn.functional.one_hot(y, len(prior)) + draw()
    return 1.3 * (prior.log() + SEPARATION * x) + 0.3 * draw()


def simulate_classes(classes: int, rows: int, name: str, generator: torch.Generator) -> dict[str, float]:
    """Return the value on new rows of the offsets that each rule chooses; each class is half as large as the last."""
    prior = 0.5 ** torch.arange(classes, dtype=torch.float64)
    prior, metric = prior / prior.sum(), get_metric(name)
    y, new_y = (
        torch.repeat_interleave(torch.arange(classes), (prior * n).round().long().clamp(min=3))
        for n in (rows, NEW_ROWS)
    )
    z, new = (logits_of_classes(part, prior, generator) for part in (y, new_y))
    calibration = fit_calibration(z, y, None)
    result = {}
    for rule in ("plugin", "empirical"):
        held_out = collect_held_out(calibration(z), y, None, None)
        decision = choose_without_intervals(held_out, metric, subject_to=(), average="macro", rule=rule)
        counts = Counts.from_labels(decision.decide(calibration(new)), new_y, num_classes=classes)
        result[rule] = float(averaged(metric, counts, "macro"))
    return result


SIMULATIONS: dict[str, Callable[..., dict[str, float]]] = {
    "value": simulate_value,
    "requirement": simulate_requirement,
    "classes": simulate_classes,
}


def all_cells(quick: bool) -> list[Cell]:
    """Return every sample of every setting; three of each part for a quick run."""
    cells: list[Cell] = [
        ("value", (kind, *size, metric), sample)
        for sample in range(SAMPLES_OF_VALUES)
        for kind in KINDS
        for size in SIZES_OF_VALUES
        for metric in ("f1", "mcc")
    ]
    cells += [
        ("requirement", (shape, *size, *pair), sample)
        for sample in range(SAMPLES_OF_REQUIREMENTS)
        for shape in SCORES
        for size in SIZES_OF_REQUIREMENTS
        for pair in PAIRS
    ]
    cells += [
        ("classes", (classes, rows, metric), sample)
        for sample in range(SAMPLES_OF_CLASSES)
        for classes in (3, 6)
        for rows in ROWS_OF_CLASSES
        for metric in METRICS_OF_CLASSES
    ]
    if not quick:
        return cells
    small = [cell for cell in cells if cell[2] == 0 and (cell[0] != "value" or cell[1][1:] == (200, 20, "f1"))]
    return [cell for cell in small if cell[0] != "classes" or cell[1][1] == 200]


def simulate(cell: Cell) -> tuple[Cell, dict[str, float]]:
    torch.set_num_threads(1)
    part, setting, sample = cell
    seed = int(hash_bytes(repr((part, setting, sample)).encode(), 12), 16)
    return cell, SIMULATIONS[part](*setting, torch.Generator().manual_seed(seed))


def run(cells: Sequence[Cell], file: Path, jobs: int) -> list[tuple[Cell, dict[str, float]]]:
    """Simulate the cells that the file does not hold yet; each is appended when it is ready."""
    file.parent.mkdir(parents=True, exist_ok=True)
    stored = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    results = {(part, tuple(setting), sample): result for (part, setting, sample), result in stored}
    missing = [cell for cell in cells if cell not in results] if jobs else []
    with file.open("a") as lines, get_context("spawn").Pool(max(1, jobs)) as pool:
        finished = pool.imap_unordered(simulate, missing) if jobs > 1 else map(simulate, missing)
        for cell, result in finished:
            lines.write(json.dumps([cell, result]) + "\n")
            lines.flush()
            results[cell] = result
    return [(cell, results[cell]) for cell in cells if cell in results]


def summarise(results: Sequence[tuple[Cell, dict[str, float]]]) -> dict[str, Any]:
    """Return the figures of the page."""
    by_setting: dict[tuple[Any, ...], list[dict[str, float]]] = defaultdict(list)
    for (part, setting, _), result in results:
        by_setting[(part, *(setting if part == "classes" else setting[:1]))].append(result)
    summary: dict[str, Any] = {"settings": {"samples": len(results)}, "value": {}, "requirement": {}, "classes": []}
    for (part, *setting), samples in by_setting.items():
        if part == "value":
            errors = {name: [sample[name] - sample["truth"] for sample in samples] for name in ESTIMATES}
            summary[part][setting[0]] = {
                name: {
                    "bias": statistics.fmean(values),
                    "error": math.sqrt(statistics.fmean(error**2 for error in values)),
                }
                for name, values in errors.items()
            }
        elif part == "requirement":
            summary[part][setting[0]] = {
                rule: {
                    name: statistics.fmean(sample[f"{rule}: {name}"] for sample in samples)
                    for name in ("held", "violation", "value")
                }
                for rule in RULES
            }
        else:
            means = {rule: statistics.fmean(sample[rule] for sample in samples) for rule in ("plugin", "empirical")}
            summary[part].append({"classes": setting[0], "rows": setting[1], "metric": setting[2], **means})
    return summary


def write_page(summary: dict[str, Any], out: Path | None) -> None:
    """Write the page with its tables, and the figures as JSON."""
    from studies.common import ROOT, publish, table  # needs matplotlib, which machines that only simulate may lack

    values = [
        [described, ESTIMATES[name], f"{figures['bias']:+.3f}", f"{figures['error']:.3f}"]
        for kind, described in KINDS.items()
        for name, figures in summary["value"][kind].items()
    ]
    requirements = [
        [shape, described, f"{figures['held']:.0%}", f"{figures['violation']:.3f}", f"{figures['value']:.3f}"]
        for shape in SCORES
        for rule, described in RULES.items()
        for figures in [summary["requirement"][shape][rule]]
    ]
    classes = [
        [row["classes"], row["rows"], row["metric"], f"{row['plugin']:.3f}", f"{row['empirical']:.3f}"]
        for row in summary["classes"]
    ]
    parts = {
        "value": table(["choice", "estimate", "bias", "root mean square error"], values),
        "requirement": table(
            ["scores", "requirement met on", "holds on new rows", "mean violation", "value"], requirements
        ),
        "classes": table(["classes", "rows", "metric", "plug-in", "empirical"], classes),
    }
    publish(out or ROOT, PAGE, parts, "few_rows", summary)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="where docs/ and studies/results/ are written")
    parser.add_argument("--folder", type=Path, default=Path("runs/few_rows"), help="where finished samples are kept")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes; 0 to simulate nothing")
    parser.add_argument("--no-page", action="store_true", help="only simulate")
    parser.add_argument("--quick", action="store_true", help="a tiny version: does it run?")
    options = parser.parse_args(arguments)
    results = run(all_cells(options.quick), options.folder / "samples.jsonl", options.jobs)
    if not options.no_page:
        write_page(summarise(results), options.out)


if __name__ == "__main__":
    main()
