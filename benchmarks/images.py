"""Images: a small convolutional network by memory layout, several at once, and the memory of evaluating segmentations.

A metric of counts needs only the counts of each batch, so evaluate keeps no logits: four times the images take the same
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.tables import Line, Setting, Table
from benchmarks.timing import Work, interleaved_minima, peak_bytes
from metricfit.train import Hardware, evaluate, fit
from metricfit_papers.graphs import CapturedLearner
from metricfit_papers.populations import fit_population

IMAGES, BATCH = 256, 64
MEMBERS, IMAGES_OF_MEMBERS, EPOCHS_OF_MEMBERS = 10, 2_048, 5
MASKS, CLASSES, SIDE = (22, 88), 4, 256


def network() -> nn.Module:
    """Make a small convolutional network."""
    layers = (nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU())
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1))


def images(n: int) -> tuple[Tensor, Tensor]:
    """Make images of noise, and labels that depend on their brightness."""
    x = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return x, (x.mean((1, 2, 3)) > 0).long()


def layouts(device: str) -> Callable[[Setting], list[Line]]:
    """Time one epoch with the channels last, as fit does it, and with the channels first."""

    def measure(setting: Setting) -> list[Line]:
        data = images(setting.size(IMAGES, 8))
        settings: dict[str, Any] = {"epochs": 1, "batch_size": BATCH, "progress": False, "monitor": None}
        accelerator = "gpu" if device == "cuda" else "cpu"

        def train(channels_last: bool | None) -> Any:
            hardware = Hardware(accelerator=accelerator, channels_last=channels_last)
            return fit(network(), data, nn.BCEWithLogitsLoss(), hardware=hardware, **settings)

        works: dict[str, Work] = {"fit, channels first": lambda: train(False), "fit": lambda: train(None)}
        best, repeats = interleaved_minima(works, device, setting, warmup=1)
        return [Line(name, best[name], repeats=repeats) for name in works]

    return measure


def members_at_once(device: str) -> Callable[[Setting], list[Line]]:
    """Time networks trained one after the other, and at once; these with CUDA graphs on a GPU; in seconds per epoch."""

    def measure(setting: Setting) -> list[Line]:
        data = images(setting.size(IMAGES_OF_MEMBERS, 8))
        epochs, learner = setting.size(EPOCHS_OF_MEMBERS, 1), CapturedLearner if device == "cuda" else None
        settings: dict[str, Any] = {"epochs": epochs, "batch_size": BATCH, "progress": False, "monitor": None}

        def in_a_row() -> None:
            hardware = Hardware(accelerator="gpu" if device == "cuda" else "cpu")
            for seed in range(MEMBERS):
                fit(network(), data, nn.BCEWithLogitsLoss(), seed=seed, hardware=hardware, **settings)

        def at_once() -> None:
            members = [network() for _ in range(MEMBERS)]
            fit_population(members, data, nn.BCEWithLogitsLoss(), device=device, make_learner=learner, **settings)

        works: dict[str, Work] = {f"{MEMBERS} in a row": in_a_row, f"{MEMBERS} at once": at_once}
        best, repeats = interleaved_minima(works, device, setting, warmup=1, fewest=3)
        return [Line(name, best[name] / epochs, repeats=repeats) for name in works]

    return measure


def memory_of_evaluate(setting: Setting) -> list[Line]:
    """Measure the memory of evaluate on logits that are there already, for two numbers of images."""
    side = setting.size(SIDE, 8)
    works: dict[str, Work] = {}
    for n in MASKS:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(n, CLASSES, side, side, generator=generator)
        target = torch.randint(CLASSES, (n, side, side), generator=generator)
        name = f"{n} images, {logits.numel() * 4 / 2**20:.0f} MiB of logits"
        works[name] = lambda data=(logits, target): evaluate(nn.Identity(), data, "f1")  # type: ignore[misc]
    memory = {name: peak_bytes(work, "cpu") for name, work in works.items()}
    best, repeats = interleaved_minima(works, "cpu", setting, warmup=0, fewest=3)
    return [Line(name, best[name], memory[name], repeats=repeats) for name in works]


TABLES = (
    Table("images-cpu", f"an epoch of {IMAGES} images of 3 x 32 x 32, a small network, CPU", "cpu", layouts("cpu")),
    Table("images-gpu", f"an epoch of {IMAGES} images of 3 x 32 x 32, a small network, GPU", "cuda", layouts("cuda")),
    *(
        Table(
            f"image-members-{name.lower()}",
            f"an epoch of {MEMBERS} networks, {IMAGES_OF_MEMBERS:,} images of 3 x 32 x 32, {name}",
            device,
            members_at_once(device),
            why_fewer="a round of whole trainings takes seconds",
            is_long=True,
        )
        for name, device in (("CPU", "cpu"), ("GPU", "cuda"))
    ),
    Table(
        "evaluate-memory",
        'evaluate "f1" of segmentations, 4 classes of 256 x 256, CPU',
        "cpu",
        memory_of_evaluate,
        why_fewer="memory is what is compared",
    ),
)
