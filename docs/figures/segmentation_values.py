"""Draw one set of masks under several means: docs/img/segmentation-values.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREEN, GREY, ORANGE, RED, plt, save
from torch import Tensor

from metricfit import Counts, metrics
from metricfit.metrics import averaged

IMAGES, SIDE = 400, 24
SHARES = [step / 20 for step in range(19)]


def masks(empty: float) -> tuple[Tensor, Tensor]:
    """Discs, of which a share is missing, and decisions with errors at their edges and a false alarm now and then."""
    generator = torch.Generator().manual_seed(0)
    place = torch.arange(SIDE)
    center = 5 + (SIDE - 10) * torch.rand(IMAGES, 2, 1, 1, generator=generator)
    radius = 1.5 + 6 * torch.rand(IMAGES, 1, 1, generator=generator)
    distance = ((place[:, None] - center[:, 0]) ** 2 + (place - center[:, 1]) ** 2).sqrt() - radius
    is_empty = (torch.arange(IMAGES) < empty * IMAGES).reshape(-1, 1, 1)
    noise = 1.2 * torch.randn(IMAGES, SIDE, SIDE, generator=generator)
    alarm = (torch.rand(IMAGES, 1, 1, generator=generator) < 0.2) & (distance + 4 + noise < 0)
    truth = (distance < 0) & ~is_empty
    decided = torch.where(is_empty, alarm, distance + noise < 0)
    return decided, truth


def means(empty: float) -> dict[str, float]:
    decided, truth = masks(empty)
    logits = torch.where(decided, 5.0, -5.0).unsqueeze(1)
    target = truth.long().unsqueeze(1)
    counts = Counts.hard(logits, target, per_image=True)
    found = {"all pixels together": float(metrics.f1(Counts.hard(logits, target)))}
    for rule in (0, 1, "skip"):
        values = averaged(metrics.f1, counts, zero_division=rule)
        found[f"per image, zero_division={rule!r}"] = float(values.nanmean())
    return found


def draw_example(axes: plt.Axes) -> None:
    decided, truth = masks(0.5)
    alarms = decided[: IMAGES // 2].any(2).any(1)
    chosen = [int((~alarms).int().argmax()), int(alarms.int().argmax()), 210, 201, 205, 222]
    rows = [torch.cat([part[k] for k in chosen], 1).float() for part in (truth, decided)]
    wall = torch.full((1, SIDE * len(chosen)), 0.5)
    axes.imshow(torch.cat([rows[0], wall, rows[1]]), cmap="Greys", vmin=0, vmax=1.4, interpolation="nearest")
    for k in range(1, len(chosen)):
        axes.axvline(k * SIDE - 0.5, color=GREY, linewidth=0.7)
    axes.set(title="truth (above) and decisions (below)", xticks=[], yticks=[])
    axes.grid(False)


def draw_means(axes: plt.Axes) -> None:
    found = [means(share) for share in SHARES]
    for name, colour in zip(found[0], (GREY, RED, GREEN, BLUE), strict=True):
        axes.plot(SHARES, [values[name] for values in found], color=colour, label=name)
    axes.axvline(0.5, color=ORANGE, linewidth=1, linestyle=":")
    axes.set(title="the same network, four values", xlabel="share of empty images", ylabel="Dice", ylim=(0, 1))
    axes.legend(loc="lower left", fontsize=8)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=(1.2, 1))
    draw_example(left)
    draw_means(right)
    save(figure, "segmentation-values")


if __name__ == "__main__":
    main()
