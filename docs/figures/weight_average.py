"""Train with and without the average of the weights, and draw both: docs/img/weight-average.svg."""

from __future__ import annotations

import torch
from page import BLUE, ORANGE, plt, save
from torch import nn

from metricfit.losses import WeightedBCELoss
from metricfit.train import Hardware, Steps, fit

EPOCHS, DECAY = 40, 0.99


def make_rows(seed: int, rows: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and labels with noise, one in five of them positive."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 10, generator=generator)
    score = x[:, 0] + x[:, 1] * x[:, 2] + torch.randn(rows, generator=generator)
    return x, (score > 1.3).long()


def train(ema: float | None) -> list[float]:
    """Return the best F1 of the validation rows after each epoch; the learning rate is high and batches are small."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    settings = {
        "epochs": EPOCHS,
        "batch_size": 32,
        "lr": 0.02,
        "progress": False,
        "hardware": Hardware(accelerator="cpu"),
    }
    result = fit(
        model,
        make_rows(0),
        WeightedBCELoss(),
        validation=make_rows(1),
        monitor=["loss", "best f1"],
        steps=Steps(ema=ema),
        **settings,  # type: ignore[arg-type]
    )
    return list(result.history["best f1"])


def main() -> None:
    """Draw F1 by epoch."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    for ema, colour, label in ((None, ORANGE, "the weights"), (DECAY, BLUE, f"their average, ema={DECAY}")):
        values = train(ema)
        axes.plot(range(1, EPOCHS + 1), values, "-", color=colour, label=label)
        print(f"{label}: last {values[-1]:.3f}, best {max(values):.3f}, lowest after epoch 10 {min(values[10:]):.3f}")
    axes.set(xlabel="epoch", ylabel="best F1 on validation rows")
    axes.legend()
    save(figure, "weight-average")


if __name__ == "__main__":
    main()
