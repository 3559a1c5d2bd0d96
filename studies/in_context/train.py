"""Train the in-context classifier on made-up tables, in sessions that continue each other.

    python -m studies.in_context.train FOLDER --seconds 1000

FOLDER holds the whole state (``state.safetensors``, replaced atomically) and ``log.jsonl``; a killed run goes on from
its last state. Only averaged weights outlive a session's machine. A run in an empty folder starts from ``--weights``,
by default the shipped ones, unless ``--settings`` asks for a new network. It warms up again, and the moments of the
optimisers start at zero.

The learning rate warms up, stays constant, and falls in the last part of the session; weights are averaged over about
the last thousand steps. So the averaged weights of every session can be used, and the next session can go on from them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit.tabular.families.context_network import WEIGHTS, read_metadata
from studies.in_context import network
from studies.in_context.network import MATRICES, METRICS, Network, Output, Settings, cell_layer, row_layer
from studies.in_context.prior import Shape, draw_tables

#: Steps of warming up, at the start of every session.
WARM_UP = 200
#: Weights are averaged every so many steps, over about this many steps.
AVERAGE_EVERY, AVERAGE_OVER = 10, 700
#: The coefficients of the quintic iteration of Muon (Jordan et al. 2024).
QUINTIC = (3.4445, -4.7750, 2.0315)


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes:
        tokens: Cells per step, about.
        columns: The most columns.
        rows: The fewest and the most rows.
        easy_steps: Steps in which the largest tables grow from small to this size.
        rate: Learning rate.
        decay: Weight decay.
        metric_weight: Weight of the metric's soft loss against cross-entropy.
        several_classes: Share of steps with 3 to 10 classes.
    """

    tokens: int = 500_000
    columns: int = 60
    rows: tuple[int, int] = (50, 1500)
    easy_steps: int = 1500
    rate: float = 3e-3
    decay: float = 0.01
    metric_weight: float = 0.2
    several_classes: float = 0.0


@dataclass(frozen=True)
class Draw:
    """What a step trains on: the shape of its tables, and how their rows are used.

    Attributes:
        shape: The shape of the tables.
        labelled: Number of labelled rows.
        visible: Number of rows that may be looked at, labelled or not.
    """

    shape: Shape
    labelled: int
    visible: int


def draw_step(plan: Plan, step: int) -> Draw:
    """Draw the shape of a step's tables; the same step has the same shape in every run."""
    rng = random.Random(step)
    hard = min(1.0, (step + 1) / plan.easy_steps)
    low, high = plan.rows
    most_rows = max(low + 1, round(low * (high / low) ** (0.5 + 0.5 * hard)))
    most_columns = max(3, round(plan.columns ** (0.6 + 0.4 * hard)))
    rows = round(math.exp(rng.uniform(math.log(low), math.log(most_rows))) / 8) * 8
    columns = round(math.exp(rng.uniform(math.log(2), math.log(most_columns))))
    classes = rng.randint(3, 10) if rng.random() < plan.several_classes else 2
    tables = min(1024, max(4, plan.tokens // (rows * (columns + 1))))
    labelled = round(rows * rng.uniform(0.5, 0.92))
    visible = labelled if rng.random() < 0.6 else rng.randint(labelled, rows)
    return Draw(Shape(tables, rows, columns, classes), labelled, visible)


def soft_values(decisions: Tensor, y: Tensor) -> Tensor:
    """Return each metric of soft decisions ``(b, q)`` as a loss, ``(len(METRICS), b)``; cross-entropy has 0.

    A metric v in which lower is better becomes v / (v + v0), where v0 is its value if every row is called negative.
    """
    p, target = torch.sigmoid(decisions), y.float()
    positives, size = target.sum(1), y.shape[1]
    tp, predicted = (p * target).sum(1), p.sum(1)
    parts = (tp, predicted - tp, positives - tp, size - positives - predicted + tp)
    soft = Counts(*(part[:, None] for part in parts), exclusive=False)
    zero = torch.zeros_like(positives)
    nothing = Counts(*(part[:, None] for part in (zero, zero, positives, size - positives)), exclusive=False)
    losses = [zero]
    for name in METRICS[1:]:
        metric = get_metric(name)
        value = metric(soft).squeeze(1)
        losses.append(value / (value + metric(nothing).squeeze(1) + 1e-6) if metric.minimize else 1 - value)
    return torch.stack(losses)


@dataclass(frozen=True)
class Losses:
    """The loss of a step; for the log, cross-entropy over the entropy of the shares, and the metric's loss."""

    total: Tensor
    relative: Tensor
    metric: Tensor


def step_losses(output: Output, context: Tensor, y: Tensor, metric: Tensor, weight: float) -> Losses:
    """Return the losses of the rows without labels.

    Cross-entropy is divided by the root of the entropy of the classes' shares: otherwise tables with rare positives,
    whose cross-entropy is small, would hardly count. Tables count if both classes have two labelled rows.

    Args:
        output: What the network says about these rows.
        context: Class numbers of the labelled rows ``(b, m)``.
        y: Class numbers of the rows to predict ``(b, q)``.
        metric: Number of each table's metric.
        weight: Weight of the metric's soft loss.
    """
    classes = output.logits.shape[-1]
    counts = F.one_hot(context, classes).sum(1)
    counted = ((counts > 0) & (counts < 2)).sum(1).eq(0) & (counts > 0).sum(1).ge(2)
    cross = F.cross_entropy(output.logits.transpose(1, 2), y, reduction="none").mean(1)
    shares = (counts + F.one_hot(y, classes).sum(1)) / (context.shape[1] + y.shape[1])
    entropy = torch.special.entr(shares).sum(1).clamp_min(0.02)
    tables = counted.sum().clamp_min(1)

    def mean(values: Tensor) -> Tensor:
        return torch.where(counted, values, 0.0).sum() / tables

    total, soft = mean(cross / entropy.sqrt()), torch.zeros_like(tables, dtype=torch.float32)
    if weight:
        chosen = soft_values(output.decisions, (y == 1).long()).gather(0, metric[None]).squeeze(0)
        # A metric says nothing of rows to predict without a positive one.
        soft = mean(torch.where((y == 1).any(1), chosen, 0.0))
        total = total + weight * soft
    return Losses(total, mean(cross / entropy).detach(), soft.detach())


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return about the nearest orthogonal matrix of each ``(..., in, out)`` by Newton-Schulz iterations."""
    low = torch.bfloat16 if matrices.is_cuda else torch.float32
    x = matrices.to(low)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices)


@dataclass
class Optimiser:
    """Muon for the stacked matrices, Adam for all other weights.

    Muon's change of a matrix has the root mean square of Adam's (Liu et al. 2025), so that both share a rate.

    Attributes:
        parameters: The weights by name.
        plan: Rate and decay.
        state: Moments by name.
        steps: Steps of this optimiser.
    """

    parameters: dict[str, Tensor]
    plan: Plan
    state: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        for name, value in self.parameters.items():
            for moment in ("first",) if name in MATRICES else ("first", "second"):
                self.state.setdefault(f"{name}.{moment}", torch.zeros_like(value))

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """Change the weights, at the rate times ``factor``; parts of gradients that are not finite count as 0."""
        self.steps += 1
        rate = self.plan.rate * factor
        gradients = {name: torch.nan_to_num(value.grad, 0, 0, 0) for name, value in self.parameters.items()}  # type: ignore[arg-type]
        norm = torch.stack(torch._foreach_norm(list(gradients.values()))).norm()
        for gradient in gradients.values():
            gradient.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))
        for name, value in self.parameters.items():
            first = self.state[f"{name}.first"]
            if name in MATRICES:
                first.lerp_(gradients[name], 0.05)
                change = orthogonalise(gradients[name].lerp(first, 0.95)) * (0.2 * max(value.shape[-2:]) ** 0.5)
                value.mul_(1 - rate * self.plan.decay)
            else:
                change = self._adam(name, gradients[name])
            value.sub_(change, alpha=rate)
            value.grad = None

    def _adam(self, name: str, gradient: Tensor) -> Tensor:
        first, second = self.state[f"{name}.first"], self.state[f"{name}.second"]
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient.square(), 0.02)
        return (first / (1 - 0.9**self.steps)) / ((second / (1 - 0.98**self.steps)).sqrt() + 1e-8)


class Training:
    """A run: the network, its optimiser, averaged weights and counters, which are saved and restored together."""

    def __init__(self, settings: Settings, plan: Plan, device: torch.device, compiled: bool = False) -> None:
        self.settings, self.plan, self.device = settings, plan, device
        self.network = Network(settings).to(device)
        self.optimiser = Optimiser(dict(self.network.named_parameters()), plan)
        self.average = {name: value.detach().clone() for name, value in self.network.named_parameters()}
        self.counters = {"steps": 0, "tables": 0, "cells": 0, "seconds": 0.0, "sessions": 0}
        self.low = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.layers: tuple[Callable[..., Tensor], Callable[..., Tensor]] = (cell_layer, row_layer)
        if compiled:
            self.layers = (torch.compile(cell_layer, dynamic=True), torch.compile(row_layer, dynamic=True))

    @property
    def steps(self) -> int:
        """Steps of all sessions."""
        return int(self.counters["steps"])

    def losses(self, draw: Draw) -> Losses:
        """Draw the tables of the next step, and return the network's losses on them."""
        step, shape = self.steps, draw.shape
        with torch.no_grad():
            x, y = draw_tables(shape, step, self.device)
            generator = torch.Generator(device=self.device).manual_seed(step)
            size = (shape.tables, shape.columns, self.settings.places)
            place = torch.randn(size, generator=generator, device=self.device)
            asked = torch.randint(0, 2 * len(METRICS), (shape.tables,), generator=generator, device=self.device)
            metric = torch.where((asked < len(METRICS)) & (shape.classes == 2), asked, 0)
        context, target = y[:, : draw.labelled], y[:, draw.labelled :]
        output = self.network(x, context, place, metric, draw.visible, self.low, self.layers)
        weight = self.plan.metric_weight if shape.classes == 2 else 0.0
        return step_losses(output, context, target, metric, weight)

    def step(self, factor: float) -> Losses:
        """Train one step at the rate times ``factor``."""
        draw = draw_step(self.plan, self.steps)
        losses = self.losses(draw)
        losses.total.backward()
        self.optimiser.step(factor)
        self.counters["steps"] += 1
        self.counters["tables"] += draw.shape.tables
        self.counters["cells"] += draw.shape.tables * draw.shape.rows * draw.shape.columns
        if self.steps % AVERAGE_EVERY == 0:
            keep = 1 - min(1.0, max(AVERAGE_EVERY / AVERAGE_OVER, 2 * AVERAGE_EVERY / self.optimiser.steps))
            names = list(self.average)
            new = [self.network.get_parameter(name).detach() for name in names]
            torch._foreach_lerp_([self.average[name] for name in names], new, 1 - keep)
        return losses

    def save(self, folder: Path) -> None:
        """Write the whole state; a killed run finds the state before or this one."""
        tensors = {f"average.{name}": value for name, value in self.average.items()}
        tensors |= {f"weights.{name}": value.detach() for name, value in self.network.named_parameters()}
        tensors |= {f"moments.{name}": value for name, value in self.optimiser.state.items()}
        counters = json.dumps(self.counters | {"optimiser_steps": self.optimiser.steps})
        replace(folder / "state.safetensors", lambda path: save_file(tensors, path, {"counters": counters}))

    def restore(self, folder: Path) -> bool:
        """Read the state of a folder, if there is one."""
        path = folder / "state.safetensors"
        if not path.exists():
            return False
        self._load(load_file(path, str(self.device)))
        self.counters = read_metadata(path, "counters")
        self.optimiser.steps = self.counters.pop("optimiser_steps")
        return True

    def start_from(self, weights: Path) -> bool:
        """Read averaged weights that an earlier session wrote, if there are any."""
        if not weights.exists():
            return False
        stored = load_file(weights, str(self.device))
        values = {name: value.float() for name, value in stored.items()}
        self._load({f"{kind}.{name}": value for kind in ("average", "weights") for name, value in values.items()})
        saw = read_metadata(weights, "saw")
        self.counters = {name: saw[name] for name in self.counters}
        return True

    @torch.no_grad()
    def _load(self, tensors: dict[str, Tensor]) -> None:
        for key, value in tensors.items():
            kind, name = key.split(".", 1)
            if kind == "weights":
                self.network.get_parameter(name).copy_(value)
            else:
                (self.average if kind == "average" else self.optimiser.state)[name].copy_(value)

    def export(self, path: Path, log: dict[str, Any]) -> None:
        """Write the averaged weights as float16, with the sizes of the network and what it saw."""
        half = {name: value.half().contiguous() for name, value in self.average.items()}
        about = {"settings": json.dumps(self.settings.as_dict()), "saw": json.dumps(self.counters | {"last": log})}
        replace(path, lambda temporary: save_file(half, temporary, about))


def replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file beside the path, and move it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    write(temporary)
    temporary.replace(path)


def rate_factor(step: int, seconds: float, budget: float, cooldown: float) -> float:
    """Return the factor of the learning rate: warm-up by steps, then 1, then a straight fall to 0.05 by seconds."""
    left = max(0.0, budget - seconds)
    return min(1.0, (step + 1) / WARM_UP) * min(1.0, max(0.05, left / max(cooldown, 1e-9)))


def run(
    training: Training, folder: Path, *, seconds: float, cooldown: float, every: float, copies: Path | None
) -> None:
    """Train for some seconds, and save every few.

    Args:
        training: The run.
        folder: Where its state and log are.
        seconds: Seconds of this call, saving included.
        cooldown: The last seconds, in which the rate falls.
        every: Seconds between two saved states.
        copies: Where averaged weights go too; None for nowhere.
    """
    start = saved = time.perf_counter()
    before, first_step = training.counters["seconds"], training.steps
    training.counters["sessions"] += 1
    window: list[tuple[Tensor, Tensor]] = []
    record: dict[str, Any] = {}
    while (passed := time.perf_counter() - start) < seconds:
        losses = training.step(rate_factor(training.steps - first_step, passed, seconds, cooldown))
        window.append((losses.relative, losses.metric))
        if training.steps % 50 == 0:
            relative, metric = torch.stack([torch.stack(pair) for pair in window]).mean(0).tolist()
            window.clear()
            training.counters["seconds"] = round(before + time.perf_counter() - start, 1)
            record = {"relative_loss": round(relative, 4), "metric_loss": round(metric, 4)}
            line = json.dumps(training.counters | record)
            with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(line + "\n")
            print(line, flush=True)
        if time.perf_counter() - saved > every:
            saved = time.perf_counter()
            _save(training, folder, copies, record)
    training.counters["seconds"] = round(before + time.perf_counter() - start, 1)
    _save(training, folder, copies, record)


def _save(training: Training, folder: Path, copies: Path | None, record: dict[str, Any]) -> None:
    training.save(folder)
    training.export(folder / "network.safetensors", record)
    if copies is not None:
        training.export(copies, record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, from the state in the folder, from averaged weights, or from the start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--cooldown", type=float, default=0, help="last seconds, in which the rate falls")
    parser.add_argument("--every", type=float, default=60, help="seconds between two saved states")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="averaged weights to start from")
    parser.add_argument("--copies", type=Path, help="where averaged weights are written too")
    parser.add_argument("--settings", type=json.loads, default={}, help="sizes of a new network, as JSON")
    parser.add_argument("--plan", type=json.loads, default={}, help="fields of the plan, as JSON")
    parser.add_argument("--compile", action="store_true", help="compile the layers")
    parser.add_argument("--plain", action="store_true", help="no Triton kernel on a GPU")
    options = parser.parse_args(arguments)
    network.KERNEL = not options.plain
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape, which takes longer than the step
    options.folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(**options.settings)
    if not options.settings and options.weights.exists():
        settings = Settings(**read_metadata(options.weights, "settings"))
    training = Training(settings, Plan(**options.plan), device, options.compile)
    if not training.restore(options.folder) and not options.settings:
        training.start_from(options.weights)
    run(
        training,
        options.folder,
        seconds=options.seconds,
        cooldown=options.cooldown,
        every=options.every,
        copies=options.copies,
    )


if __name__ == "__main__":
    main()
