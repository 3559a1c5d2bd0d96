"""Soft and hard values of a metric tend to one limit as the number of samples grows: the proofs' draws, as numbers.

Tsoi et al. 2022, Section 4.2 and supplement 1.2, for F1, accuracy and AUROC; Tsoi et al. 2024, Section 5.2, for macro
F-beta. A hard decision is a Bernoulli (or categorical) draw, a soft one a Beta (or Dirichlet) draw with the same mean.
The probabilities are those from which the library's step makes these soft decisions.

    python -m metricfit_papers.pages.consistency   # draws papers/pages/img/consistency.svg
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import numpy as np
import torch
from matplotlib import pyplot
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor

from metricfit import Counts, metrics
from metricfit.losses import SoftAUROCLoss
from metricfit.steps import Identity, Linear, Step
from metricfit_papers.pages import repository

Numbers = NDArray[np.float64]
#: Share of positives, and the probabilities that a positive and a negative are decided positive.
SHARE, U, V = 0.2, 0.7, 0.1
#: Sum of the two parameters of each Beta distribution.
CONCENTRATION = 2.0
#: Number of intervals of the thresholds of AUROC.
INTERVALS = 10
#: Shares of three classes, and the probability of each decision (columns) for a class (rows).
SHARES = np.array([0.6, 0.3, 0.1])
DECIDED = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
BETA = 2.0


@dataclass(frozen=True)
class Pair:
    """The soft and the hard value of a metric on one draw of n samples, and the limit of both."""

    draw: Callable[[np.random.Generator, int], tuple[float, float]]
    limit: float


def _labels(n: int) -> NDArray[np.int64]:
    return (np.arange(n) < round(SHARE * n)).astype(np.int64)


def _binary(metric: Callable[[Counts], Tensor]) -> Callable[[np.random.Generator, int], tuple[float, float]]:
    """Return a draw of decisions at one threshold, 0.5."""

    def draw(rng: np.random.Generator, n: int) -> tuple[float, float]:
        y = _labels(n)
        mean = np.where(y == 1, U, V)
        soft = rng.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean))
        p = np.interp(soft, [0, 0.1, 0.5, 0.9, 1], [0, 0.25, 0.5, 0.75, 1])  # the inverse of Linear(0.1)
        target = torch.from_numpy(y)
        logits = torch.logit(torch.from_numpy(p), eps=1e-15)
        hard = Counts.from_labels(torch.from_numpy((rng.random(n) < mean).astype(np.int64)), target)
        return metric(Counts.soft(logits, target, step=Linear(0.1))).item(), metric(hard).item()

    return draw


def positive_rate(threshold: Numbers) -> Numbers:
    """Return u, the rate of positives decided positive: 1 at the threshold 0 and 0 at 1."""
    rate: Numbers = 1 - threshold**2
    return rate


def negative_rate(threshold: Numbers) -> Numbers:
    """Return v, the rate of negatives decided positive."""
    rate: Numbers = (1 - threshold) ** 2
    return rate


class _DrawnStep(Step):
    """Decisions of Eq. 19, which fall with the threshold: p is a uniform number over 2, plus 0.5 for a positive."""

    def __init__(self, soft: bool) -> None:
        super().__init__()
        self.soft = soft

    def forward(self, p: Tensor, threshold: float | Tensor = 0.5) -> Tensor:
        """Return the decisions at a threshold."""
        values, t = np.broadcast_arrays(p.detach().numpy(), np.asarray(threshold, np.float64))
        uniform, positive = 2 * values % 1, values >= 0.5
        mean = np.clip(np.where(positive, positive_rate(t), negative_rate(t)), 1e-9, 1 - 1e-9)
        if not self.soft:
            return torch.from_numpy((uniform <= mean).astype(np.float64))
        # A larger mean makes each quantile larger, and 1 - uniform is uniform too.
        return torch.from_numpy(betaincinv(CONCENTRATION * mean, CONCENTRATION * (1 - mean), 1 - uniform))


def _draw_auroc(rng: np.random.Generator, n: int) -> tuple[float, float]:
    y = _labels(n)
    logits = torch.logit(torch.from_numpy((rng.random(n) + y) / 2), eps=1e-15)
    thresholds = [number / INTERVALS for number in range(1, INTERVALS)]
    soft, hard = (
        1 - SoftAUROCLoss(thresholds=thresholds, step=_DrawnStep(is_soft))(logits, torch.from_numpy(y)).item()
        for is_soft in (True, False)
    )
    return soft, hard


def _auroc_limit() -> float:
    """Return the limit of Eq. 20."""
    thresholds = np.arange(INTERVALS + 1) / INTERVALS
    u, v = positive_rate(thresholds), negative_rate(thresholds)
    return float(0.5 * ((v[:-1] - v[1:]) * (u[:-1] + u[1:])).sum())


def _draw_classes(rng: np.random.Generator, n: int) -> tuple[float, float]:
    y = np.repeat(np.arange(3), np.diff(np.round(np.append(0, SHARES.cumsum()) * n).astype(int)))
    target = torch.from_numpy(y)
    alphas = 3 * DECIDED[y]
    gammas = rng.standard_gamma(alphas)
    soft = gammas / gammas.sum(1, keepdims=True)
    decided = (rng.random((n, 1)) > DECIDED[y].cumsum(1)).sum(1).clip(0, 2)
    logits = torch.from_numpy(np.log(soft.clip(1e-300)))
    metric = metrics.fbeta(beta=BETA)
    both = (
        Counts.soft(logits, target, step=Identity(), threshold=0.5),
        Counts.from_labels(torch.from_numpy(decided), target, num_classes=3),
    )
    return metric(both[0]).mean().item(), metric(both[1]).mean().item()


def _classes_limit() -> float:
    """Return the limit of Eq. 10 and 14 of the multiclass paper."""
    square = BETA**2
    right = (1 + square) * np.diag(DECIDED) * SHARES
    return float((right / (square * SHARES + SHARES @ DECIDED)).mean())


METRICS = {
    "F1": Pair(_binary(metrics.f1), 2 * SHARE * U / (SHARE + SHARE * U + V - SHARE * V)),
    "accuracy": Pair(_binary(metrics.accuracy), SHARE * U + (1 - SHARE) * (1 - V)),
    "AUROC": Pair(_draw_auroc, _auroc_limit()),
    "macro F2": Pair(_draw_classes, _classes_limit()),
}


def distances(name: str, n: int, draws: int = 50) -> Numbers:
    """Return the distance from the limit of each draw: one line per draw, the soft and the hard value."""
    rng = np.random.default_rng([n, draws])
    pair = METRICS[name]
    return np.array([pair.draw(rng, n) for _ in range(draws)]) - pair.limit


def draw(path: Path, sizes: tuple[int, ...] = (30, 100, 300, 1000, 3000, 10_000), draws: int = 30) -> None:
    """Draw the root mean square distance of both values from the limit, by the number of samples."""
    with matplotlib.rc_context({"svg.hashsalt": "consistency"}):
        figure, axes = pyplot.subplots(1, len(METRICS), figsize=(11, 3), sharey=True)
        for axis, name in zip(axes, METRICS, strict=True):
            roots = np.array([np.sqrt((distances(name, n, draws) ** 2).mean(0)) for n in sizes])
            for values, label in zip(roots.T, ("soft sets", "hard decisions"), strict=True):
                axis.loglog(sizes, values, "o-", label=label)
            line = roots[0, 1] * np.sqrt(sizes[0] / np.array(sizes))
            axis.loglog(sizes, line, ":", color="grey", label="1 / root of n")
            axis.set(title=name, xlabel="number of samples n")
            axis.grid(linewidth=0.3)
        axes[0].set_ylabel("distance from the limit\n(root mean square)")
        axes[0].legend(fontsize=8, frameon=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    draw(repository.IMAGES / "consistency.svg")
