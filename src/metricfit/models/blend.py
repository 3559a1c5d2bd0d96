"""Several networks whose logits are averaged."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError


class Blend(nn.Module):
    """Networks that are trained with separate losses and whose mean logits are the prediction.

    As with `TabM`, the output depends on the mode: in training it has the logits of every part,
    ``(n, out_features, parts)``, for the loss `PerMember`; in eval mode it is their mean, ``(n, out_features)``.

    Args:
        parts: Two or more networks with the same inputs and outputs.

    Raises:
        ValueError: There are fewer than two parts.

    Example:
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
        """Return the logits of all parts in training, and their mean in eval mode.

        Args:
            x: The inputs of the parts.

        Returns:
            ``(n, out_features, parts)`` in training, ``(n, out_features)`` in eval mode.
        """
        logits = torch.stack([part(x) for part in self.parts], dim=-1)
        return logits if self.training else logits.mean(-1)
