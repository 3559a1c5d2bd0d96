"""Lower precision on the CPU; that of a GPU is in tests/gpu."""

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, fit
from metricfit.curves import best_threshold
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.train import Hardware


def data(n, seed=0):
    """Two Gaussians in 10 dimensions, means 4 apart, 5 % positives."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) < 0.05).long()
    return torch.randn(n, 10, generator=generator) + 4 / 10**0.5 * y.unsqueeze(1), y


@pytest.fixture(scope="module")
def by_precision():
    results = {}
    for precision in (None, "32-true", "bf16-mixed"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
        mix = Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))
        settings = {"validation": data(4000, seed=1), "epochs": 5, "batch_size": 256, "monitor": "best f1", "lr": 3e-3}
        results[precision] = fit(
            model,
            data(8000),
            mix,
            hardware=Hardware(accelerator="cpu", precision=precision),
            progress=False,
            **settings,
        )
    return results


def test_bfloat16_reaches_the_f1_of_float32(by_precision):
    x, y = data(20_000, seed=2)
    with torch.no_grad():
        reached = {
            precision: best_threshold(result.model(x).sigmoid().squeeze(1), y, "f1").value
            for precision, result in by_precision.items()
        }
    assert reached["32-true"] > 0.7
    assert reached["bf16-mixed"] == pytest.approx(reached["32-true"], abs=0.01)


def test_bfloat16_is_really_computed_in(by_precision):
    losses = {precision: result.history.rows[0]["train_loss"] for precision, result in by_precision.items()}
    assert losses[None] == losses["32-true"] != losses["bf16-mixed"]


def test_weights_stay_in_float32(by_precision):
    assert {item.dtype for item in by_precision["bf16-mixed"].model.parameters()} == {torch.float32}
