"""A loss for each member of an ensemble that is one module."""

from __future__ import annotations

import copy
import inspect

import torch
from torch import Tensor, nn


class PerMember(nn.Module):
    r"""The mean over members of the objective on that member's logits: how `TabM` is trained.

    :math:`\frac1k \sum_j \mathrm{objective}_j(x_{\cdot\cdot j}, y)` for logits ``(n, c, k)``, k the number of
    ``members``. Each member has an objective of its own, a copy, so that running counts and multipliers are those of
    one member. Logits ``(n, c)``, which `TabM` gives in eval mode, go to the first copy alone.

    ``weight`` and ``index`` go to objectives that take them; ``weight`` is an error for one that does not.

    >>> loss = PerMember(nn.BCEWithLogitsLoss(), members=4)
    >>> target = torch.tensor([[1.0], [0.0]])
    >>> loss(torch.zeros(2, 1, 4), target), loss(torch.zeros(2, 1), target)
    (tensor(0.6931), tensor(0.6931))
    """

    def __init__(self, objective: nn.Module, members: int) -> None:
        super().__init__()
        if members < 1:
            raise ValueError(f"PerMember needs at least one member, got {members}")
        self.objectives = nn.ModuleList(copy.deepcopy(objective) for _ in range(members))
        parameters = inspect.signature(objective.forward).parameters.values()
        open_ended = any(given.kind is given.VAR_KEYWORD for given in parameters)
        self._takes = {
            name for name in ("weight", "index") if open_ended or name in {given.name for given in parameters}
        }

    def forward(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """The mean over members."""
        if weight is not None and "weight" not in self._takes:
            raise ValueError(f"weight was given, but {type(self.objectives[0]).__name__} does not take it")
        given = {"weight": weight, "index": index}
        extra = {name: value for name, value in given.items() if value is not None and name in self._takes}
        if logits.dim() == 2:
            value: Tensor = self.objectives[0](logits, target, **extra)
            return value
        k = len(self.objectives)
        if logits.dim() != 3 or logits.shape[-1] != k:
            raise ValueError(
                f"PerMember of {k} members takes logits (n, c, {k}), or (n, c) in eval mode, got {tuple(logits.shape)}"
            )
        members = zip(self.objectives, logits.unbind(-1), strict=True)
        return torch.stack([objective(own, target, **extra) for objective, own in members]).mean()
