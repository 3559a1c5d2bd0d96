"""The fully connected networks of the papers."""

from __future__ import annotations

from torch import nn

from metricfit.models import mlp


def btg_mlp(in_features: int) -> nn.Sequential:
    """32-16-1, ReLU, dropout 0.5. Tsoi et al. 2022, "Bridging the Gap", supplement 4.2; the rate is their code's.

    >>> btg_mlp(6)[-1]
    Linear(in_features=16, out_features=1, bias=True)
    """
    return mlp(in_features)


def multiclass_mlp(in_features: int, classes: int, dropout: float = 0.0) -> nn.Sequential:
    """512-256-128-d, ReLU. The multiclass F-beta paper, Section 6; it gives no dropout rate, so none is the default.

    >>> multiclass_mlp(20, classes=10)[-1]
    Linear(in_features=128, out_features=10, bias=True)
    """
    return mlp(in_features, (512, 256, 128), classes, dropout)


def study_mlp(in_features: int) -> nn.Sequential:
    """128-128-1, ReLU, dropout 0.2: the network of this project's own study of 19 imbalanced sets.

    >>> study_mlp(6)[0]
    Linear(in_features=6, out_features=128, bias=True)
    """
    return mlp(in_features, (128, 128), 1, 0.2)


def perceptron(in_features: int, out_features: int = 1) -> nn.Sequential:
    """One linear layer whose weights and bias start at zero: AnyLoss's single-layer perceptron.

    >>> perceptron(3)(torch.ones(2, 3))
    tensor([[0.],
            [0.]], grad_fn=<AddmmBackward0>)
    """
    model = mlp(in_features, (), out_features)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


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
