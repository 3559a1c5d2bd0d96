"""The fully connected networks of the papers."""

from __future__ import annotations

from torch import nn

from metricfit.models import mlp


def btg_mlp(in_features: int) -> nn.Sequential:
    """Build the network 32-16-1 with ReLU and dropout 0.5 of Tsoi et al. 2022, "Bridging the Gap", supplement 4.2.

    The dropout rate is as in their code.

    Args:
        in_features: Number of inputs.

    Returns:
        The network.

    Example:
        >>> btg_mlp(6)[-1]
        Linear(in_features=16, out_features=1, bias=True)
    """
    return mlp(in_features)


def multiclass_mlp(in_features: int, classes: int, dropout: float = 0.0) -> nn.Sequential:
    """Build the network 512-256-128-classes with ReLU of the multiclass F-beta paper, Section 6.

    Args:
        in_features: Number of inputs.
        classes: Number of classes.
        dropout: The dropout rate. The paper gives none.

    Returns:
        The network.

    Example:
        >>> multiclass_mlp(20, classes=10)[-1]
        Linear(in_features=128, out_features=10, bias=True)
    """
    return mlp(in_features, (512, 256, 128), classes, dropout)


def study_mlp(in_features: int) -> nn.Sequential:
    """Build the network 128-128-1 with ReLU and dropout 0.2 of this project's study of 19 imbalanced sets.

    Args:
        in_features: Number of inputs.

    Returns:
        The network.

    Example:
        >>> study_mlp(6)[0]
        Linear(in_features=6, out_features=128, bias=True)
    """
    return mlp(in_features, (128, 128), 1, 0.2)


def perceptron(in_features: int, out_features: int = 1) -> nn.Sequential:
    """Build AnyLoss's single-layer perceptron: one linear layer whose weights and bias start at zero.

    Args:
        in_features: Number of inputs.
        out_features: Number of logits.

    Returns:
        The network.

    Example:
        >>> perceptron(3)(torch.ones(2, 3))
        tensor([[0.],
                [0.]], grad_fn=<AddmmBackward0>)
    """
    model = mlp(in_features, (), out_features)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def anyloss_mlp(in_features: int) -> nn.Sequential:
    """Build AnyLoss's network: two sigmoid units and one output, with He's normal first weights as in its code.

    The authors' network has batch normalisation before the sigmoid. This one has none, because the running means of a
    population are not weights; the inputs are standardised instead.

    Args:
        in_features: Number of inputs.

    Returns:
        The network.

    Example:
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
