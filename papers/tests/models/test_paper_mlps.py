"""The papers' MLPs: layers, and where the perceptron starts."""

import pytest
import torch
from torch import nn

from metricfit import MetricLoss
from metricfit_papers.models import anyloss_mlp, btg_mlp, multiclass_mlp, perceptron, study_mlp


@pytest.mark.parametrize(
    ("model", "widths", "dropout"),
    [
        (btg_mlp(6), [32, 16, 1], [0.5, 0.5]),
        (multiclass_mlp(6, classes=7), [512, 256, 128, 7], []),
        (study_mlp(6), [128, 128, 1], [0.2, 0.2]),
        (perceptron(6), [1], []),
        (anyloss_mlp(6), [2, 1], []),
    ],
    ids=["btg", "multiclass", "study", "perceptron", "anyloss"],
)
def test_the_layers_are_those_of_the_papers(model, widths, dropout):
    assert [layer.out_features for layer in model if isinstance(layer, nn.Linear)] == widths
    assert [layer.p for layer in model if isinstance(layer, nn.Dropout)] == dropout


def test_the_perceptron_starts_at_zero_and_learns():
    model = perceptron(3)
    assert all((p == 0).all() for p in model.parameters())
    MetricLoss("f1")(model(torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]])), torch.tensor([1, 0])).backward()
    assert all((p.grad != 0).all() for p in model.parameters() if p.dim() == 2)
