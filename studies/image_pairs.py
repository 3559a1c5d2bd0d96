"""METRO, and the penalty-barrier method, on pairs of CIFAR-10 classes with few positives.

    python -m studies.image_pairs --data ../shared/data --out runs/image_pairs   # one GPU; finished problems are kept
    python -m studies.image_pairs_page --cells runs/image_pairs                  # collect them, and fill in the page

Images, network, batches and ten splits are the ones of the paper on constrained training (300 negatives to train on,
100 for validation). A problem is a pair and a ratio. Two questions are asked:

- ``losses``: METRO (``studies.metro``) beside other losses, at 1:19. Every loss has the same three learning rates and
  METRO five levels, so "weights chosen" has five weights. The candidate with the best mean validation value is kept:
  the AUC for the columns of ranking, and F1 at 0.5 for the columns of F1.
- ``constraints``: the ranking constraint on trained networks of cross-entropy, by ``AugmentedLagrangian`` and by the
  stochastic penalty-barrier method (SPBM, in the package humancompatible-train). Both have five pairs of settings and
  three margins, chosen by the mean validation AUC.

All networks of a problem are one stack with one product of matrices per layer. Each keeps the weights with its best
validation value, and stops to count after as many epochs without a better one as the paper's patience.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricfit import Counts, MetricLoss, metrics
from metricfit.curves import auroc, fpr_at_tpr
from metricfit.losses import FocalLoss, Mix, PairHingeLoss, WeightedBCELoss
from metricfit.losses.ranking import PartialAUCLoss
from metricfit.stats import delong_test
from metricfit_papers.images.image_tasks import CifarPair
from metricfit_papers.models.construction import build_network
from metricfit_papers.specs.table_spec import ProtocolSpec
from studies.metro import LEVELS, METRO, WEIGHTS, chosen_weight, metro_loss

NETWORK = "small_cnn(widths=[16, 32, 64])"
PAIRS = {"airplane v automobile": (0, 1), "frog v horse": (6, 7)}
RATIOS = (2, 9, 19)
SPLITS, BATCH, EPOCHS, PATIENCE = 10, 32, 200, 30
RATE, RATES = 0.003, (0.001, 0.003, 0.01)
MARGINS = (1.0, 1.5, 2.0)
#: mu and rho of the paper's search.
LAGRANGIAN = ((0.2, 3), (0.2, 4), (0.3, 2), (0.3, 3), (0.3, 4))
#: The first multiplier, the part of it that is kept, and the part of the penalty that is kept.
BARRIER = ((1e-9, 0.1, 0.1), (0.1, 0.1, 0.1), (0.1, 0.5, 0.1), (0.1, 0.9, 0.1), (0.1, 0.9, 0.9))
#: How far a constraint of the penalty-barrier method may be violated, so that its multiplier can fall again.
TOLERANCE = 0.1
MULTIPLIERS, PENALTIES = (1e-9, 100.0), (0.1, 1.0)
AUC, F1 = "auroc", "f1"

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]


class Part(NamedTuple):
    """Images ``(splits, n, channels, height, width)`` as bytes, and labels ``(splits, n)``."""

    x: Tensor
    y: Tensor


class Problem(NamedTuple):
    """The parts of ten splits; all splits have the same test images."""

    train: Part
    validation: Part
    test: Part

    @property
    def prior(self) -> float:
        """The share of positives to train on."""
        return float(self.train.y.float().mean())


def make_problem(data: Path, pair: str, ratio: int, device: torch.device, *, splits: int = SPLITS) -> Problem:
    """Draw the images as the tables of the paper do."""
    negative, positive = PAIRS[pair]
    task = CifarPair(negative, positive, ratio)
    pixels, labels = map(torch.from_numpy, task.images(str(data)))
    draws = list(task.trials(str(data), splits, ProtocolSpec("paper", "ten splits")))
    parts = [[draw[place] for draw in draws] for place in range(3)]
    rows = [torch.stack([torch.from_numpy(chosen) for chosen in part]) for part in (*parts[:2], parts[2][:1])]
    return Problem(*(Part(pixels[chosen].to(device), labels[chosen].to(device)) for chosen in rows))


class Stack:
    """Copies of the paper's network, ``versions`` for each split; the first weights of a split are the same."""

    def __init__(self, versions: int, splits: int, device: torch.device) -> None:
        self.splits = splits
        models = [build_network(NETWORK, 3, trial) for trial in range(splits)]
        layers = [[m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)] for model in models]
        self.weights = []
        for same in zip(*layers, strict=True):
            weight = torch.stack([layer.weight.detach().flatten(1) for layer in same])
            bias = torch.stack([layer.bias.detach()[:, None] for layer in same])
            self.weights += [each.repeat(versions, 1, 1).to(device) for each in (weight, bias)]

    def __call__(self, x: Tensor) -> Tensor:
        """Logits ``(n, networks)`` of bytes ``(splits, n, channels, height, width)``, or of one set for all splits."""
        h = ((x.float() / 255 - 0.5) / 0.25).transpose(1, 2)
        for weight, bias in zip(self.weights[:-2:2], self.weights[1:-2:2], strict=True):
            versions = len(weight) // len(h)  # more than one in the first layer, which sees the images of the splits
            by_split = [w.unflatten(0, (versions, -1)).transpose(0, 1).flatten(1, 2) for w in (weight, bias)]
            out = torch.baddbmm(by_split[1], by_split[0], windows(h)).view(-1, *h.shape[2:])
            h = F.max_pool2d(out, 2).relu().view(len(h), versions, weight.shape[1], h.shape[2], *_halved(h))
            h = h.transpose(0, 1).flatten(0, 1)
        features = h.transpose(1, 2).flatten(2)
        return (features @ self.weights[-2].transpose(1, 2) + self.weights[-1]).squeeze(2).T


def windows(h: Tensor) -> Tensor:
    """The 3 x 3 windows of images ``(m, channels, n, height, width)``, ``(m, channels * 9, n * height * width)``."""
    views = F.pad(h, (1, 1, 1, 1)).unfold(3, 3, 1).unfold(4, 3, 1)
    return views.permute(0, 1, 5, 6, 2, 3, 4).reshape(len(h), h.shape[1] * 9, -1)


def _halved(h: Tensor) -> tuple[int, int]:
    return h.shape[3] // 2, h.shape[4] // 2


def spread(values: Sequence[float], splits: int, device: torch.device) -> Tensor:
    """One number per version as one per network."""
    return torch.tensor(values, device=device).repeat_interleave(splits)


class Adam:
    """Adam with a learning rate of its own for every network."""

    def __init__(self, weights: Sequence[Tensor], rate: Tensor) -> None:
        self.weights, self.rate, self.step_number = weights, rate[:, None, None], 0
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the weights in place."""
        self.step_number += 1
        first, second = (1 - beta**self.step_number for beta in (0.9, 0.999))
        for weight, gradient, (mean, square) in zip(self.weights, gradients, self.moments, strict=True):
            mean.lerp_(gradient, 0.1)
            square.lerp_(gradient.square(), 0.001)
            weight -= self.rate / first * mean / ((square / second).sqrt() + 1e-8)


class Constraint(ABC):
    """A way to train under constraints; one column per network."""

    @abstractmethod
    def term(self, logits: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """What each network's loss has more for these training rows, whose multipliers are moved."""

    @abstractmethod
    def observe(self, value: Tensor) -> None:
        """Take the networks' AUC of the validation images, after an epoch."""


def violations(logits: Tensor, y: Tensor, margin: Tensor) -> Tensor:
    """For every positive, the sum over the negatives of how far it is less than the margin above; 0 for negatives."""
    short = (margin - logits[:, None] + logits[None]).relu()
    return (short * (1 - y)[None]).sum(1) * y


class Lagrangian(Constraint):
    """``AugmentedLagrangian`` with a ``RankingConstraint``, as in the paper, of many networks at once."""

    def __init__(self, rows: int, mu: Tensor, rho: Tensor, margin: Tensor) -> None:
        self.mu, self.rho, self.margin = mu.clone(), rho, margin
        self.multiplier = torch.zeros(rows, len(mu), device=mu.device)
        self.observed = torch.full_like(mu, -torch.inf)

    def term(self, logits: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """The terms of Eq. 8."""
        q = violations(logits, y, self.margin)
        positives = y.sum(0)
        pairs = (positives * (len(y) - positives)).clamp(min=1)
        value = (q * (0.5 * self.mu * q + self.multiplier[rows])).sum(0) / pairs
        self.multiplier[rows] += self.mu * q.detach()
        return value

    def observe(self, value: Tensor) -> None:
        """Let mu grow where the value fell."""
        self.mu = torch.where(value < self.observed, (self.mu * self.rho).clamp(max=1e4), self.mu)
        self.observed = value


def barrier(t: Tensor) -> tuple[Tensor, Tensor]:
    """The quadratic-logarithmic penalty and its derivative."""
    inside = t >= -0.5
    away = torch.where(inside, -1.0, t)
    value = torch.where(inside, t + 0.5 * t * t, -0.25 * (-2 * away).log() - 0.375)
    return value, torch.where(inside, 1 + t, -0.25 / away)


class Barrier(Constraint):
    """The stochastic penalty-barrier method: multipliers move by a factor, and penalties adapt.

    The constraint of a positive is the mean violation over the negatives, less the tolerance. Multipliers and penalties
    of a step are the ones before it, as in the package.
    """

    def __init__(self, rows: int, first: Tensor, kept: Tensor, kept_penalty: Tensor, margin: Tensor) -> None:
        self.kept, self.kept_penalty, self.margin = kept, kept_penalty, margin
        self.multiplier = first.repeat(rows, 1)
        self.penalty = torch.full_like(self.multiplier, PENALTIES[1])

    def term(self, logits: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """The terms of the positives among these rows."""
        negatives = (len(y) - y.sum(0)).clamp(min=1)
        c = violations(logits, y, self.margin) / negatives - TOLERANCE
        return (self.surrogate(c, rows, counts=y > 0) * y).sum(0)

    def surrogate(self, c: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
        """The terms of constraints, after which the multipliers and penalties of the ones that count are moved."""
        multiplier, penalty = self.multiplier[rows], self.penalty[rows]
        value, slope = barrier(c / penalty)
        with torch.no_grad():
            moved = (multiplier * (self.kept + (1 - self.kept) * slope)).clamp(*MULTIPLIERS)
            adapted = penalty * (self.kept_penalty + (1 - self.kept_penalty) / (barrier(c)[1] + 1e-8))
            self.multiplier[rows] = torch.where(counts, moved, multiplier)
            self.penalty[rows] = torch.where(counts, adapted.clamp(*PENALTIES), penalty)
        return multiplier * penalty * value

    def observe(self, value: Tensor) -> None:
        """Nothing here depends on validation images."""


def scores(logits: Tensor, y: Tensor) -> dict[str, Tensor]:
    """AUC and F1 at 0.5 of every network, from logits ``(n, networks)`` and labels ``(splits, n)``."""
    labels, z = y.repeat(logits.shape[1] // len(y), 1).bool(), logits.T
    positives, negatives = z[labels].view(len(z), -1), z[~labels].view(len(z), -1)
    difference = positives.unsqueeze(2) - negatives.unsqueeze(1)
    area = ((difference > 0).double() + 0.5 * (difference == 0)).mean((1, 2))
    both, called = (positives >= 0).sum(1), (z >= 0).sum(1)
    return {AUC: area, F1: 2 * both.double() / (called + positives.shape[1])}


class Best:
    """The weights with the best value of each network so far, until ``patience`` epochs have brought no better one."""

    def __init__(self, weights: Sequence[Tensor], patience: int) -> None:
        self.weights, self.patience = [w.clone() for w in weights], patience
        self.value = torch.full((len(weights[0]),), -torch.inf, dtype=torch.float64, device=weights[0].device)
        self.since = torch.zeros_like(self.value)

    def look(self, value: Tensor, weights: Sequence[Tensor]) -> None:
        """Keep the weights of the networks whose value is better."""
        better = (value > self.value) & (self.since < self.patience)
        self.value = torch.where(better, value, self.value)
        self.since = torch.where(better, 0.0, self.since + 1)
        for kept, weight in zip(self.weights, weights, strict=True):
            kept.copy_(torch.where(better[:, None, None], weight, kept))

    @property
    def finished(self) -> bool:
        """Whether no network counts any more."""
        return bool((self.since >= self.patience).all())


def train(
    stack: Stack,
    problem: Problem,
    objective: Objective,
    rate: Tensor,
    monitors: Sequence[str],
    *,
    epochs: int,
    patience: int = PATIENCE,
    observe: Callable[[Tensor], None] = lambda value: None,
) -> dict[str, Best]:
    """Train a stack, and return the best weights by each validation value."""
    weights = stack.weights
    adam = Adam(weights, rate)
    best = {monitor: Best(weights, patience) for monitor in monitors}
    generator = torch.Generator().manual_seed(0)
    y = problem.train.y.repeat(len(rate) // stack.splits, 1).T.float()
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=generator).to(rate.device).split(BATCH):
            with torch.enable_grad():
                leaves = [w.detach().requires_grad_() for w in weights]
                stack.weights = leaves
                total = objective(stack(problem.train.x[:, rows]), y[rows], rows)
            gradients = torch.autograd.grad(total, leaves)
            stack.weights = weights
            adam.step(gradients)
        with torch.no_grad():
            values = scores(stack(problem.validation.x), problem.validation.y)
        observe(values[AUC])
        for monitor, kept in best.items():
            kept.look(values[monitor], weights)
        if all(kept.finished for kept in best.values()):
            break
    return best


@torch.no_grad()
def test_logits(stack: Stack, problem: Problem, best: Best) -> Tensor:
    """Logits ``(versions, splits, n)`` of the test images."""
    stack.weights = best.weights
    parts = [stack(part.expand(stack.splits, -1, -1, -1, -1)) for part in problem.test.x.split(BATCH, dim=1)]
    return torch.cat(parts).double().cpu().T.unflatten(0, (-1, stack.splits))


def chosen(
    best: Best, logits: Tensor, y: Tensor, names: Sequence[tuple[str, Any]], base: Tensor | None = None
) -> tuple[dict[str, Any], Tensor]:
    """The numbers of each method's best version, and the ensemble of the first method."""
    of_version = best.value.cpu().view(len(names), -1).mean(1)
    cells: dict[str, Any] = {}
    for method in dict.fromkeys(name for name, _ in names):
        places = [place for place, (name, _) in enumerate(names) if name == method]
        place = max(places, key=lambda each: float(of_version[each]))
        members, mean = logits[place], logits[place].mean(0)
        base = mean if base is None else base
        cells[method] = {
            "setting": names[place][1],
            "validation": float(of_version[place]),
            "auc": auroc(mean, y),
            "p": delong_test(mean, base, y).p_value,
            "fpr95": fpr_at_tpr(mean, y, 0.95),
            "fpr90": fpr_at_tpr(mean, y, 0.9),
            "f1": f1_at_half(mean, y),
            "auc of one": statistics.fmean(auroc(each, y) for each in members),
            "f1 of one": statistics.fmean(f1_at_half(each, y) for each in members),
        }
    assert base is not None
    return cells, base


def f1_at_half(logits: Tensor, y: Tensor) -> float:
    return float(metrics.f1(Counts.from_labels(logits >= 0, y)))


#: The candidates of each loss: a setting, and a function from the share of positives to a loss of columns.
LOSSES: dict[str, list[tuple[Any, Callable[[float], nn.Module]]]] = {
    "cross-entropy": [(None, lambda prior: chosen_weight(0, prior))],
    "focal": [(None, lambda prior: FocalLoss(2.0, task="multilabel"))],
    "F1": [(None, lambda prior: MetricLoss("f1", task="multilabel"))],
    "cross-entropy + 0.5 F1": [
        (None, lambda prior: Mix((chosen_weight(0, prior), 1.0), (MetricLoss("f1", task="multilabel"), 0.5)))
    ],
    WEIGHTS: [(place, partial(chosen_weight, place)) for place in range(len(LEVELS))],
    METRO: [(level, partial(metro_loss, level)) for level in LEVELS],
    "pair hinge": [(None, lambda prior: PairHingeLoss(task="multilabel"))],
    "two-way partial AUC": [(None, lambda prior: PartialAUCLoss(0.8, max_fpr=0.5, task="multilabel"))],
}


def compare_losses(problem: Problem, rates: Sequence[float], epochs: int) -> dict[str, Any]:
    """Train every loss with every rate, and return what was chosen by each validation value."""
    splits, device = len(problem.train.y), problem.train.y.device
    runs = [(name, setting, make) for name, makers in LOSSES.items() for setting, make in makers]
    losses, width = [make(problem.prior).to(device) for _, _, make in runs], splits * len(rates)

    def objective(logits: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        parts = zip(losses, logits.split(width, 1), y.split(width, 1), strict=True)
        return sum((loss(z, labels) * width for loss, z, labels in parts), torch.zeros((), device=device))

    names = [(name, {"setting": setting, "rate": rate}) for name, setting, _ in runs for rate in rates]
    stack = Stack(len(names), splits, device)
    best = train(stack, problem, objective, spread(list(rates) * len(runs), splits, device), (AUC, F1), epochs=epochs)
    y = problem.test.y[0].cpu()
    return {monitor: chosen(kept, test_logits(stack, problem, kept), y, names)[0] for monitor, kept in best.items()}


def compare_constraints(problem: Problem, epochs: int) -> dict[str, Any]:
    """Train cross-entropy, and then on from its weights: without a constraint, and in both ways with one."""
    splits, device = len(problem.train.y), problem.train.y.device
    rows, y = problem.train.y.shape[1], problem.test.y[0].cpu()
    bce = WeightedBCELoss(task="multilabel")

    def plain(logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return bce(logits, labels) * logits.shape[1]

    stack = Stack(1, splits, device)
    first = train(stack, problem, plain, spread([RATE], splits, device), [AUC], epochs=epochs)[AUC]
    before, base = chosen(first, test_logits(stack, problem, first), y, [("cross-entropy", None)])

    lagrangian, penalty_barrier = list(product(LAGRANGIAN, MARGINS)), list(product(BARRIER, MARGINS))
    made: list[tuple[slice, Constraint]] = []
    start = splits
    for kind, grid in ((Lagrangian, lagrangian), (Barrier, penalty_barrier)):
        settings = torch.tensor([[*setting, margin] for setting, margin in grid], device=device)
        columns = settings.repeat_interleave(splits, 0).unbind(1)
        made.append((slice(start, start + len(columns[0])), kind(rows, *columns)))
        start += len(columns[0])

    def objective(logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        terms = [constraint.term(logits[:, part], labels[:, part], rows).sum() for part, constraint in made]
        return plain(logits, labels, rows) + sum(terms)

    def observe(value: Tensor) -> None:
        for part, constraint in made:
            constraint.observe(value[part].float())

    names: list[tuple[str, Any]] = [("trained on", None)]
    names += [("AugmentedLagrangian", [*setting, margin]) for setting, margin in lagrangian]
    names += [("SPBM", [*setting, margin]) for setting, margin in penalty_barrier]
    stack.weights = [w.repeat(len(names), 1, 1) for w in first.weights]
    rate = spread([RATE] * len(names), splits, device)
    best = train(stack, problem, objective, rate, [AUC], epochs=epochs, observe=observe)[AUC]
    return before | chosen(best, test_logits(stack, problem, best), y, names, base)[0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="contains images/cifar10")
    parser.add_argument("--out", type=Path, default=Path("runs") / "image_pairs")
    parser.add_argument("--questions", nargs="*", default=("losses", "constraints"))
    parser.add_argument("--pairs", nargs="*", default=tuple(PAIRS))
    parser.add_argument("--ratios", nargs="*", type=int, default=RATIOS, help="of constraints; losses are at 1:19")
    parser.add_argument("--rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    for question in options.questions:
        for pair, ratio in product(options.pairs, RATIOS[-1:] if question == "losses" else options.ratios):
            path = options.out / f"{question}-{pair.replace(' ', '_')}-{ratio}.json"
            if path.exists():
                continue
            started = time.perf_counter()
            problem = make_problem(options.data, pair, ratio, device, splits=options.splits)
            if question == "losses":
                found = compare_losses(problem, options.rates, options.epochs)
            else:
                found = compare_constraints(problem, options.epochs)
            seconds = time.perf_counter() - started
            cell = {"question": question, "pair": pair, "ratio": ratio, "seconds": seconds, "values": found}
            path.write_text(json.dumps(cell), encoding="utf-8")
            print(f"{path.stem}: {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
