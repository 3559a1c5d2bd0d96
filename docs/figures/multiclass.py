"""Draw how one sample's probabilities become soft decisions: docs/img/multiclass.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREEN, GREY, ORANGE, plt, save

from metricfit import metrics, steps

COLOURS = (BLUE, ORANGE, GREEN)
NAMES = ("a", "b", "c")
SAMPLE = torch.tensor([0.5, 0.35, 0.15])
THIRD = 0.2
DELTA = 0.2


def decided(p: torch.Tensor, delta: float = DELTA) -> torch.Tensor:
    """The soft decisions of samples ``(n, c)`` that the library counts."""
    step, true = steps.Linear(delta), torch.tensor([0])
    rows = [metrics.confusion_matrix(one.log()[None], true, soft=True, step=step)[0] for one in p]
    return torch.stack(rows)


def one_sample(axes: plt.Axes) -> None:
    threshold = SAMPLE.topk(2).values.mean()
    mass = steps.Linear(DELTA)(SAMPLE, threshold)
    for at, (values, colour) in enumerate(
        zip((SAMPLE, mass, decided(SAMPLE[None])[0]), (GREY, BLUE, GREEN), strict=True)
    ):
        places = torch.arange(3) + 0.27 * (at - 1)
        axes.bar(places, values, 0.25, color=colour)
        for x, y in zip(places, values, strict=True):
            axes.text(x, y + 0.012, f"{y:.2f}", ha="center", fontsize=8)
    axes.axhline(threshold, color=GREY, linewidth=1, linestyle=":")
    axes.text(2.45, threshold + 0.012, f"t = {threshold:.3f}", ha="right", fontsize=8)
    axes.set(title="one sample", xlabel="class", ylim=(0, 0.8), xticks=range(3), xticklabels=NAMES)
    axes.legend(["t", "softmax p", "step h", "decision h / sum h"], loc="upper right", fontsize=8)


def as_the_odds_move(axes: plt.Axes) -> None:
    first = torch.linspace(0.001, 1 - THIRD - 0.001, 500)
    p = torch.stack([first, 1 - THIRD - first, torch.full_like(first, THIRD)], dim=1)
    soft, steep = decided(p), decided(p, delta=0.02)
    for column, (name, colour) in enumerate(zip(NAMES, COLOURS, strict=True)):
        axes.plot(first, soft[:, column], color=colour, label=f"class {name}")
        axes.plot(first, steep[:, column], color=colour, linewidth=1, linestyle="--")
        axes.plot(first, p[:, column], color=colour, linewidth=1, linestyle=":")
    axes.set(
        title=f"$p_c$ = {THIRD}, and a takes over from b",
        xlabel="$p_a$",
        ylabel="decision",
        ylim=(0, 1.12),
    )
    axes.legend(loc="center right")
    axes.text(0.4, 1.05, "dashed: Linear(0.02); dotted: softmax", ha="center", fontsize=8)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8))
    one_sample(left)
    as_the_odds_move(right)
    save(figure, "multiclass")


if __name__ == "__main__":
    main()
