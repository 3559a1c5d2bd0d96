"""Draw the steps, and what a logit feels of them: docs/img/steps.svg and docs/img/steps-*.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, plt, save

from metricfit.core.tensor_numerics import tails
from metricfit.steps import Identity, Linear, RaisedCosine, Sigmoid

STEPS = [
    ("Linear(delta=0.1)", Linear(0.1), BLUE),
    ("Sigmoid(k=10)", Sigmoid(10), ORANGE),
    ("Sigmoid(k=73)", Sigmoid(73), RED),
    ("Identity()", Identity(), GREEN),
    ("RaisedCosine(width=0.1)", RaisedCosine(0.1), PURPLE),
]


def draw_steps() -> None:
    p = torch.linspace(0, 1, 1001, dtype=torch.float64)
    x = torch.linspace(-8, 8, 1601, dtype=torch.float64)
    at, against = tails(x)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9))
    left.step([0, 0.5, 1], [0, 1, 1], where="post", color=GREY, linestyle=":", label="hard decision")
    for name, step, colour in STEPS:
        left.plot(p, step(p, 0.5), color=colour, label=name)
        right.plot(x, (step.slope(at, 0.5) * at * against).clamp_min(1e-30), color=colour)
    left.set(title="The step at t = 0.5", xlabel="probability p", ylabel="h = step(p, t)")
    left.legend(fontsize=8, loc="upper left")
    right.set(
        title="Its gradient at the logit",
        xlabel="logit x   (p = 0.02, 0.12, 0.5, 0.88, 0.98 at x = -4, -2, 0, 2, 4)",
        ylabel="dh/dx = step'(p) p (1-p)",
        yscale="log",
        ylim=(1e-6, 40),
    )
    save(figure, "steps")


def draw_thresholds() -> None:
    p = torch.linspace(0, 1, 1001, dtype=torch.float64)
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for t, colour in ((0.1, BLUE), (0.3, ORANGE), (0.5, GREEN), (0.8, RED)):
        axes.plot(p, Linear(0.1)(p, t), color=colour, label=f"t = {t}")
        axes.plot([t], [0.5], "o", color=colour, markersize=5)
    axes.set(title="Linear(delta=0.1) at four thresholds", xlabel="probability p", ylabel="h = step(p, t)")
    axes.legend()
    save(figure, "steps-thresholds")


def draw_grid() -> None:
    """Draw Figures 2 to 4 of the supplement of Tsoi et al. 2022: all slopes and shares at nine thresholds."""
    p = torch.linspace(0, 1, 201, dtype=torch.float64)
    thresholds = [number / 10 for number in range(1, 10)]
    colours = plt.colormaps["viridis"](torch.linspace(0, 0.95, len(thresholds)))
    figure, axes = plt.subplots(3, 4, figsize=(11, 8))
    for column, k in enumerate((1, 10, 20, 50)):
        for t, colour in zip(thresholds, colours, strict=True):
            axes[0, column].plot(p, Sigmoid(k)(p, t), color=colour, linewidth=1.1, label=f"t = {t}")
            axes[1, column].plot(p, Sigmoid(k).slope(p, t), color=colour, linewidth=1.1)
        axes[0, column].set(title=f"Sigmoid, k = {k}", ylim=(-0.05, 1.05))
        axes[1, column].set(title=f"Its slope, k = {k}")
    for column, (limit, delta) in enumerate((("0", 1e-6), ("0.5", 0.5 - 1e-6), ("0.1", 0.1), ("0.2", 0.2))):
        for t, colour in zip(thresholds, colours, strict=True):
            axes[2, column].plot(p, Linear(delta)(p, t), color=colour, linewidth=1.1)
        axes[2, column].set(title=f"Linear, delta = {limit}" + (" (limit)" if delta in (1e-6, 0.5 - 1e-6) else ""))
        axes[2, column].set_xlabel("probability p")
    axes[0, 0].legend(fontsize=5, ncols=3, loc="lower center")
    save(figure, "steps-grid")


if __name__ == "__main__":
    draw_steps()
    draw_thresholds()
    draw_grid()
