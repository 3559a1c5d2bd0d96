"""Does RunningCounts help where a batch rarely holds a positive? 0.2 % positives, batches of 32, 2,000 steps, 10 seeds.

Measures the test F1, at threshold 0.5 and at the threshold tuned on validation rows, of the F1 loss without memory and
with three decays, alone and mixed with cross-entropy, beside cross-entropy, predicting all positive, and the best that
any model can do. Fills in docs/evidence/losses.md and draws its picture.

    python -m studies.memory
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import torch
from torch import nn

from metricfit import MetricLoss, RunningCounts
from metricfit.losses import Mix
from metricfit.train import start_at_prior
from studies.common import F1, Population, Problem, f1_scores, network, options, problem, publish, spread, table

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PRIOR, DISTANCE, BATCH = 0.002, 3.0, 32
LEARNING_RATES = (1e-3, 1e-2)
ALL_POSITIVE = 2 * PRIOR / (1 + PRIOR)
Results = dict[tuple[str, float], list[F1]]


def f1_loss(decay: float | None = None) -> MetricLoss:
    # Unchecked, for speed; checked, it would warn of a dead gradient at the first batch without positives.
    return MetricLoss("f1", memory=None if decay is None else RunningCounts(decay), validate=False)


def mixed(decay: float | None = None) -> Mix:
    return Mix((nn.BCEWithLogitsLoss(), 1.0), (f1_loss(decay), 0.5))


LOSSES: dict[str, Callable[[], nn.Module]] = {
    "BCE": nn.BCEWithLogitsLoss,
    "F1 loss, no memory": f1_loss,
    "F1 loss, decay 0.9": lambda: f1_loss(0.9),
    "F1 loss, decay 0.99": lambda: f1_loss(0.99),
    "F1 loss, decay 0.999": lambda: f1_loss(0.999),
    "BCE + 0.5 F1 loss, no memory": mixed,
    "BCE + 0.5 F1 loss, decay 0.99": lambda: mixed(0.99),
}


def run(make: Callable[[], nn.Module], problems: list[Problem], lr: float, steps: int) -> list[F1]:
    models = [start_at_prior(network(seed), PRIOR) for seed in range(len(problems))]
    population = Population(models, problems)
    return population.train([make() for _ in problems], steps=steps, batch=BATCH, lr=lr).scores()


def ceiling(data: Problem) -> F1:
    """The F1 of the true log-odds; with its tuned threshold no model beats it but by luck."""
    direction = torch.full((data.test.x.shape[1],), DISTANCE / data.test.x.shape[1] ** 0.5)
    offset = DISTANCE**2 / 2 - torch.logit(torch.tensor(PRIOR))
    return f1_scores(data.validation.x @ direction - offset, data.test.x @ direction - offset, data)


def median(scores: list[F1], rule: str) -> float:
    return statistics.median(getattr(score, rule) for score in scores)


def row(name: str, lr: str, scores: list[F1]) -> tuple[str, ...]:
    nothing = f"{sum(score.at_half == 0 for score in scores)} of {len(scores)}"
    return name, lr, spread(score.at_half for score in scores), nothing, spread(score.tuned for score in scores)


def verdict(results: Results) -> str:
    """Each decay against no memory and against twice predicting all positive, at every learning rate."""
    lines = []
    for lr in LEARNING_RATES:
        none = results["F1 loss, no memory", lr]
        for decay in ("0.9", "0.99", "0.999"):
            with_memory = results[f"F1 loss, decay {decay}", lr]
            cells = [f"{lr:g}", decay]
            for rule in F1._fields:
                ours, theirs = median(with_memory, rule), median(none, rule)
                wins = sum(getattr(a, rule) > getattr(b, rule) for a, b in zip(with_memory, none, strict=True))
                met = ours > theirs and ours > 2 * ALL_POSITIVE
                cells.append(f"{'yes' if met else '**no**'}: {ours:.3f} v {theirs:.3f}, {wins} of {len(none)} seeds")
            lines.append(cells)
    return table(["learning rate", "decay", "threshold 0.5", "tuned threshold"], lines)


def draw(results: Results, best: list[F1], where: Path) -> None:
    """Every seed as a dot, medians as bars; the dashed line is the true log-odds, tuned."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axes, (rule, title) in zip(
        panels, {"at_half": "threshold 0.5", "tuned": "tuned threshold"}.items(), strict=True
    ):
        for shift, (lr, colour) in zip((-0.15, 0.15), zip(LEARNING_RATES, ("C0", "C1"), strict=True), strict=True):
            for row, name in enumerate(LOSSES):
                values = [getattr(score, rule) for score in results[name, lr]]
                height = [row + shift] * len(values)
                axes.scatter(values, height, s=14, color=colour, alpha=0.35, linewidths=0)
                label = f"learning rate {lr:g}" if row == 0 else None
                axes.plot(median(results[name, lr], rule), row + shift, "|", color=colour, ms=11, mew=2.5, label=label)
        axes.axvline(median(best, "tuned"), color="0.4", linestyle="--", linewidth=1)
        axes.set(title=title, xlabel="test F1")
    panels[0].set_yticks(range(len(LOSSES)), list(LOSSES))
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    figure.savefig(where, metadata={"Date": None})
    plt.close(figure)


def write_up(out: Path, settings: dict[str, Any], results: Results, best: list[F1]) -> None:
    rows = [
        ("predicting all positive", "", f"{ALL_POSITIVE:.3f}", "", f"{ALL_POSITIVE:.3f}"),
        *(row(name, f"{lr:g}", scores) for (name, lr), scores in results.items()),
        row("the true log-odds", "", best),
    ]
    parts = {
        "memory": table(["loss", "learning rate", "F1 at 0.5", "seeds at 0", "F1, tuned threshold"], rows),
        "memory verdict": verdict(results),
    }
    scores = [{"loss": name, "lr": lr, "f1": f1} for (name, lr), f1 in results.items()]
    draw(results, best, out / "docs" / "img" / "memory-scores.svg")
    record = {"settings": settings, "all_positive": ALL_POSITIVE, "ceiling": best, "scores": scores}
    publish(out, "evidence/losses.md", parts, "memory", record)


def main(arguments: list[str] | None = None) -> None:
    given = options(__doc__, arguments)
    seeds, steps, sizes = (2, 3, (1_000, 1_000, 1_000)) if given.quick else (10, 2_000, (50_000, 50_000, 200_000))
    problems = [problem(seed, sizes, PRIOR, DISTANCE) for seed in range(seeds)]
    started = time.perf_counter()
    results: Results = {}
    for lr in LEARNING_RATES:
        for name, make in LOSSES.items():
            results[name, lr] = run(make, problems, lr, steps)
            print(*row(name, f"{lr:g}", results[name, lr]), f"{time.perf_counter() - started:.0f} s", flush=True)
    settings = {"prior": PRIOR, "distance": DISTANCE, "batch": BATCH, "steps": steps, "rows": sizes}
    write_up(given.out, settings, results, [ceiling(data) for data in problems])


if __name__ == "__main__":
    main()
