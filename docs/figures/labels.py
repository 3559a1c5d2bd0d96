"""Draw F1 of several labels over the threshold, and the best threshold of each: docs/img/several-labels.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREEN, GREY, ORANGE, PURPLE, plt, save
from torch import nn

from metricfit import Counts, curves, fit, losses, metrics

RATES = [0.4, 0.15, 0.05, 0.02]


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(12000, 8)
    scores = x @ torch.randn(8, 4) + 2.0 * torch.randn(12000, 4)
    y = (scores > torch.stack([scores[:, k].quantile(1 - rate) for k, rate in enumerate(RATES)])).long()
    train, held_out = (x[:3000], y[:3000]), (x[3000:], y[3000:])
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    settings = {
        "validation": held_out,
        "monitor": "best f1",
        "epochs": 15,
        "batch_size": 100,
        "lr": 1e-2,
        "progress": False,
    }
    fit(model, train, losses.WeightedBCELoss(), **settings)
    with torch.no_grad():
        logits = model(held_out[0])
    grid = torch.linspace(0.01, 0.99, 99).tolist()
    counts = Counts.hard(logits, held_out[1], threshold=metrics.ThresholdGrid(grid))
    values = metrics.f1(counts)
    best = curves.best_thresholds(logits.sigmoid(), held_out[1], "f1")
    figure, axes = plt.subplots(figsize=(7.6, 4.0))
    for label, colour in enumerate([BLUE, GREEN, ORANGE, PURPLE]):
        axes.plot(grid, values[:, label], color=colour, label=f"{100 * RATES[label]:g} % positives")
        axes.plot(best.thresholds[label], best.values[label], "o", color=colour)
    axes.axvline(0.5, color=GREY, linewidth=1, linestyle=":")
    axes.annotate("0.5", (0.5, 0.02), xytext=(4, 0), textcoords="offset points", color=GREY)
    axes.set(xlabel="threshold", ylabel="F1 of the label", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper right")
    save(figure, "several-labels")


if __name__ == "__main__":
    main()
