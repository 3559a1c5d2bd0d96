"""An interior-point method for zero-sum games over label vectors: O(n m^3) per step, 10 to 40 steps.

There are n samples and m columns. A mixed strategy of a player has, for each of its columns of size c, the mass M_c of
the label vectors with exactly c positives, and the marginals 0 <= v_ic <= M_c with sum_i v_ic = c M_c: the probability
that the vector has c positives and sample i is one of them. Masses sum to 1. Columns of size 0 and n need no marginals.

Both players maximise, the adversary the payoff and the predictor its negative. Their gradients are then S applied to
the marginals and T applied to the masses, with S and T skew-symmetric, plus linear terms. Both are one system:

    linear + v S + x - y - nu + truth (lambda a) = 0           x v = 0,  y (M - v) = 0
    h + M T + sum_i y_i + c nu - tau + lambda b = 0            z M = 0 for the columns without marginals
    sum_i v_i = c M,   sum M = 1 for each player,   truth (v a') + M b' = sigma,   lambda sigma = 0

with all factors of the complementary products at least 0. lambda is the price of the requirements on the predictor.
Each step is a Newton step on these equations with the products set to mu, with predictor and corrector (Mehrotra 1992).
Sample i is connected to the others only through M, nu and lambda. Its m equations are therefore solved first, with one
batched inverse, and 2 m + 6 equations remain.

The method is written here because torch has no linear programming, and a solver of scipy or Clarabel would take the
game as one sparse program of n m variables: its structure, samples coupled by few totals, is what makes this fast.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_STEPS = 80
#: The share of the way to the border that a step may go.
STEP_SHARE = 0.98


@dataclass(frozen=True)
class RestrictedGame:
    """A game in which each player may use only some column sizes: the adversary a of them, the predictor b.

    The loss of sizes k and l is ``slope[k, l] tp + offset[k, l]``. ``offset`` has two more rows and columns, for the
    sizes 0 and n. ``rule_slope (r, b)`` and ``rule_offset (r, b + 2)`` are the requirements, whose sums must be at
    least 0.
    """

    scores: Tensor
    truth: Tensor
    adversary_sizes: Tensor
    predictor_sizes: Tensor
    slope: Tensor
    offset: Tensor
    rule_slope: Tensor
    rule_offset: Tensor


@dataclass(frozen=True)
class Strategies:
    """Marginals ``(n, columns)`` and masses of both players; the masses of the sizes 0 and n are the last two."""

    adversary: Tensor
    adversary_mass: Tensor
    predictor: Tensor
    predictor_mass: Tensor
    prices: Tensor


def find_equilibrium(game: RestrictedGame, tol: float) -> Strategies:
    """Find strategies that are optimal in the restricted game up to ``tol``, or the best that rounding allows."""
    system = _System(game)
    for _ in range(MAX_STEPS):
        system.measure()
        if max(system.gap, system.residual) <= tol or not system.step():
            break
    return system.strategies()


class _System:
    """The equations, the present iterate and the next step."""

    def __init__(self, game: RestrictedGame) -> None:
        n, a, b = len(game.scores), len(game.adversary_sizes), len(game.predictor_sizes)
        new = game.scores.new_zeros
        self.n, self.a, self.m, self.rules = n, a, a + b, len(game.rule_slope)
        m, masses = self.m, self.m + 4
        self.adversary = torch.tensor([*range(a), m, m + 1])
        self.predictor = torch.tensor([*range(a, m), m + 2, m + 3])
        self.truth = game.truth.unsqueeze(1)
        self.sizes = torch.cat([game.adversary_sizes, game.predictor_sizes]).to(game.scores)
        self.linear = torch.cat([game.scores.unsqueeze(1).expand(n, a), new(n, b)], 1)
        self.skew = new(m, m)
        self.skew[a:, :a], self.skew[:a, a:] = game.slope, -game.slope.T
        self.mass_skew = new(masses, masses)
        self.mass_skew[self.predictor.unsqueeze(1), self.adversary] = game.offset
        self.mass_skew[self.adversary.unsqueeze(1), self.predictor] = -game.offset.T
        self.mass_linear = new(masses)
        self.mass_linear[m + 1] = game.scores.sum()  # all samples positive
        self.side = new(2, masses)
        self.side[0, self.adversary] = 1.0
        self.side[1, self.predictor] = 1.0
        self.rule_slope, self.rule_offset = new(self.rules, m), new(self.rules, masses)
        self.rule_slope[:, a:], self.rule_offset[:, self.predictor] = game.rule_slope, game.rule_offset
        self._start(max(float(game.scores.abs().max()), float(game.slope.abs().max()) if a and b else 0.0, 1e-3))
        self._set_constant_part()

    def _start(self, scale: float) -> None:
        """Start with uniform masses and equal products."""
        uniform = self.side.T @ (1.0 / self.side.sum(1))
        v = (uniform[: self.m] * self.sizes / self.n).expand(self.n, self.m)
        self.mass = uniform
        #: The variables that must stay above 0: v, M - v, M of the columns without marginals, and sigma. ``high`` has
        #: their factors in the products: x, y, z and lambda.
        self.low = torch.cat(
            [v.flatten(), (uniform[: self.m] - v).flatten(), uniform[self.m :], uniform.new_full((self.rules,), 0.1)]
        )
        self.high = 0.1 * scale / self.low
        self.nu, self.tau = uniform.new_zeros(self.m), uniform.new_zeros(2)
        self.parts = [self.n * self.m, self.n * self.m, 4, self.rules]

    def _set_constant_part(self) -> None:
        """Set the constant coefficients of mass, nu, tau and lambda: unknowns in rows, equations in columns."""
        m, masses = self.m, self.m + 4
        ends = [0, masses, masses + m, masses + m + 2, masses + m + 2 + self.rules]
        mass, nu, tau, price = self.slices = tuple(slice(*pair) for pair in itertools.pairwise(ends))
        fixed = self.mass.new_zeros(ends[-1], ends[-1])
        fixed[mass, mass] = self.mass_skew
        fixed[tau, mass], fixed[mass, tau] = -self.side, self.side.T
        if m:
            fixed[nu, :m], fixed[:m, nu] = torch.diag(self.sizes), -torch.diag(self.sizes)
        if self.rules:
            fixed[price, mass], fixed[mass, price] = self.rule_offset, self.rule_offset.T
        self.fixed = fixed

    def _split(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        v, u, edge, rule = torch.split(flat, self.parts)
        return v.view(self.n, self.m), u.view(self.n, self.m), edge, rule

    def measure(self) -> None:
        """Compute the residuals of the equations, and the sum of the products, which bounds the error of the value."""
        v, _, _, slack = self._split(self.low)
        x, y, z, price = self._split(self.high)
        self.of_marginals = self.linear + v @ self.skew + x - y - self.nu + self.truth * (price @ self.rule_slope)
        local = torch.cat([y.sum(0) + self.sizes * self.nu, z])
        of_mass = (
            self.mass @ self.mass_skew + self.mass_linear - self.tau @ self.side + price @ self.rule_offset + local
        )
        of_sizes = v.sum(0) - self.sizes * self.mass[: self.m]
        of_rules = self.rule_slope @ (self.truth * v).sum(0) + self.rule_offset @ self.mass - slack
        self.of_rest = torch.cat([of_mass, of_sizes, self.side @ self.mass - 1.0, of_rules])
        self.gap = float(self.low @ self.high)
        largest = torch.cat([self.of_marginals.flatten(), self.of_rest]).abs().max()
        self.residual = float(largest)

    def step(self) -> bool:
        """Make one step of predictor and corrector; return False if rounding does not allow a step."""
        mean = self.gap / len(self.low)
        self._factor()
        products = -self.low * self.high
        d_low, d_high, _ = self._direction(products)
        reach = self._reach(d_low, d_high)
        left = float((self.low + reach * d_low) @ (self.high + reach * d_high)) / self.gap
        d_low, d_high, rest = self._direction(products + left**3 * mean - d_low * d_high)
        reach = min(1.0, STEP_SHARE * self._reach(d_low, d_high))
        if not (reach > 1e-8 and bool(d_low.isfinite().all())):
            return False
        self.low, self.high = self.low + reach * d_low, self.high + reach * d_high
        mass, nu, tau, _ = self.slices
        self.mass, self.nu, self.tau = (
            value + reach * rest[part] for value, part in ((self.mass, mass), (self.nu, nu), (self.tau, tau))
        )
        return True

    def _factor(self) -> None:
        """Solve the equations of each sample, and factor the matrix of the remaining ones."""
        v, u, edge, slack = self._split(self.low)
        x, y, z, price = self._split(self.high)
        m = self.m
        self.ratio = y / u
        self.inverse = torch.linalg.inv(self.skew - torch.diag_embed(x / v + self.ratio))
        rows, columns = self.ratio.unsqueeze(2), self.ratio.unsqueeze(1)
        right, left = self.inverse * columns, self.inverse * rows
        _, nu, _, prices = self.slices
        matrix = self.fixed.clone()
        matrix[:m, :m] -= (left * columns).sum(0)
        matrix.diagonal()[: m + 4] -= torch.cat([self.ratio.sum(0), z / edge])
        matrix[nu, :m] += right.sum(0)
        matrix[:m, nu] -= left.sum(0)
        matrix[nu, nu] += self.inverse.sum(0)
        if self.rules:
            truth = self.truth.unsqueeze(2)
            true = (truth * self.inverse).sum(0)
            matrix[prices, :m] -= self.rule_slope @ (truth * right).sum(0)
            matrix[prices, nu] -= self.rule_slope @ true
            matrix[:m, prices] -= (truth * left).sum(0) @ self.rule_slope.T
            matrix[nu, prices] += true @ self.rule_slope.T
            matrix[prices, prices] += torch.diag(slack / price) - self.rule_slope @ true @ self.rule_slope.T
        self.factors = torch.linalg.lu_factor_ex(matrix.T)[:2]

    def _direction(self, products: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the changes of ``low``, of ``high`` and of mass, nu, tau and lambda that give these products."""
        v, u, edge, _ = self._split(self.low)
        price = self._split(self.high)[3]
        of_v, of_u, of_edge, of_slack = self._split(products)
        m = self.m
        local = of_u / u - self.of_marginals - of_v / v
        alone = (local.unsqueeze(1) @ self.inverse).squeeze(1)
        change = torch.cat([(of_u / u + self.ratio * alone).sum(0), of_edge / edge, alone.sum(0), alone.new_zeros(2)])
        rules = self.rule_slope @ (self.truth * alone).sum(0) - of_slack / price
        right = -self.of_rest - torch.cat([change, rules])
        rest = torch.linalg.lu_solve(*self.factors, right.unsqueeze(1)).squeeze(1)
        d_mass, d_nu, _, d_price = (rest[part] for part in self.slices)
        local = local - self.ratio * d_mass[:m] + d_nu - self.truth * (d_price @ self.rule_slope)
        d_v = (local.unsqueeze(1) @ self.inverse).squeeze(1)
        d_slack = (of_slack - self._split(self.low)[3] * d_price) / price
        d_low = torch.cat([d_v.flatten(), (d_mass[:m] - d_v).flatten(), d_mass[m:], d_slack])
        return d_low, (products - self.high * d_low) / self.low, rest

    def _reach(self, d_low: Tensor, d_high: Tensor) -> float:
        """Return the largest share of a step, at most 1, that keeps all variables at least 0."""
        steepest = torch.maximum((-d_low / self.low).max(), (-d_high / self.high).max())
        return 1.0 / max(1.0, float(steepest))

    def strategies(self) -> Strategies:
        """Return the strategies of the present iterate."""
        v = self._split(self.low)[0]
        return Strategies(
            v[:, : self.a],
            self.mass[self.adversary],
            v[:, self.a :],
            self.mass[self.predictor],
            self._split(self.high)[3],
        )
