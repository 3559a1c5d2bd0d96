"""Fully connected networks.

Outputs are logits ``(n, out_features)``; with one output that is the shape ``(n, 1)`` that every binary loss takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

from metricfit.errors import InvalidValueError


def mlp(
    in_features: int,
    hidden: Sequence[int] = (32, 16),
    out_features: int = 1,
    dropout: float = 0.5,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Make a fully connected network.

    The default is the tabular network of Tsoi et al. 2022 (supplement 4.2).

    Args:
        in_features: Number of inputs.
        hidden: Number of units of each hidden layer.
        out_features: Number of logits.
        dropout: Dropout after each hidden layer; 0 for none.
        activation: Makes the activation after each hidden layer.

    Returns:
        The layers in sequence.

    Raises:
        ValueError: A layer has no units.

    Example:
        >>> mlp(6, hidden=(32,))
        Sequential(
          (0): Linear(in_features=6, out_features=32, bias=True)
          (1): ReLU()
          (2): Dropout(p=0.5, inplace=False)
          (3): Linear(in_features=32, out_features=1, bias=True)
        )
    """
    widths = [in_features, *hidden, out_features]
    if min(widths) < 1:
        raise InvalidValueError(f"every layer of an mlp needs at least one unit, got {widths}")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        layers += [nn.Linear(inputs, outputs), activation()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-2], out_features))
