"""The MLP: layers, counts, starts."""

import pytest
import torch
from torch import nn

from metricfit.models import mlp
from metricfit.train import start_at_prior


def units(model):
    return [layer.out_features for layer in model if isinstance(layer, nn.Linear)]


def rates(model):
    return [layer.p for layer in model if isinstance(layer, nn.Dropout)]


@pytest.mark.parametrize(
    ("model", "widths", "dropout"),
    [(mlp(6), [32, 16, 1], [0.5, 0.5]), (mlp(6, (5,), 3, dropout=0.0), [5, 3], []), (mlp(6, ()), [1], [])],
    ids=["default", "without dropout", "without hidden layers"],
)
def test_layers(model, widths, dropout):
    assert units(model) == widths
    assert rates(model) == dropout
    pairs = zip([6, *widths[:-1]], widths, strict=True)
    assert sum(p.numel() for p in model.parameters()) == sum((wide + 1) * narrow for wide, narrow in pairs)


def test_outputs_equal_a_numpy_computation():
    model = mlp(4, (3, 2), dropout=0.5, activation=nn.Tanh).double().eval()
    x = torch.randn(7, 4, dtype=torch.float64)
    out = x.numpy()
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    for place, layer in enumerate(linear):
        out = out @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        if place < 2:
            out = torch.from_numpy(out).tanh().numpy()
    torch.testing.assert_close(model(x).detach(), torch.from_numpy(out))


def test_it_starts_at_the_prior():
    assert start_at_prior(mlp(3), 0.1)[-1].bias.sigmoid().item() == pytest.approx(0.1)


@pytest.mark.parametrize("wrong", [{"in_features": 0}, {"in_features": 3, "hidden": (4, 0)}])
def test_a_layer_without_units_is_refused(wrong):
    with pytest.raises(ValueError, match="at least one unit"):
        mlp(**wrong)
