"""Made-up tables: what the in-context classifier learns from.

All tables of a batch have the same shape, and everything is drawn in batched torch operations, on the GPU if there is
one. A table starts from hidden causes of its rows. A random structural network turns them into nodes; some nodes become
columns. The score of the target is a node, a sum of random trees, a linear function, or a mixture. The rows with the
highest scores (or with scores in a band) are positive. Finally, columns are written as real tables write them: skewed,
rounded, as categories or flags, with outliers and with missing values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: Smallest and largest share of positives, and the fewest positives of a table.
SHARES, FEWEST = (0.008, 0.5), 6.0


@dataclass(frozen=True)
class Shape:
    """The shape of the tables of a batch.

    Attributes:
        tables: Number of tables.
        rows: Rows per table.
        columns: Columns per table.
        classes: Number of classes.
    """

    tables: int
    rows: int
    columns: int
    classes: int = 2


class Draws:
    """Random numbers of one generator on one device; ``b`` is the number of tables."""

    def __init__(self, seed: int, device: torch.device | str, tables: int) -> None:
        self.device, self.b = device, tables
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.sizes = torch.Generator().manual_seed(seed)  # sizes are drawn on the CPU, so that nothing waits for a GPU

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return uniform numbers of shape ``(b, *shape)``."""
        return torch.rand(self.b, *shape, generator=self.generator, device=self.device) * (high - low) + low

    def log_uniform(self, *shape: int, low: float, high: float) -> Tensor:
        """Return numbers whose logarithms are uniform."""
        return self.uniform(*shape, low=math.log(low), high=math.log(high)).exp()

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(self.b, *shape, generator=self.generator, device=self.device)

    def chance(self, probability: float | Tensor, *shape: int) -> Tensor:
        """Return True with this probability."""
        return self.uniform(*shape) < probability

    def integers(self, high: int, *shape: int, low: int = 0) -> Tensor:
        """Return integers from ``low`` to ``high - 1``."""
        size = (self.b, *shape)
        return torch.randint(low, high, size, generator=self.generator, device=self.device)

    def size(self, low: int, high: int) -> int:
        """Return one integer from ``low`` to ``high``, for all tables."""
        return int(torch.randint(low, max(low, high) + 1, (), generator=self.sizes))


def standardise(x: Tensor, dim: int = 1) -> Tensor:
    """Return ``x`` with mean 0 and deviation 1 over the rows."""
    centred = x - x.mean(dim, keepdim=True)
    return centred / (centred.square().mean(dim, keepdim=True).sqrt() + 1e-4)


def ranks(x: Tensor) -> Tensor:
    """Return the rank of each row, from 0 to below 1."""
    return x.argsort(1).argsort(1).float() / x.shape[1]


ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x,
    torch.tanh,
    torch.relu,
    lambda x: torch.sin(2 * x),
    torch.abs,
    lambda x: x.clamp(-3, 3).square(),
    lambda x: (x > 0).float(),
    lambda x: torch.exp(-x.square()),
    lambda x: torch.round(1.5 * x.clamp(-4, 4)),
    lambda x: torch.where(x > 0, x, 0.2 * x),
)


def activate(x: Tensor, kind: Tensor) -> Tensor:
    """Apply an activation per node.

    Args:
        x: Nodes ``(b, n, h)``.
        kind: Numbers of activations ``(b, h)``.
    """
    result = x
    for number, function in enumerate(ACTIVATIONS[1:], start=1):
        result = torch.where(kind[:, None, :] == number, function(x), result)
    return result


def draw_causes(draws: Draws, rows: int) -> tuple[Tensor, Tensor]:
    """Draw hidden causes ``(b, n, c)`` and what the hidden group of each row adds to the score ``(b, n)``.

    In half of the tables, some causes are clustered by group. The group matters for the score in a part of these, as if
    the target were one kind of things against all others.
    """
    number, groups = draws.size(1, 12), draws.size(2, 10)
    z = draws.normal(rows, number)
    z = torch.where(draws.chance(0.15, 1, number), z * (0.7 * draws.normal(rows, number)).exp(), z)
    z = torch.where(draws.chance(0.25, 1, number), draws.uniform(rows, number, low=-1.7, high=1.7), z)
    shares = torch.softmax(draws.normal(groups) * draws.uniform(1, low=0.1, high=2.5), 1)
    group = torch.multinomial(shares, rows, replacement=True, generator=draws.generator)
    centres = draws.normal(groups, number) * draws.uniform(1, 1, low=0.5, high=3)
    centre = centres.gather(1, group[:, :, None].expand(-1, -1, number))
    grouped = draws.chance(0.5, 1, 1)
    clustered = draws.chance(0.5, 1, number) & grouped
    matters = draws.uniform(1, high=5.0) * (draws.chance(0.4, 1) & grouped.squeeze(2))
    effect = matters * draws.normal(groups).gather(1, group)
    return torch.where(clustered, centre + draws.log_uniform(1, 1, low=0.1, high=1.0) * z, z), effect


def draw_network(draws: Draws, causes: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Draw a structural network over the causes.

    Returns:
        The columns ``(b, n, f)`` and a node of the target ``(b, n)``, mostly from the last layer, which is no column.
    """
    layers, nodes = draws.size(1, 5), draws.size(max(6, columns // 3), max(12, min(columns + 8, 48)))
    x, levels, common = causes, [causes], draws.integers(len(ACTIVATIONS), 1)
    for _ in range(layers):
        weight = draws.normal(x.shape[2], nodes)
        kept = (draws.uniform(x.shape[2], nodes) >= draws.uniform(1, 1, high=0.8)).float()
        weight = weight * kept / kept.sum(1, keepdim=True).clamp_min(1).sqrt()
        x = x @ weight * draws.log_uniform(1, 1, low=0.5, high=3) + 0.5 * draws.normal(1, nodes)
        mixed = draws.integers(len(ACTIVATIONS), nodes)
        x = standardise(activate(x, torch.where(draws.chance(0.5, 1), common, mixed)))
        x = x + draws.log_uniform(1, 1, low=0.003, high=0.4) * draws.normal(*x.shape[1:])
        levels.append(x)
    every = torch.cat(levels, 2)
    total = every.shape[2]
    late = torch.arange(total, device=every.device) >= total - nodes
    target = (draws.uniform(total) + 50 * (draws.chance(0.6, 1) & late)).argmax(1)
    order = draws.uniform(total).scatter(1, target[:, None], -1.0)
    chosen = order.topk(min(columns, total - 1), 1).indices
    repeats = -(-columns // chosen.shape[1])
    chosen = chosen.repeat(1, repeats)[:, :columns]  # a column may be written in several ways
    node = every.gather(2, target[:, None, None].expand(-1, every.shape[1], 1)).squeeze(2)
    return every.gather(2, chosen[:, None, :].expand(-1, every.shape[1], -1)), node


def draw_trees(draws: Draws, x: Tensor) -> Tensor:
    """Return the sum of random oblivious trees over some of the columns."""
    _, rows, columns = x.shape
    trees, depth = draws.size(1, 24), draws.size(1, 5)
    relevance = draws.uniform(columns) * draws.chance(0.5, columns) + 1e-3
    used = torch.multinomial(relevance, trees * depth, replacement=True, generator=draws.generator)
    values = x.gather(2, used[:, None, :].expand(-1, rows, -1))
    thresholds = values.gather(1, draws.integers(rows, 1, trees * depth))
    bits = (values > thresholds).view(-1, rows, trees, depth).long()
    leaf = (bits << torch.arange(depth, device=x.device)).sum(3)
    value = draws.normal(trees, 2**depth)
    value = torch.where(draws.chance(0.3, trees, 2**depth), 3 * value, value)
    return value.gather(2, leaf.transpose(1, 2)).sum(1)


def draw_linear(draws: Draws, x: Tensor) -> Tensor:
    """Return a linear function of some columns, with one product of two of them in half of the tables."""
    columns = x.shape[2]
    weight = draws.normal(columns, 1) * draws.chance(draws.uniform(1, 1, low=0.1), columns, 1)
    weight = weight + 0.1 * draws.normal(columns, 1) * draws.chance(0.3, columns, 1)
    pair = x.gather(2, draws.integers(columns, 1, 2).expand(-1, x.shape[1], -1))
    return (standardise(x) @ weight).squeeze(2) + draws.normal(1) * draws.chance(0.5, 1) * pair.prod(2)


def draw_score(draws: Draws, x: Tensor, node: Tensor, effect: Tensor) -> Tensor:
    """Draw the score by which rows become positive ``(b, n)``."""
    node, trees, linear = standardise(node), standardise(draw_trees(draws, x)), standardise(draw_linear(draws, x))
    kind = draws.uniform(1)
    score = torch.where(kind < 0.3, trees, node)
    score = torch.where((kind >= 0.3) & (kind < 0.42), linear, score)
    score = torch.where((kind >= 0.42) & (kind < 0.6), (trees + node + linear) / 3, score)
    score = standardise(score + effect)
    noise = draws.log_uniform(1, low=0.01, high=1.2) * draws.chance(0.5, 1)
    return score + noise * draws.normal(score.shape[1])


def draw_labels(draws: Draws, score: Tensor, classes: int) -> Tensor:
    """Cut scores into classes: two with a rare positive one, or several of random shares in random order."""
    rows = score.shape[1]
    rank = ranks(score)
    if classes > 2:
        shares = torch.softmax(draws.normal(classes) * draws.uniform(1, high=1.5), 1)
        cut = torch.searchsorted(shares.cumsum(1)[:, :-1].contiguous(), rank)
        return draws.uniform(classes).argsort(1).gather(1, cut)
    rare = draws.log_uniform(1, low=SHARES[0], high=SHARES[1])
    share = torch.where(draws.chance(0.75, 1), rare, draws.uniform(1, low=0.1, high=0.5)).clamp_min(FEWEST / rows)
    start = torch.where(draws.chance(0.15, 1), draws.uniform(1) * (1 - share), 1 - share)
    positive = (rank >= start) & (rank < start + share)
    wrong = draws.log_uniform(1, low=0.001, high=0.1) * draws.chance(0.3, 1)
    flipped = draws.uniform(rows) < wrong * torch.where(positive, 1.0, 2 * share)
    return (positive ^ flipped ^ (draws.chance(0.5, 1) & (share > 0.3))).long()


def write_columns(draws: Draws, x: Tensor) -> Tensor:
    """Write columns as real tables do: skewed, rounded, as categories, as flags, with outliers, with noise alone."""
    rows, columns = x.shape[1:]
    useless = draws.chance(draws.uniform(1, 1, high=0.5) * draws.chance(0.4, 1, 1), 1, columns)
    z = standardise(torch.where(useless, draws.normal(rows, columns), x))
    how = draws.uniform(1, columns)
    z = torch.where(how < 0.12, (0.8 * z.clamp(-4, 4)).exp(), z)
    z = torch.where((how > 0.12) & (how < 0.2), z.sign() * z.square(), z)
    step = draws.log_uniform(1, columns, low=0.02, high=1.0)
    z = torch.where((how > 0.2) & (how < 0.32), torch.round(z / step) * step, z)
    outlier = draws.chance(0.005, rows, columns) & (how > 0.32) & (how < 0.38)
    z = torch.where(outlier, z * draws.uniform(rows, columns, low=3, high=20), z)

    rank = ranks(z)
    levels = draws.integers(10, 1, columns, low=2).float()
    power = draws.log_uniform(1, columns, low=0.4, high=3.0)  # unequal shares of the levels
    level = torch.floor(rank**power * levels)
    scrambled = torch.remainder(level * draws.integers(8, 1, columns, low=1) + draws.integers(8, 1, columns), levels)
    flag = (level == torch.floor(draws.uniform(1, columns) * levels)).float()
    written = draws.uniform(1, columns)
    category = torch.where(written < 0.35, level, torch.where(written < 0.65, scrambled, flag))
    share = draws.uniform(1, 1, high=0.7) * draws.chance(0.5, 1, 1) + draws.chance(0.08, 1, 1)
    return torch.where(draws.chance(share, 1, columns), category, z)


def hide_values(draws: Draws, x: Tensor) -> Tensor:
    """Make some cells of some columns missing, at random or more often where values are high."""
    rows, columns = x.shape[1:]
    affected = draws.chance(draws.uniform(1, 1) * draws.chance(0.25, 1, 1), 1, columns)
    share = draws.log_uniform(1, columns, low=0.01, high=0.6)
    depends = torch.where(draws.chance(0.3, 1, columns), 2 * torch.sigmoid(2 * standardise(x)), torch.ones_like(x))
    hidden = affected & (draws.uniform(rows, columns) < share * depends)
    return torch.where(hidden, torch.full_like(x, math.nan), x)


def draw_tables(shape: Shape, seed: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Draw a batch of tables.

    Args:
        shape: Their shape.
        seed: Seed; the same seed gives the same tables on the same kind of device.
        device: Where they are made.

    Returns:
        Columns ``(b, n, f)``, in which NaN is missing, and class numbers ``(b, n)``. Rows are in random order.

    Example:
        >>> x, y = draw_tables(Shape(tables=4, rows=64, columns=3), seed=0)
        >>> x.shape, y.shape
        (torch.Size([4, 64, 3]), torch.Size([4, 64]))
    """
    draws = Draws(seed, device, shape.tables)
    causes, effect = draw_causes(draws, shape.rows)
    x, node = draw_network(draws, causes, shape.columns)
    y = draw_labels(draws, draw_score(draws, x, node, effect), shape.classes)
    x = hide_values(draws, torch.nan_to_num(write_columns(draws, x)))
    order = draws.uniform(shape.rows).argsort(1)
    return x.gather(1, order[:, :, None].expand_as(x)), y.gather(1, order)
