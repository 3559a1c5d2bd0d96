"""Several networks side by side, one answer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError


class Blend(nn.Module):
    """Networks that learn from losses of their own and judge together; their mean logits are the answer.

    As `TabM`'s, what comes out depends on the mode: every part's logits, ``(n, out_features, parts)``, in training,
    for `PerMember`; their mean, ``(n, out_features)``, otherwise.

    >>> model = Blend(nn.Linear(3, 1), nn.Linear(3, 1))
    >>> model(torch.zeros(5, 3)).shape, model.eval()(torch.zeros(5, 3)).shape
    (torch.Size([5, 1, 2]), torch.Size([5, 1]))
    """

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        if len(parts) < 2:
            raise InvalidValueError(f"Blend takes two networks or more, got {len(parts)}")
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Features to the parts' logits in training, to their mean otherwise."""
        logits = torch.stack([part(x) for part in self.parts], dim=-1)
        return logits if self.training else logits.mean(-1)
