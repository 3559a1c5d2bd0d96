"""Fully connected networks: one function, and the papers' settings of it.

Outputs are logits ``(n, out_features)``; with one output that is the ``(n, 1)`` every binary loss takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn


def mlp(
    in_features: int,
    hidden: Sequence[int] = (32, 16),
    out_features: int = 1,
    dropout: float = 0.5,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Linear layers, each hidden one followed by ``activation`` and, above 0, ``dropout``.

    The default is the tabular network of Tsoi et al. 2022 (supplement 4.2).

    >>> mlp(6)
    Sequential(
      (0): Linear(in_features=6, out_features=32, bias=True)
      (1): ReLU()
      (2): Dropout(p=0.5, inplace=False)
      (3): Linear(in_features=32, out_features=16, bias=True)
      (4): ReLU()
      (5): Dropout(p=0.5, inplace=False)
      (6): Linear(in_features=16, out_features=1, bias=True)
    )
    """
    widths = [in_features, *hidden, out_features]
    if min(widths) < 1:
        raise ValueError(f"every layer of an mlp needs at least one unit, got {widths}")
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths[:-1]):
        layers += [nn.Linear(wide, narrow), activation()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-2], out_features))


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
