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

from metricfit_papers.baselines.interior_point import RestrictedGame, Strategies, find_equilibrium

#: Maximum number of sizes (numbers of positives) that are added per round and player, without their neighbours.
MAX_NEW_SIZES = 6
MAX_ROUNDS = 40
#: Up to this number of samples the neighbours of new sizes are added too.
SMALL_GAME = 64


@dataclass(frozen=True)
class Game:
    """Loss ``slope[k, l] tp + offset[k, l]`` of k predicted and l true positives; tables ``(n + 1, n + 1)``, float64.

    If k or l is 0 or n, only one tp is possible, and the slope must be 0.

    Attributes:
        scores: The score of each sample, ``(n,)``.
        truth: The labels, 0 or 1, ``(n,)``; only the rules use them.
        slope: The factor of tp for k predicted (row) and l true positives (column).
        offset: The constant for k predicted and l true positives.
        rule_slope: ``(rules, n + 1)``. For each rule the expected ``rule_slope[k] tp + rule_offset[k]`` of the
            predictor, with tp counted with ``truth``, must be at least 0.
        rule_offset: ``(rules, n + 1)``.
    """

    scores: Tensor
    truth: Tensor
    slope: Tensor
    offset: Tensor
    rule_slope: Tensor
    rule_offset: Tensor


@dataclass(frozen=True)
class Answer:
    """The adversary's side of the equilibrium.

    Attributes:
        marginal: The probability that the adversary labels each sample positive, ``(n,)``.
        loss: The loss that the adversary forces.
        gap: Upper bound of the error of the value.
    """

    marginal: Tensor
    loss: Tensor
    gap: float


def solve(game: Game, tol: float) -> Answer:
    """Find the adversary's side of the equilibrium.

    Args:
        game: The game.
        tol: Maximum error of the value of the game; a warning says if it was not reached.

    Returns:
        The adversary's marginals, the loss and the gap.

    One sample, and a loss of 1 for a wrong label: with a score of 0 the adversary chooses either label with equal
    probability.

    >>> none, wrong = torch.zeros(0, 2).double(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    >>> solve(Game(torch.zeros(1).double(), torch.zeros(1).double(), 0 * wrong, wrong, none, none), 1e-6).marginal
    tensor([0.5000], dtype=torch.float64)
    """
    n = len(game.scores)
    cap = _certain_score(game)
    scores = game.scores.clamp(-cap, cap)
    likely = {int((scores > 0).sum()) + change for change in (-1, 0, 1)} | {int(game.truth.sum())}
    columns = [sorted({min(max(size, 1), n - 1) for size in likely}) if n > 1 else [] for _ in range(2)]
    best, goal = None, max(tol / 4, 1e-3)
    for _ in range(MAX_ROUNDS):
        answer, over, under = _solve_restricted(game, scores, columns, goal)
        best = answer if best is None or answer.gap < best.gap else best
        if best.gap <= tol:
            break
        middle = (float(over.max()) + float(under.min())) / 2
        added = [
            _choose_new_sizes(over - middle, columns[0], n, tol / 4),
            _choose_new_sizes(middle - under, columns[1], n, tol / 4),
        ]
        if not any(added):
            if goal <= tol * 1e-3:
                break
            goal = min(goal, tol) / 10  # the strategies are too inexact to tell which sizes to add
            continue
        columns = [sorted({*old, *new}) for old, new in zip(columns, added, strict=True)]
        goal = min(goal, max(tol / 4, answer.gap / 20))
    assert best is not None
    if best.gap > tol:
        warnings.warn(
            f"the adversary's game over {n} samples was solved to {best.gap:.1e} only, not to tol={tol:g}; the "
            "gradient belongs to a nearly optimal adversary. Raise tol, or loosen a requirement that can barely be met",
            RuntimeWarning,
            stacklevel=2,
        )
    certain = game.scores.abs() >= cap
    marginal = torch.where(certain, (game.scores > 0).to(best.marginal), best.marginal).clamp(0.0, 1.0)
    return Answer(marginal, best.loss, best.gap)


def _certain_score(game: Game) -> float:
    """Return twice the range of the loss. The adversary labels a sample with such a score positive in any case."""
    sizes = torch.arange(len(game.scores) + 1, dtype=game.slope.dtype)
    predicted, positive = sizes.unsqueeze(1), sizes
    fewest, most = (predicted + positive - len(game.scores)).clamp_min(0.0), torch.minimum(predicted, positive)
    ends = torch.stack([game.offset + game.slope * tp for tp in (fewest, most)])
    return 2.0 * float(ends.max() - ends.min()) + 1e-3


def _solve_restricted(
    game: Game, scores: Tensor, columns: list[list[int]], tol: float
) -> tuple[Answer, Tensor, Tensor]:
    """Solve the game with a few sizes, and compute what the best answer of each size to its strategies gives."""
    n = len(scores)
    adversary, predictor = (torch.tensor(sizes, dtype=torch.long) for sizes in columns)
    ends = torch.tensor([0, n])
    all_adversary, all_predictor = torch.cat([adversary, ends]), torch.cat([predictor, ends])
    strategies = find_equilibrium(
        RestrictedGame(
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
    return _bound_error(game, scores, strategies, (adversary, all_adversary), (predictor, all_predictor))


def _bound_error(
    game: Game,
    scores: Tensor,
    strategies: Strategies,
    adversary: tuple[Tensor, Tensor],
    predictor: tuple[Tensor, Tensor],
) -> tuple[Answer, Tensor, Tensor]:
    """Return the answer, and per size the payoff of the adversary's and of the predictor's best answer."""
    n, new = len(scores), scores.new_zeros
    r, s = new(n + 1), new(n + 1)
    r[adversary[1]], s[predictor[1]] = strategies.adversary_mass, strategies.predictor_mass
    price = strategies.prices
    against_predictor = scores.unsqueeze(1) + strategies.predictor @ game.slope[predictor[0]]
    over = _best_of_each_size(against_predictor, s @ game.offset)
    against_adversary = (
        game.truth.unsqueeze(1) * (price @ game.rule_slope) - strategies.adversary @ game.slope[:, adversary[0]].T
    )
    under = -_best_of_each_size(against_adversary, price @ game.rule_offset - game.offset @ r)
    q = strategies.adversary.sum(1) + r[n]
    under = under + scores @ q
    gap = float(over.max() - under.min())
    return Answer(q, under.min() - scores @ q, gap), over, under


def _best_of_each_size(gain: Tensor, base: Tensor) -> Tensor:
    """Return, for each size k, the sum of the k largest entries of column k of ``gain`` plus the base of that size."""
    n = len(gain)
    sums = gain.sort(0, descending=True).values.cumsum(0)
    sizes = torch.arange(1, n + 1)
    return base + torch.cat([base.new_zeros(1), sums[sizes - 1, sizes]])


def _choose_new_sizes(gain: Tensor, present: list[int], n: int, least: float) -> list[int]:
    """Choose the absent sizes from 1 to n - 1 that gain most, among those that gain more than their neighbours.

    In small games the neighbours are added too: larger games cost little there, and fewer rounds are needed.
    """
    values = gain.tolist()
    absent = {size for size in range(1, n) if values[size] > least} - set(present)
    peaks = [size for size in absent if values[size] >= max(values[size - 1], values[size + 1])]
    chosen = sorted(peaks, key=lambda size: -values[size])[:MAX_NEW_SIZES]
    neighbours = {size + step for size in chosen for step in (-1, 1)} & absent if n <= SMALL_GAME else set()
    return sorted({*chosen, *neighbours})
