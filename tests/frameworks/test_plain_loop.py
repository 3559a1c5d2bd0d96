"""A plain PyTorch loop: docs/frameworks.md."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import Counts, MetricLoss, RunningCounts, metrics


def f1(model, x, y):
    with torch.no_grad():
        return metrics.f1(Counts.hard(model(x), y)).item()


def trained(loss, x, y, *, autocast=False, epochs=30):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    before = f1(model, x, y)
    for _ in range(epochs):
        for inputs, target in DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                value = loss(model(inputs), target)
            value.backward()
            optimizer.step()
    return model, before


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_loop_learns(x_y, autocast, memory):
    x, y = x_y
    loss = MetricLoss("f1", memory=RunningCounts() if memory else None)
    model, before = trained(loss, x, y, autocast=autocast)
    assert f1(model, x, y) > max(0.6, before)  # a memory of 100 steps is slow to forget the first ones


def test_a_column_of_logits_equals_a_vector(x_y):
    x, y = x_y
    model = nn.Linear(4, 1)
    loss = MetricLoss("f1")
    assert loss(model(x), y) == loss(model(x).squeeze(1), y) == loss(model(x), y.float().unsqueeze(1))


def test_loss_under_autocast_is_float32(x_y):
    x, y = x_y
    with torch.autocast("cpu", torch.bfloat16):
        logits = nn.Linear(4, 1)(x)
        assert logits.dtype == torch.bfloat16
        assert MetricLoss("f1")(logits, y).dtype == torch.float32
