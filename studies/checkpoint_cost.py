"""What checkpoints cost: the time of one beside that of an epoch. Writes the table of docs/resume.md.

    python -m studies.checkpoint_cost

Times are minima, on one core; what a sync takes differs from disk to disk.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Hardware, fit
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.randomness import capture

SAMPLES, BATCH, EPOCHS, CHECKPOINTS = 8192, 256, 12, 50
WIDTHS = (32, 256, 1024)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "resume.md"
BEGIN, END = "<!-- begin: cost -->\n", "<!-- end: cost -->\n"


class Clock(Callback):
    """The time of the fastest epoch."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def epoch_ended(self, rows: Sequence[dict[str, Any]]) -> None:
        """An epoch lasts from one call to the next."""
        self.times.append(time.perf_counter())

    @property
    def fastest(self) -> float:
        """In seconds."""
        return min(after - before for before, after in itertools.pairwise(self.times))


def train(width: int, clock: Clock, **settings: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, 20, generator=generator)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    settings |= {"epochs": EPOCHS, "batch_size": BATCH, "hardware": Hardware(accelerator="cpu"), "callbacks": [clock]}
    fit(model, (x, y), WeightedBCELoss(), validation=(x[:1000], y[:1000]), **settings)


def time_of_checkpoint(folder: RunFolder) -> float:
    """The fastest of some, with the state that the run has left."""
    state, times = folder.load(), []
    assert state is not None
    for step in range(CHECKPOINTS):
        began = time.perf_counter()
        capture()
        folder.save(replace(state, loop=replace(state.loop, step=10**6 + step)))
        times.append(time.perf_counter() - began)
    return min(times)


def row(width: int) -> str:
    clock = Clock()
    train(width, clock)
    with tempfile.TemporaryDirectory() as place:
        train(width, Clock(), checkpoint_dir=place)
        folder = RunFolder(place)
        size = folder.checkpoints()[0].stat().st_size
        seconds = time_of_checkpoint(folder)
    shown = f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"
    return f"| 20-{width}-{width}-1 | {shown} | {seconds * 1e3:.1f} ms | {clock.fastest * 1e3:.0f} ms |\n"


def main() -> None:
    torch.set_num_threads(1)
    table = "| network | a checkpoint | its time | an epoch's time |\n|---|---|---|---|\n" + "".join(map(row, WIDTHS))
    print(table)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
