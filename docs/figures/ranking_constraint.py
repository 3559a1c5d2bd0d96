"""Draw the paper's Figure 1, what a swap saves under three constraint sets: docs/img/ranking-constraint.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREY, ORANGE, plt, save

from metricfit import RankingConstraint

SIGNS = "--+--++-++"
LABELS = torch.tensor([sign == "+" for sign in SIGNS]).long()
SWAPS = {"lowest positive": (2, 3), "highest negative": (6, 7)}
SETS = {"per positive": "positive", "per negative": "negative", "per pair": "pair"}


def saved(per: str, swap: tuple[int, int]) -> float:
    """What exchanging two neighbours saves, in units of mu D^2 / 2: Eq. 8 times N+ N-, no multipliers, margin 0."""
    scores = torch.arange(len(SIGNS), dtype=torch.float64)
    swapped = scores.clone()
    swapped[list(swap)] = scores[list(reversed(swap))]
    constraint, mu = RankingConstraint(0.0, per, size=len(SIGNS)), torch.tensor(1.0)
    pairs = LABELS.sum() * (1 - LABELS).sum()
    return float(2 * pairs * (constraint(scores, LABELS, mu) - constraint(swapped, LABELS, mu)))


def main() -> None:
    figure, (line, bars) = plt.subplots(2, 1, figsize=(7.6, 4.6), height_ratios=(1, 2))
    for at, sign in enumerate(SIGNS):
        colour = BLUE if sign == "+" else ORANGE
        line.plot(at, 0, "o", color=colour, markersize=17)
        line.annotate(sign, (at, 0), ha="center", va="center", color="white", fontsize=13, fontweight="bold")
    for name, (left, right) in SWAPS.items():
        line.annotate(
            "", (right, 0.35), (left, 0.35), arrowprops={"arrowstyle": "<->", "connectionstyle": "arc3,rad=-0.5"}
        )
        line.annotate(f"{name}:\nswap", ((left + right) / 2, 0.75), ha="center", color=GREY, fontsize=9)
    line.set(xlim=(-0.7, 9.7), ylim=(-0.6, 1.5), yticks=[], xticks=[], xlabel="score: positives (+), negatives (-)")
    line.grid(visible=False)
    line.spines["left"].set_visible(False)
    for at, (name, swap) in enumerate(SWAPS.items()):
        values = [saved(per, swap) for per in SETS.values()]
        places = [k + 0.36 * (at - 0.5) for k in range(len(SETS))]
        drawn = bars.bar(places, values, width=0.34, color=(BLUE, ORANGE)[at], label=f"moving the {name}")
        bars.bar_label(drawn, fmt="%g", padding=2)
    bars.set(ylabel=r"saved, in $\mu D^2/2$", ylim=(0, 46), xticks=range(len(SETS)))
    bars.set_xticklabels([f"constraint {name}" for name in SETS])
    bars.grid(axis="x", visible=False)
    bars.legend(loc="upper right")
    figure.tight_layout()
    save(figure, "ranking-constraint")


if __name__ == "__main__":
    main()
