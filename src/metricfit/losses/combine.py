"""Mix: a weighted sum of losses."""

from __future__ import annotations

import inspect
import math

from torch import Tensor, nn

from metricfit.errors import InvalidTypeError, InvalidValueError, quote


class Mix(nn.Module):
    """The weighted sum of losses, as in cross-entropy plus half a metric loss.

    ``weight`` goes to the members that take it; it is an error if none does.

    >>> import torch
    >>> from metricfit.losses import MetricLoss, WeightedBCELoss
    >>> mix = Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1"), 0.5))
    >>> mix(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
    tensor(0.9431)
    """

    def __init__(self, *members: tuple[nn.Module, float]) -> None:
        super().__init__()
        if not members:
            raise InvalidValueError("Mix needs at least one (loss, weight) pair")
        for member in members:
            if not (isinstance(member, tuple) and len(member) == 2 and isinstance(member[0], nn.Module)):
                raise InvalidTypeError(f"Mix takes (loss, weight) pairs, the losses modules; got {quote(member)}")
            if isinstance(member[1], bool) or not isinstance(member[1], (int, float)) or not math.isfinite(member[1]):
                raise InvalidValueError(
                    f"the weight of {type(member[0]).__name__} in a Mix must be a finite number, got {member[1]!r}"
                )
        self.losses = nn.ModuleList(loss for loss, _ in members)
        self.weights = tuple(float(weight) for _, weight in members)
        self._takes_weight = tuple(takes_weight(loss) for loss, _ in members)

    def forward(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weighted sum."""
        if weight is not None and not any(self._takes_weight):
            names = ", ".join(type(loss).__name__ for loss in self.losses)
            raise InvalidValueError(f"weight was given, but no member of the Mix takes it: {names}")
        parts = [
            share * (loss(logits, target, weight=weight) if takes else loss(logits, target))
            for loss, share, takes in zip(self.losses, self.weights, self._takes_weight, strict=True)
        ]
        total: Tensor = sum(parts[1:], parts[0])
        return total

    def extra_repr(self) -> str:
        """The members' shares."""
        return f"weights={self.weights}"


def takes_weight(loss: nn.Module) -> bool:
    """Whether a loss can be given ``weight=``; a Mix can if one of its members can."""
    if isinstance(loss, Mix):
        return any(loss._takes_weight)
    compiled = getattr(loss, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return takes_weight(compiled)
    parameters = inspect.signature(loss.forward).parameters.values()
    return any(given.name == "weight" or given.kind is given.VAR_KEYWORD for given in parameters)
