"""What helps where a batch of 32 rarely holds a positive? 1 % positives, the options of fit side by side, 5 problems.

Measures the test F1, at threshold 0.5 and at the threshold tuned on validation rows, of the F1 loss with each remedy of
docs/evidence/losses.md, beside cross-entropy. Fills in that page.

    python -m studies.small_batches
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from metricfit import MetricLoss, RunningCounts, SurrogateFBetaLoss
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.losses.gradient_watch import DeadGradientWarning
from metricfit.train import Batches
from metricfit_papers.populations import fit_population
from studies.common import F1, Problem, f1_scores, network, options, problem, publish, spread, table

PRIOR, DISTANCE, BATCH, LARGE, LR = 0.01, 3.0, 32, 512, 1e-3


def f1_loss(memory: RunningCounts | None = None) -> nn.Module:
    return MetricLoss("f1", memory=memory)


def mix() -> nn.Module:
    return Mix((WeightedBCELoss(), 1.0), (f1_loss(), 0.5))


#: The objective, and what fit is told besides.
ROWS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "cross-entropy": (WeightedBCELoss, {}),
    "F1 loss": (f1_loss, {}),
    "F1 loss, `stratified=True`": (f1_loss, {"batch_size": Batches(BATCH, stratified=True)}),
    "F1 loss, `oversample=0.1`": (f1_loss, {"batch_size": Batches(BATCH, oversample=0.1)}),
    'F1 loss, `class_weight="balanced"`': (f1_loss, {"class_weight": "balanced"}),
    "F1 loss, `memory=RunningCounts()`": (lambda: f1_loss(RunningCounts()), {}),
    "`SurrogateFBetaLoss`": (lambda: SurrogateFBetaLoss(prior=PRIOR), {}),
    "cross-entropy + 0.5 F1 loss": (mix, {}),
    "F1 loss, batches of 512, as many epochs": (f1_loss, {"batch_size": LARGE}),
    "F1 loss, batches of 512, as many steps": (f1_loss, {"batch_size": LARGE, "longer": LARGE // BATCH}),
}


def run(objective: nn.Module, told: dict[str, Any], problems: list[Problem], epochs: int) -> list[F1]:
    """One network a problem, all trained as one population; of each the weights that were best on its validation."""
    parts = [rows for data in problems for rows in (data.train, data.validation)]
    numbers = torch.arange(sum(len(rows.y) for rows in parts)).split([len(rows.y) for rows in parts])
    together = torch.cat([rows.x for rows in parts]), torch.cat([rows.y for rows in parts]).long()
    told = {"batch_size": BATCH, "lr": LR, "monitor": "best f1", "progress": False, "longer": 1} | told
    models = [network(seed) for seed in range(len(problems))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadGradientWarning)  # of batches without positives, which are the subject
        splits = list(zip(numbers[::2], numbers[1::2], strict=True))
        fit_population(models, together, objective, splits=splits, epochs=epochs * told.pop("longer"), **told)
    with torch.no_grad():
        return [
            f1_scores(model(data.validation.x).squeeze(1), model(data.test.x).squeeze(1), data)
            for model, data in zip(models, problems, strict=True)
        ]


def main(arguments: list[str] | None = None) -> None:
    given = options(__doc__, arguments)
    count, epochs, sizes = (2, 1, (300, 300, 300)) if given.quick else (5, 5, (10_000, 10_000, 50_000))
    problems = [problem(seed, sizes, PRIOR, DISTANCE) for seed in range(count)]
    started, results = time.perf_counter(), {}
    for name, (make, told) in ROWS.items():
        results[name] = run(make(), told, problems, epochs)
        print(name, spread(f1.at_half for f1 in results[name]), f"{time.perf_counter() - started:.0f} s", flush=True)
    rows = [
        (name, spread(f1.at_half for f1 in scores), spread(f1.tuned for f1 in scores))
        for name, scores in results.items()
    ]
    settings = {"prior": PRIOR, "distance": DISTANCE, "batch": BATCH, "lr": LR, "epochs": epochs, "rows": sizes}
    scores = [{"loss": name, "f1": f1} for name, f1 in results.items()]
    parts = {"small batches": table(["what is trained", "F1 at 0.5", "F1, tuned threshold"], rows)}
    publish(given.out, "evidence/losses.md", parts, "small_batches", {"settings": settings, "scores": scores})


if __name__ == "__main__":
    main()
