"""Draw metrics over every threshold and the one best_threshold takes: docs/img/threshold.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREEN, GREY, ORANGE, RED, plt, save

from metricfit import Counts, curves, metrics

METRICS = [("precision", BLUE), ("recall", ORANGE), ("f1", GREEN)]


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(2000, generator=generator) < 0.1).long()
    logits = torch.randn(2000, generator=generator) * 1.3 + 3.0 * target - 3.0
    scores = torch.sigmoid(logits).double()
    thresholds = scores.unique()
    decisions = scores >= thresholds[:, None]
    tp, fp = (decisions * target).sum(1), (decisions * (1 - target)).sum(1)
    swept = Counts(*(given.double() for given in (tp, fp, target.sum() - tp, (1 - target).sum() - fp)))
    figure, axes = plt.subplots(figsize=(7.6, 4.0))
    for name, colour in METRICS:
        axes.step(thresholds, metrics.get_metric(name)(swept), where="pre", color=colour, label=name)
    free = curves.best_threshold(scores, target, "f1")
    bound = curves.best_threshold(scores, target, "precision", subject_to="recall >= 0.9")
    axes.plot(*free, "o", color=GREEN)
    axes.annotate(
        f"best f1 = {free.value:.3f}, at {free.threshold:.3f}",
        free,
        xytext=(0.30, 0.95),
        arrowprops={"arrowstyle": "-", "color": GREY},
    )
    axes.plot(*bound, "s", color=RED)
    axes.annotate(
        f"best precision = {bound.value:.3f}\nwith recall >= 0.9, at {bound.threshold:.3f}",
        bound,
        xytext=(14, -26),
        textcoords="offset points",
    )
    axes.axhline(0.9, color=GREY, linewidth=1, linestyle=":")
    axes.set(xlabel="threshold", ylabel="value", ylim=(0, 1.03))
    axes.legend(loc="center right")
    save(figure, "threshold")


if __name__ == "__main__":
    main()
