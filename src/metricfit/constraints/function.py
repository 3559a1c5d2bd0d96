"""FunctionConstraint: a function of logits and target as a constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from metricfit.constraints.constraint import MeasuredConstraint
from metricfit.constraints.terms import augmented_term
from metricfit.core.distributed import gather_over_ranks
from metricfit.core.numerics import ratio
from metricfit.errors import InvalidTypeError, InvalidValueError, quote


class FunctionConstraint(MeasuredConstraint):
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
        violation, known = self._measure(logits, target, self.over_ranks)
        multiplier = self.made("multiplier", violation)
        if self.learns:
            self._record(violation, known, counts=not self.held_out)
        term = augmented_term(violation, multiplier.to(violation.dtype), penalty.to(violation.dtype))
        return torch.where(known, term, 0.0).sum()

    def _measure(self, logits: Tensor, target: Tensor, over_ranks: bool) -> tuple[Tensor, Tensor]:
        """Call the function; return its values, and whether they are numbers."""
        if over_ranks:
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
        return torch.where(known, violation, 0.0), known

    def _record(self, violation: Tensor, known: Tensor, *, counts: bool = True) -> None:
        total, times, seen = self.made("total", violation), self.made("times", violation), violation.detach()
        if counts and self.recomputed_pass(seen) is None:
            self.remember_pass(seen, seen)
            total.add_(seen)
            times.add_(known)

    def observe_held_out(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        group: Tensor | None = None,
        sync: bool = False,
    ) -> None:
        """Record the value of the function on held-out rows, for the next update.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per row; the function does not receive them.
            group: The group numbers of the rows; the function does not receive them.
            sync: Whether each rank of a distributed run passes its own share of the rows.
        """
        self._record(*self._measure(logits, target, sync))

    def recorded(self) -> tuple[Tensor, Tensor] | None:
        """Return the mean value since the last update.

        Returns:
            The mean, and whether there was a value; None before the first batch.
        """
        if self.total is None or self.times is None:
            return None
        return ratio(self.total, self.times), self.times > 0

    def clear(self) -> None:
        """Forget the values since the last update."""
        if self.total is not None and self.times is not None:
            self.total.zero_()
            self.times.zero_()

    def amount_recorded(self) -> Tensor | None:
        """Return how much was recorded since the last update.

        Returns:
            A number that is 0 if there was nothing; None before the first batch.
        """
        return None if self.times is None else self.times.sum()

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def extra_repr(self) -> str:
        """Return the name of the function."""
        return self.name
