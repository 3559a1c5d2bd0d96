"""Draw how sums over pairs come from a sort, and how exact they are: docs/img/ranking.svg."""

from __future__ import annotations

from itertools import pairwise

import torch
from matplotlib.axes import Axes
from page import BLUE, GREEN, GREY, ORANGE, RED, plt, save
from torch import Tensor

from metricfit.core.kernels.pairs import hinge_sums

POINTS = torch.tensor([3.6, 2.9, 2.5, 1.4, 0.6], dtype=torch.float64)
QUERY = 1.0
SAMPLES, OUTLIERS, POWER = 20_000, 200, 3


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9))
    staircase(left)
    errors(right)
    save(figure, "ranking")


def staircase(axes: Axes) -> None:
    """The number of points above x, and the sum of a query as the area to its right."""
    edges = [*POINTS.flip(0).tolist(), 4.2]
    heights = list(range(len(POINTS) - 1, -1, -1))
    axes.step([-0.2, *edges], [len(POINTS), *heights, 0], where="post", color=BLUE)
    starts = [QUERY, *[edge for edge in edges if QUERY < edge < 4.2]]
    for number, (start, end) in enumerate(pairwise(starts)):
        height = len(POINTS) - 1 - number
        axes.bar(start, height, width=end - start, align="edge", color=ORANGE, alpha=0.35, edgecolor="white")
        if end - start > 0.3:
            axes.text((start + end) / 2, height / 2, f"{height} d", ha="center", va="center", fontsize=9)
    axes.plot(
        POINTS, torch.zeros(len(POINTS)), "o", color=RED, clip_on=False, zorder=3, label="points: negatives + margin"
    )
    axes.plot([QUERY], [0], "D", color=GREEN, clip_on=False, zorder=3, label="a query: a positive's score")
    total = float(hinge_sums(torch.tensor([QUERY]).double(), POINTS, torch.ones(5), 1))
    axes.annotate(
        f"area = sum of max(0, y - x) = {total:.1f}",
        (2.0, 1.9),
        xytext=(1.5, 3.3),
        arrowprops={"arrowstyle": "-", "color": GREY},
    )
    axes.set(
        xlabel="score", ylabel="points above", ylim=(0, 5.4), xlim=(-0.2, 4.2), title="A sum over pairs is an area"
    )
    axes.legend(loc="upper right", fontsize=9)


def errors(axes: Axes) -> None:
    """Errors of the sums of queries in the order of their scores, by moments and by powers, both in float64."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
    y[:OUTLIERS] += 100
    y = y.sort(descending=True).values
    ranks = torch.logspace(0, 4, 300).long().unique()
    x = y[ranks - 1] - 1e-3
    exact = torch.stack([torch.relu(y - one).pow(POWER).sum() for one in x])
    for values, colour, label in (
        (by_powers(x, y), RED, "powers about the mean"),
        (hinge_sums(x, y, torch.ones_like(y), POWER), BLUE, "moments about each point"),
    ):
        error = ((values - exact).abs() / exact).clamp(min=1e-17)
        axes.loglog(ranks, error, ".", color=colour, markersize=4, label=label)
    axes.set(
        xlabel="rank of the query, the highest first",
        ylabel="relative error of its sum",
        title=f"r = {POWER}; {OUTLIERS} of {SAMPLES:,} points around 100",
        ylim=(5e-18, 1e3),
    )
    axes.legend(loc="upper right", markerscale=2)


def by_powers(x: Tensor, y: Tensor) -> Tensor:
    """The binomial theorem about one centre: cumulative sums of the points' powers."""
    centre = y.mean()
    x, y = x - centre, y - centre
    above = torch.searchsorted(-y, -x)
    s = [torch.nn.functional.pad((y**k).cumsum(0), (1, 0))[above] for k in range(4)]
    return -(x**3) * s[0] + 3 * x**2 * s[1] - 3 * x * s[2] + s[3]


if __name__ == "__main__":
    main()
