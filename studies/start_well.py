"""Why metric losses stall, each cause shown by a run: flat steps, the learning rate, the first bias; and the remedies.

A small network, 1 % positives, batches of 512, 500 steps, 5 seeds. Measures the gradient that each loss sends to the
logits at the first step, how many runs raise DeadGradientWarning, and the test F1 at threshold 0.5 and at the threshold
tuned on validation rows. Fills in docs/evidence/losses.md and draws its pictures.

    python -m studies.start_well
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch
from torch import nn

from metricfit import Counts, MetricLoss, metrics, steps
from metricfit.losses import Mix
from metricfit.losses.gradient_watch import DeadGradientWarning
from metricfit.train import start_at_prior
from studies.common import F1, Population, Problem, network, options, problem, publish, spread, table

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PRIOR, DISTANCE, BATCH, LEARNING_RATE = 0.01, 3.0, 512, 3e-3
STEPS: dict[str, Callable[[], steps.Step]] = {
    "Linear(0.1)": steps.Linear,
    "Identity()": steps.Identity,
    "Sigmoid(10)": lambda: steps.Sigmoid(10),
    "Sigmoid(30)": lambda: steps.Sigmoid(30),
    "Sigmoid(73)": lambda: steps.Sigmoid(73),
    "RaisedCosine(0.1)": steps.RaisedCosine,
}
STARTS = ("prior", "default")
GRID = {
    "SGD": (torch.optim.SGD, (0.01, 0.1, 1.0, 10.0)),
    "Adam": (torch.optim.Adam, (1e-4, 1e-3, 1e-2, 1e-1)),
}
Make = Callable[[], nn.Module]


@dataclass
class Setting:
    """How long and on what: the full study, or its tiny version."""

    problems: list[Problem]
    steps: int


@dataclass
class Run:
    """What came of one loss with one start, over the seeds."""

    first_gradient: float
    warned: int
    scores: list[F1]

    def median(self, rule: str) -> float:
        """Of one of the two F1, over the seeds."""
        return statistics.median(getattr(score, rule) for score in self.scores)

    def cells(self) -> tuple[str, str]:
        """The two F1, for a table."""
        return spread(score.at_half for score in self.scores), spread(score.tuned for score in self.scores)


def f1_loss(step: Callable[[], steps.Step] = steps.Linear) -> MetricLoss:
    return MetricLoss("f1", step=step())


def mixed(step: Callable[[], steps.Step] = steps.Linear) -> Mix:
    return Mix((nn.BCEWithLogitsLoss(), 1.0), (f1_loss(step), 0.5))


def population(setting: Setting, start: str = "prior") -> Population:
    models = [network(seed) for seed in range(len(setting.problems))]
    return Population([start_at_prior(one, PRIOR) for one in models] if start == "prior" else models, setting.problems)


def gradient_size(make: Make, members: Population) -> float:
    """The absolute gradients of the logits, summed over all training rows; the median over the seeds."""
    logits = members.logits(members.x).detach().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadGradientWarning)
        sum(make()(x, y) for x, y in zip(logits, members.y, strict=True)).backward()
    return float(logits.grad.abs().sum(1).median())


def run(make: Make, setting: Setting, start: str = "prior", lr: float = LEARNING_RATE, **training: Any) -> Run:
    members = population(setting, start)
    size = gradient_size(make, members)
    losses = [make() for _ in setting.problems]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeadGradientWarning)
        members.train(losses, **({"steps": setting.steps, "batch": BATCH, "lr": lr} | training))
    return Run(size, sum(one.category is DeadGradientWarning for one in caught), members.scores())


def dead_starts(setting: Setting) -> dict[str, dict[str, Run]]:
    """Every step, from both starts."""
    losses: dict[str, Make] = {"BCE": nn.BCEWithLogitsLoss}
    losses |= {f"F1, {name}": lambda step=step: f1_loss(step) for name, step in STEPS.items()}
    return {name: {start: run(make, setting, start) for start in STARTS} for name, make in losses.items()}


def learning_rates(setting: Setting) -> dict[str, dict[str, dict[float, Run]]]:
    """Three losses by two optimisers and their learning rates."""
    losses: dict[str, Make] = {"BCE": nn.BCEWithLogitsLoss, "F1, Linear(0.1)": f1_loss, "BCE + 0.5 F1": mixed}
    return {
        optimizer: {
            name: {lr: run(make, setting, lr=lr, optimizer=rule) for lr in rates} for name, make in losses.items()
        }
        for optimizer, (rule, rates) in GRID.items()
    }


def gradients(setting: Setting) -> dict[tuple[str, str, float], dict[int, float]]:
    """How the gradient of the logits fares through training, where the learning rate matters most."""
    cases: dict[tuple[str, str, float], Make] = {
        ("BCE", "SGD", 0.1): nn.BCEWithLogitsLoss,
        ("F1, Linear(0.1)", "SGD", 0.1): f1_loss,
        ("F1, Linear(0.1)", "SGD", 10.0): f1_loss,
        ("F1, Linear(0.1)", "Adam", 0.1): f1_loss,
        ("F1, Sigmoid(30)", "SGD", 0.1): lambda: f1_loss(STEPS["Sigmoid(30)"]),
    }
    moments = [setting.steps * percent // 100 for percent in (0, 2, 10, 20, 60, 100)]
    traces = {}
    for case, make in cases.items():
        members, trace = population(setting), {}

        def watch(done: int, make: Make = make, members: Population = members, trace: dict = trace) -> None:
            if done in moments:
                trace[done] = gradient_size(make, members)

        losses = [make() for _ in setting.problems]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadGradientWarning)
            rule, _ = GRID[case[1]]
            members.train(losses, steps=setting.steps, batch=BATCH, lr=case[2], optimizer=rule, before_step=watch)
        watch(setting.steps)
        traces[case] = trace
    return traces


def remedies(setting: Setting, step: Callable[[], steps.Step]) -> tuple[dict[str, list[F1]], dict[str, list[float]]]:
    """The same dead start, as it is and with each remedy: final scores, and F1 at 0.5 through training, seed 0's."""
    scores, curves = {}, {}
    half = setting.steps // 2
    annealed = [MetricLoss("f1", step=steps.Annealed(steps.Linear(), step())) for _ in setting.problems]

    def advance(done: int) -> None:
        for loss in annealed:
            loss.step.advance(done / setting.steps)

    def each(make: Make) -> list[nn.Module]:
        return [make() for _ in setting.problems]

    plans: dict[str, list[tuple[list[nn.Module], int]]] = {
        "as it is": [(each(lambda: f1_loss(step)), setting.steps)],
        "Linear(0.1) instead": [(each(f1_loss), setting.steps)],
        "annealed from Linear(0.1)": [(annealed, setting.steps)],
        "BCE + 0.5 F1": [(each(lambda: mixed(step)), setting.steps)],
        "half BCE, then F1": [(each(nn.BCEWithLogitsLoss), half), (each(lambda: f1_loss(step)), half)],
        "BCE alone": [(each(nn.BCEWithLogitsLoss), setting.steps)],
    }
    for name, stages in plans.items():
        members, curve = population(setting), []

        def watch(done: int, members: Population = members, curve: list[float] = curve) -> None:
            advance(done)
            if done % max(1, setting.steps // 50) == 0:
                curve.append(f1_now(members))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadGradientWarning)
            for losses, number in stages:
                members.train(losses, steps=number, batch=BATCH, lr=LEARNING_RATE, before_step=watch)
        scores[name], curves[name] = members.scores(), [*curve, f1_now(members)]
    return scores, curves


@torch.no_grad()
def f1_now(members: Population) -> float:
    """The median over the seeds of the validation F1 at threshold 0.5."""
    logits = members.logits(torch.stack([data.validation.x for data in members.problems]))
    pairs = zip(logits, members.problems, strict=True)
    return statistics.median(metrics.f1(Counts.hard(x, data.validation.y)).item() for x, data in pairs)


def save(figure: Any, where: Path) -> None:
    figure.savefig(where, metadata={"Date": None})
    plt.close(figure)


def draw_slopes(where: Path) -> None:
    """What each step passes back to a logit, by the probability it stands at."""
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for name, step in STEPS.items():
        axes.semilogy(p, step().slope(p) * p * (1 - p), label=name)
    axes.axvline(PRIOR, color="0.5", linestyle=":", linewidth=1)
    axes.text(PRIOR + 0.008, 3e-17, f"start at the prior, {PRIOR:g}", color="0.35")
    axes.set(xlabel="probability p", ylabel="slope with respect to the logit", ylim=(1e-17, 60))
    figure.legend(frameon=False, loc="outside right upper")
    save(figure, where)


def draw_rates(grid: dict[str, dict[str, dict[float, Run]]], where: Path) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(7.5, 4), sharey=True, layout="constrained")
    for axes, (optimizer, losses) in zip(panels, grid.items(), strict=True):
        for colour, (name, by_rate) in enumerate(losses.items()):
            for rule, style in (("tuned", "-"), ("at_half", "--")):
                values = [one.median(rule) for one in by_rate.values()]
                label = f"{name}, {'tuned' if rule == 'tuned' else 'at 0.5'}"
                axes.semilogx(list(by_rate), values, style, color=f"C{colour}", marker="o", markersize=4, label=label)
        axes.set(title=optimizer, xlabel="learning rate")
    panels[0].set_ylabel("test F1, median of the seeds")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower center")
    save(figure, where)


def draw_curves(curves: dict[str, dict[str, list[float]]], total: int, where: Path) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(7.5, 4), sharey=True, layout="constrained")
    for axes, (step, lines) in zip(panels, curves.items(), strict=True):
        for name, values in lines.items():
            axes.plot([total * i / (len(values) - 1) for i in range(len(values))], values, label=name)
        axes.set(title=step, xlabel="training step")
    panels[0].set_ylabel("validation F1 at 0.5, median of the seeds")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower center")
    save(figure, where)


def the_warning() -> str:
    """What the library says of Sigmoid(73) on a fresh network that starts at the prior."""
    data = problem(0, (BATCH, 200, 200), PRIOR, DISTANCE).train
    model = start_at_prior(network(0), PRIOR)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeadGradientWarning)
        MetricLoss("f1", step=steps.Sigmoid(73))(model(data.x), data.y).backward()
    return "\n".join(f"> `DeadGradientWarning`: {one.message}" for one in caught)


def main(arguments: list[str] | None = None) -> None:
    given = options(__doc__, arguments)
    seeds, length, sizes = (2, 2, (1_000, 400, 400)) if given.quick else (5, 500, (10_000, 10_000, 50_000))
    setting = Setting([problem(seed, sizes, PRIOR, DISTANCE) for seed in range(seeds)], length)
    started = time.perf_counter()

    def report(what: str) -> None:
        print(f"{what}: {time.perf_counter() - started:.0f} s", flush=True)

    starts = dead_starts(setting)
    report("flat steps and first biases")
    grid = learning_rates(setting)
    traces = gradients(setting)
    report("learning rates")
    rescued, curves = {}, {}
    for name in ("Sigmoid(73)", "RaisedCosine(0.1)"):
        rescued[name], curves[name] = remedies(setting, STEPS[name])
    report("remedies")

    image = given.out / "docs" / "img"
    draw_slopes(image / "start-well-slopes.svg")
    draw_rates(grid, image / "start-well-rates.svg")
    draw_curves(curves, length, image / "start-well-remedies.svg")

    heads = ["F1 at 0.5", "F1, tuned threshold"]
    dead = [
        (name, f"{one['prior'].first_gradient:.1e}", f"{one['prior'].warned} of {seeds}", *one["prior"].cells())
        for name, one in starts.items()
    ]
    first = [
        (
            name,
            " / ".join(f"{one.first_gradient:.1e}" for one in both.values()),
            " / ".join(f"{one.warned} of {seeds}" for one in both.values()),
            *(" / ".join(f"{one.median(rule):.3f}" for one in both.values()) for rule in F1._fields),
        )
        for name, both in starts.items()
    ]
    names = list(next(iter(grid.values())))
    rates = [
        (
            optimizer,
            f"{lr:g}",
            *(f"{by[name][lr].median('at_half'):.3f} / {by[name][lr].median('tuned'):.3f}" for name in names),
        )
        for optimizer, by in grid.items()
        for lr in by[names[0]]
    ]
    rescue = [
        (step, name, *Run(0, 0, scores).cells()) for step, all_ in rescued.items() for name, scores in all_.items()
    ]
    parts = {
        "warning": the_warning(),
        "dead": table(["loss", "gradient at the start", "runs that warn", *heads], dead),
        "rates": table(["optimiser", "learning rate", *names], rates),
        "gradients": table(
            ["loss", "optimiser", "learning rate", *(f"step {done}" for done in next(iter(traces.values())))],
            [(*case, *(f"{size:.1e}" for size in trace.values())) for case, trace in traces.items()],
        ),
        "bias": table(
            ["loss", *(f"{head}: prior / default" for head in ("gradient", "runs that warn", *heads))], first
        ),
        "remedies": table(["step", "training", *heads], rescue),
    }
    settings = {
        "prior": PRIOR,
        "distance": DISTANCE,
        "batch": BATCH,
        "lr": LEARNING_RATE,
        "steps": length,
        "rows": sizes,
    }
    named = {", ".join(map(str, case)): trace for case, trace in traces.items()}
    record = {"settings": settings, "starts": starts, "rates": grid, "gradients": named, "remedies": rescued}
    publish(given.out, "evidence/losses.md", parts, "start_well", record)


if __name__ == "__main__":
    main()
