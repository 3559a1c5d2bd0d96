"""Fully connected networks.

Outputs are logits ``(n, out_features)``; with one output that is the ``(n, 1)`` every binary loss takes.
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
        raise InvalidValueError(f"every layer of an mlp needs at least one unit, got {widths}")
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(widths[:-1]):
        layers += [nn.Linear(wide, narrow), activation()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-2], out_features))
