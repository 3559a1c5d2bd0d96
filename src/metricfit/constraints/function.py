"""A function of logits and target as a constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.constraints.constraint import Constraint
from metricfit.constraints.terms import augmented_term, next_multiplier
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.numerics import ratio
from metricfit.errors import InvalidTypeError, InvalidValueError, quote


class FunctionConstraint(Constraint):
    """``g(logits, target) <= 0`` as a constraint; what AugmentedLagrangian makes of a callable.

    The function gives one number or several, each with a multiplier. The update takes the mean of the values seen since
    the last one. A value that is not a number, as the mean over the positives of a batch without any, is left out: it
    adds nothing. In a distributed run it is called on the logits and targets of all ranks together. Weights it does not
    see. If the function is a module, its state is part of this one's.

    >>> calm = FunctionConstraint(lambda logits, target: logits.abs().mean() - 2)
    >>> calm(torch.tensor([3.0, -5.0]), torch.tensor([1, 0]), torch.tensor(1.0))
    tensor(2.)
    """

    late: ClassVar[tuple[str, ...]] = ("multiplier", "total", "times")
    total: Tensor | None
    times: Tensor | None

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self.function = function

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
        if self.over_ranks:
            logits, target = gather_over_ranks(logits), gather_over_ranks(target)
        violation = self.function(logits, target)
        if not isinstance(violation, Tensor) or not violation.is_floating_point():
            raise InvalidTypeError(
                f"the constraint {self.name} must return a floating-point tensor, got {quote(violation)}"
            )
        if violation.dim() and violation.shape == logits.shape and len(logits) > 1:
            raise InvalidValueError(
                f"the constraint {self.name} gives a number a sample, {tuple(violation.shape)}; a constraint is on the "
                "batch: take a mean, a maximum or a share of them"
            )
        known = ~violation.detach().isnan()
        violation = torch.where(known, violation, 0.0)
        multiplier, total, times = (self.made(name, violation) for name in ("multiplier", "total", "times"))
        if self.learns:
            total.add_(violation.detach())
            times.add_(known)
        term = augmented_term(violation, multiplier.to(violation.dtype), penalty.to(violation.dtype))
        return torch.where(known, term, 0.0).sum()

    def update(self, penalty: Tensor) -> None:
        """Move the multipliers by the mean value since the last update."""
        if self.total is None or self.times is None or self.multiplier is None:
            return
        mean = ratio(self.total, self.times)
        moved = next_multiplier(mean, self.multiplier, penalty.to(mean.dtype))
        self.multiplier.copy_(torch.where(self.times > 0, moved, self.multiplier))
        self.total.zero_()
        self.times.zero_()

    @property
    def name(self) -> str:
        """What the function is called."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def extra_repr(self) -> str:
        """The function's name."""
        return self.name
