"""Convolutions are trained with their channels last; results differ by rounding, and the layout is restored."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from metricfit.losses import WeightedBCELoss
from metricfit.train import Callback, Checkpoints, Hardware, evaluate, fit

DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(48, 3, 8, 8, generator=DRAWN)
Y = (X[:, 0].mean((1, 2)) > 0).long()


class Spy(nn.Module):
    """Notes the layout of what passes through."""

    def __init__(self):
        super().__init__()
        self.layouts = []

    def forward(self, x):
        if self.training:
            self.layouts.append(x.is_contiguous(memory_format=torch.channels_last))
        return x


def network():
    torch.manual_seed(0)
    return nn.Sequential(Spy(), nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(64, 1))


def trained(channels_last, data=(X, Y), model=None, **settings):
    settings = {
        "epochs": 3,
        "batch_size": 16,
        "hardware": Hardware(accelerator="cpu", channels_last=channels_last),
        "progress": False,
    } | settings
    return fit(model or network(), data, WeightedBCELoss(), **settings)


def assert_close(one, other):
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(tensor, other.model.state_dict()[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y)], ids=["tensors", "dataset"])
def test_layouts_give_the_same_weights(data):
    by_default, first = trained(None, data), trained(False, data)
    assert set(by_default.model[0].layouts) == {True}
    assert set(first.model[0].layouts) == {False}
    assert_close(by_default, first)
    assert all(tensor.is_contiguous() for tensor in by_default.model.state_dict().values())
    assert evaluate(by_default, (X, Y), "f1")["f1"] == evaluate(first, (X, Y), "f1")["f1"]


def test_models_without_2d_convolutions_are_left_alone():
    model = nn.Sequential(Spy(), nn.Flatten(), nn.Linear(192, 1))
    assert set(trained(None, model=model).model[0].layouts) == {False}


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """Checkpoints hold tensors in the usual layout, and the fused optimiser needs that of the weights."""

    class Stop(Callback):
        def epoch_ended(self, rows):
            if rows[0]["epoch"] == 0:
                raise KeyboardInterrupt

    whole = trained(None, validation=(X, Y))
    with pytest.raises(KeyboardInterrupt):
        trained(None, checkpoint_dir=Checkpoints(tmp_path, 1), callbacks=[Stop()], validation=(X, Y))
    resumed = trained(None, checkpoint_dir=Checkpoints(tmp_path, 1), resume=True, validation=(X, Y))
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], tensor, rtol=0, atol=1e-6)
