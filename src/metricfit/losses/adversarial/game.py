"""A zero-sum game over label vectors: a predictor against an adversary that gains the scores of its positives.

Both choose random label vectors of n samples. The predictor minimises the expected loss; the adversary maximises the
loss plus the sum of the scores of its positives. If the loss is affine in tp at fixed numbers k of predicted and l of
true positives, a strategy is described by its marginals for each number of positives: n^2 numbers instead of 2^n
(Fathony and Kolter 2020, after Wang et al. 2015).

An equilibrium uses only a few numbers of positives. The game is therefore solved with a few of them. Then the best
answer of each player among all label vectors is computed: for each k the k best samples, by one sort. What the two best
answers gain bounds the error of the value. While it is too large, the numbers of positives that gained are added.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from metricfit.losses.adversarial.interior_point import Restricted, Strategies, equilibrium

#: Maximum number of sizes (numbers of positives) that are added per round and player, without their neighbours.
NEWCOMERS = 6
MOST_ROUNDS = 40
SMALL = 64


@dataclass(frozen=True)
class Game:
    """Loss ``slope[k, l] tp + offset[k, l]`` of k predicted and l true positives; tables ``(n + 1, n + 1)``, float64.

    Where k or l is 0 or n there is one tp, and the slope must be 0.

    ``rule_slope``, ``rule_offset (rules, n + 1)``: for each rule the predictor's expected
    ``rule_slope[k] tp + rule_offset[k]``, tp being counted with ``truth``, is to be at least 0.
    """

    scores: Tensor
    truth: Tensor
    slope: Tensor
    offset: Tensor
    rule_slope: Tensor
    rule_offset: Tensor


@dataclass(frozen=True)
class Answer:
    """The adversary's optimal marginal of each sample, the loss it forces, and by how much that may be too little."""

    marginal: Tensor
    loss: Tensor
    gap: float


def solve(game: Game, tol: float) -> Answer:
    """The adversary's side of the equilibrium, to within ``tol`` of the game's value; a warning where that failed.

    One sample, and a loss of 1 for a wrong label: with a score of 0 the predictor may as well guess.

    >>> none, wrong = torch.zeros(0, 2).double(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    >>> solve(Game(torch.zeros(1).double(), torch.zeros(1).double(), 0 * wrong, wrong, none, none), 1e-6).marginal
    tensor([0.5000], dtype=torch.float64)
    """
    n = len(game.scores)
    cap = _beyond_doubt(game)
    scores = game.scores.clamp(-cap, cap)
    usual = {int((scores > 0).sum()) + each for each in (-1, 0, 1)} | {int(game.truth.sum())}
    columns = [sorted({min(max(size, 1), n - 1) for size in usual}) if n > 1 else [] for _ in range(2)]
    best, goal = None, max(tol / 4, 1e-3)
    for _ in range(MOST_ROUNDS):
        found, over, under = _round(game, scores, columns, goal)
        best = found if best is None or found.gap < best.gap else best
        if best.gap <= tol:
            break
        middle = (float(over.max()) + float(under.min())) / 2
        added = [
            _newcomers(over - middle, columns[0], n, tol / 4),
            _newcomers(middle - under, columns[1], n, tol / 4),
        ]
        if not any(added):
            if goal <= tol * 1e-3:
                break
            goal = min(goal, tol) / 10  # the strategies are too rough to tell who should come in
            continue
        columns = [sorted({*old, *new}) for old, new in zip(columns, added, strict=True)]
        goal = min(goal, max(tol / 4, found.gap / 20))
    assert best is not None
    if best.gap > tol:
        warnings.warn(
            f"the adversary's game over {n} samples was solved to {best.gap:.1e} only, not to tol={tol:g}; the "
            "gradient is that of a near-optimal adversary. Raise tol, or loosen a requirement that barely can be met",
            RuntimeWarning,
            stacklevel=2,
        )
    sure = game.scores.abs() >= cap
    marginal = torch.where(sure, (game.scores > 0).to(best.marginal), best.marginal).clamp(0.0, 1.0)
    return Answer(marginal, best.loss, best.gap)


def _beyond_doubt(game: Game) -> float:
    """Twice the loss's range: a sample of such a score is positive for the adversary, whatever that costs it."""
    sizes = torch.arange(len(game.scores) + 1, dtype=game.slope.dtype)
    predicted, positive = sizes.unsqueeze(1), sizes
    fewest, most = (predicted + positive - len(game.scores)).clamp_min(0.0), torch.minimum(predicted, positive)
    ends = torch.stack([game.offset + game.slope * tp for tp in (fewest, most)])
    return 2.0 * float(ends.max() - ends.min()) + 1e-3


def _round(game: Game, scores: Tensor, columns: list[list[int]], tol: float) -> tuple[Answer, Tensor, Tensor]:
    """The restricted game's strategies, and what answering them with each number of positives would give."""
    n = len(scores)
    adversary, predictor = (torch.tensor(each, dtype=torch.long) for each in columns)
    ends = torch.tensor([0, n])
    all_adversary, all_predictor = torch.cat([adversary, ends]), torch.cat([predictor, ends])
    found = equilibrium(
        Restricted(
            scores,
            game.truth,
            adversary,
            predictor,
            game.slope[predictor][:, adversary],
            game.offset[all_predictor][:, all_adversary],
            game.rule_slope[:, predictor],
            game.rule_offset[:, all_predictor],
        ),
        tol,
    )
    return _checked(game, scores, found, (adversary, all_adversary), (predictor, all_predictor))


def _checked(
    game: Game, scores: Tensor, found: Strategies, adversary: tuple[Tensor, Tensor], predictor: tuple[Tensor, Tensor]
) -> tuple[Answer, Tensor, Tensor]:
    n, new = len(scores), scores.new_zeros
    r, s = new(n + 1), new(n + 1)
    r[adversary[1]], s[predictor[1]] = found.adversary_mass, found.predictor_mass
    price = found.prices
    against_predictor = scores.unsqueeze(1) + found.predictor @ game.slope[predictor[0]]
    over = _best_of_each_size(against_predictor, s @ game.offset)
    against_adversary = (
        game.truth.unsqueeze(1) * (price @ game.rule_slope) - found.adversary @ game.slope[:, adversary[0]].T
    )
    under = -_best_of_each_size(against_adversary, price @ game.rule_offset - game.offset @ r)
    q = found.adversary.sum(1) + r[n]
    under = under + scores @ q
    gap = float(over.max() - under.min())
    return Answer(q, under.min() - scores @ q, gap), over, under


def _best_of_each_size(gain: Tensor, base: Tensor) -> Tensor:
    """For each size k the sum of the k largest of column k of ``gain``, plus the base of that size."""
    n = len(gain)
    sums = gain.sort(0, descending=True).values.cumsum(0)
    sizes = torch.arange(1, n + 1)
    return base + torch.cat([base.new_zeros(1), sums[sizes - 1, sizes]])


def _newcomers(gain: Tensor, present: list[int], n: int, least: float) -> list[int]:
    """Of the sizes from 1 to n - 1 that are not present those that gain most, and more than their neighbours.

    In small batches the neighbours come too: fewer rounds, where larger games cost little.
    """
    values = gain.tolist()
    away = {size for size in range(1, n) if values[size] > least} - set(present)
    peaks = [size for size in away if values[size] >= max(values[size - 1], values[size + 1])]
    chosen = sorted(peaks, key=lambda size: -values[size])[:NEWCOMERS]
    beside = {size + step for size in chosen for step in (-1, 1)} & away if n <= SMALL else set()
    return sorted({*chosen, *beside})
