"""Measure and draw the memory of evaluate on images, with and without their logits: docs/img/evaluate-memory.svg."""

from __future__ import annotations

import torch
from page import BLUE, GREY, ORANGE, plt, save
from torch import nn

from metricfit.train import evaluate

IMAGES = [16, 32, 64, 128]
CLASSES, SIDE = 4, 128


def measure_peak(images: int, keep_logits: bool) -> float:
    """Return the largest memory of torch during evaluate, in MB beyond the inputs and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(images, CLASSES, SIDE, SIDE, generator=generator)
    y = torch.randint(CLASSES, (images, SIDE, SIDE), generator=generator)
    model = nn.Conv2d(CLASSES, CLASSES, 1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        evaluate(model, (x, y), "jaccard", keep_logits=keep_logits, batch_size=8)
    held = peak = 0
    events = profile.profiler.kineto_results.events() if profile.profiler else []
    for event in sorted((event for event in events if event.name() == "[memory]"), key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 1e6


def main() -> None:
    """Draw the memory by the number of images."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    for keep_logits, colour, label in ((True, ORANGE, "keep_logits=True"), (False, BLUE, "counts only, the default")):
        peaks = [measure_peak(images, keep_logits) for images in IMAGES]
        axes.plot(IMAGES, peaks, "o-", color=colour, label=label)
        print(label, [round(peak) for peak in peaks])
    logits = [images * CLASSES * SIDE * SIDE * 4 / 1e6 for images in IMAGES]
    axes.plot(IMAGES, logits, "--", color=GREY, label="the logits themselves")
    axes.set(xlabel=f"images of {CLASSES} classes and {SIDE} x {SIDE} pixels", ylabel="memory of evaluate, MB")
    axes.set_xticks(IMAGES, [str(images) for images in IMAGES])
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, "evaluate-memory")


if __name__ == "__main__":
    main()
