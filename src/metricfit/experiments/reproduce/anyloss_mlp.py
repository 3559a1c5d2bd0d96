"""The network of AnyLoss (Han et al. 2024)."""

from __future__ import annotations

from torch import nn

from metricfit.models import mlp


def anyloss_mlp(in_features: int) -> nn.Sequential:
    """Two sigmoid units and one output, He's normal first weights, as in the authors' code.

    Theirs has batch normalisation before the sigmoid. A population has none, since running means are not weights; the
    inputs are standardised instead.

    >>> anyloss_mlp(5)
    Sequential(
      (0): Linear(in_features=5, out_features=2, bias=True)
      (1): Sigmoid()
      (2): Linear(in_features=2, out_features=1, bias=True)
    )
    """
    model = mlp(in_features, (2,), dropout=0.0, activation=nn.Sigmoid)
    first = model[0]
    assert isinstance(first, nn.Linear)
    nn.init.kaiming_normal_(first.weight)
    nn.init.zeros_(first.bias)
    return model
