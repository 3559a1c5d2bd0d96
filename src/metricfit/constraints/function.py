"""FunctionConstraint: a function of logits and target as a constraint."""

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
    r"""The constraint ``g(logits, target) <= 0``; AugmentedLagrangian turns a callable into it.

    .. math:: \frac{\max(0, \lambda + \mu g)^2 - \lambda^2}{2\mu}

    The function returns one number or several, each with its own multiplier. The update uses the mean of the values
    since the last update. NaN, such as the mean over the positives of a batch without positives, adds nothing. The
    function does not receive weights.

    Args:
        function: The function g. If it is a module, its state is part of the state of this constraint.
        sync: In a distributed run, call the function on the logits and targets of all ranks together.

    Raises:
        TypeError: If the function does not return a floating-point tensor (when called).
        ValueError: If the function returns one number per sample (when called).

    Example:
        >>> small_logits = FunctionConstraint(lambda logits, target: logits.abs().mean() - 2)
        >>> small_logits(torch.tensor([3.0, -5.0]), torch.tensor([1, 0]), torch.tensor(1.0))
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
        """Compute the augmented term of the value of the function.

        Args:
            logits: The outputs of the model.
            target: The labels.
            penalty: The penalty factor mu.
            index: The positions of the samples in the training set.
            weight: One weight per sample.
            group: The group numbers of the samples.

        Returns:
            What the constraint adds to the objective, a scalar.

        Raises:
            TypeError: If the function does not return a floating-point tensor.
            ValueError: If the function returns one number per sample.
        """
        if self.over_ranks:
            logits, target = gather_over_ranks(logits), gather_over_ranks(target)
        violation = self.function(logits, target)
        if not isinstance(violation, Tensor) or not violation.is_floating_point():
            raise InvalidTypeError(
                f"the constraint {self.name} must return a floating-point tensor, got {quote(violation)}"
            )
        if violation.dim() and violation.shape == logits.shape and len(logits) > 1:
            raise InvalidValueError(
                f"the constraint {self.name} returns one number per sample, {tuple(violation.shape)}; a constraint is "
                "on the batch: return a mean, a maximum or a share"
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
        """Update the multipliers from the mean value since the last update.

        Args:
            penalty: The penalty factor mu.
        """
        if self.total is None or self.times is None or self.multiplier is None:
            return
        mean = ratio(self.total, self.times)
        moved = next_multiplier(mean, self.multiplier, penalty.to(mean.dtype))
        self.multiplier.copy_(torch.where(self.times > 0, moved, self.multiplier))
        self.total.zero_()
        self.times.zero_()

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def extra_repr(self) -> str:
        """Return the name of the function."""
        return self.name
