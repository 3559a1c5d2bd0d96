"""A function of logits and target as a constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.constraints.base import Constraint
from metricfit.constraints.terms import augmented_term, next_multiplier
from metricfit.core.distributed import number_of_ranks, sum_over_ranks


class FunctionConstraint(Constraint):
    """``g(logits, target) <= 0`` as a constraint; what AugmentedLagrangian makes of a callable.

    The function gives one number or several, each with a multiplier. The update takes the mean of the values seen since
    the last one; over ranks, values are averaged. If the function is a module, its state is part of this one's.

    >>> calm = FunctionConstraint(lambda logits, target: logits.abs().mean() - 2)
    >>> calm(torch.tensor([3.0, -5.0]), torch.tensor([1, 0]), torch.tensor(1.0))
    tensor(2.)
    """

    late: ClassVar[tuple[str, ...]] = ("multiplier", "total")
    total: Tensor | None
    times: Tensor

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self.function = function
        self.register_buffer("times", torch.zeros(()))

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        penalty: Tensor,
        *,
        index: Tensor | None = None,
        weight: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """The augmented term of the function's value."""
        violation = self.function(logits, target)
        if not isinstance(violation, Tensor) or not violation.is_floating_point():
            raise TypeError(f"the constraint {self.name} must return a floating-point tensor, got {violation!r}")
        if self.over_ranks:
            violation = sum_over_ranks(violation) / number_of_ranks()
        multiplier = self.made("multiplier", violation)
        if self.learns:
            self.made("total", violation).add_(violation.detach())
            self.times.add_(1)
        return augmented_term(violation, multiplier.to(violation.dtype), penalty.to(violation.dtype)).sum()

    def update(self, penalty: Tensor) -> None:
        """Move the multipliers by the mean value since the last update."""
        if self.total is None or self.multiplier is None:
            return
        mean = self.total / self.times.clamp(min=1).to(self.total.dtype)
        moved = next_multiplier(mean, self.multiplier, penalty.to(mean.dtype))
        self.multiplier.copy_(torch.where(self.times > 0, moved, self.multiplier))
        self.total.zero_()
        self.times.zero_()

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.times.zero_()

    @property
    def name(self) -> str:
        """What the function is called."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def extra_repr(self) -> str:
        """The function's name."""
        return self.name
