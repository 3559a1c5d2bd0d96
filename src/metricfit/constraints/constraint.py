"""The base classes of the constraints of an augmented Lagrangian, their terms, and functions as constraints."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from metricfit.core.buffers import LateBuffers
from metricfit.core.distributed import gather_over_ranks, number_of_ranks
from metricfit.core.numerics import Dual, clip, ratio, where
from metricfit.core.validation import is_false
from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError, quote


def augmented_term(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""Compute what a constraint :math:`g \le 0` adds to the objective (Rockafellar 1973).

    .. math:: \frac{\max(0, \lambda + \mu g)^2 - \lambda^2}{2 \mu}

    Its derivative with respect to g is max(0, lambda + mu g), the next multiplier. A constraint that holds by more than
    lambda / mu therefore has no gradient. At mu = 0 it is lambda g.

    Args:
        violation: The violation g.
        multiplier: The multiplier lambda.
        penalty: The penalty factor mu.

    Returns:
        The term, of the shape of the violation.

    Example:
        >>> augmented_term(torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0]), torch.tensor(2.0))
        tensor([ 0.7500, -0.2500])
    """
    is_active = multiplier + penalty * violation > 0
    term: Tensor = where(is_active, equality_term(violation, multiplier, penalty), -ratio(multiplier**2, 2 * penalty))
    return term


def next_multiplier(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""Compute the multiplier after an update: :math:`\max(0, \lambda + \mu g)` (Rockafellar 1973).

    Args:
        violation: The violation g.
        multiplier: The multiplier lambda.
        penalty: The penalty factor mu.

    Returns:
        The new multiplier, of the shape of the violation.

    Example:
        >>> next_multiplier(torch.tensor([0.5, -2.0]), torch.tensor([1.0, 1.0]), torch.tensor(2.0))
        tensor([2., 0.])
    """
    following: Tensor = clip(multiplier + penalty * violation, 0.0, math.inf)
    return following


def equality_term(violation: Tensor, multiplier: Tensor, penalty: Tensor) -> Tensor:
    r"""Compute the term of a constraint :math:`q = 0`.

    .. math:: \frac{\mu}{2} q^2 + \lambda q

    Its derivative with respect to q is :math:`\lambda + \mu q`, the next multiplier. Sangalli et al. 2021, Eq. 7, use
    it for sums of hinges, which are at least 0; for a q of any sign the multiplier may be negative.

    Args:
        violation: The violation q.
        multiplier: The multiplier lambda.
        penalty: The penalty factor mu.

    Returns:
        The term, of the shape of the violation.

    Example:
        >>> equality_term(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(0.5))
        tensor(3.)
    """
    return violation * (0.5 * penalty * violation + multiplier)


def _multipliers_for(violation: Dual, multiplier: Tensor, penalty: Tensor) -> list[Any]:
    """Return the multipliers and mu as numbers, arrays or tensors, as the violation is.

    Raises:
        TypeError: If there are other numbers of violations and of multipliers.
    """
    g = violation.value
    size = g.numel() if isinstance(g, Tensor) else np.size(g)
    if multiplier.numel() != size:
        raise TypeError(f"{multiplier.numel()} multipliers for {size} violations")
    if isinstance(g, Tensor):
        return [multiplier.to(g.dtype).view(g.shape), _with_device_of(penalty, g)]
    return [multiplier.item() if size == 1 else multiplier.numpy(), penalty.item()]


def _with_device_of(penalty: Tensor, violation: Tensor) -> Any:
    """Return mu for operations with a violation: a number if it is on the CPU and the violation is not."""
    return penalty.to(violation.dtype) if penalty.device == violation.device else penalty.item()


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that a constraint is evaluated on.

    Attributes:
        logits: The outputs of the model.
        target: The labels.
        weight: One weight per row.
        index: The positions of the rows in the training set.
        group: The group numbers of the rows.

    Example:
        >>> Rows(torch.tensor([2.0]), torch.tensor([1])).weight is None
        True
    """

    logits: Tensor
    target: Tensor
    weight: Tensor | None = None
    index: Tensor | None = None
    group: Tensor | None = None


class Constraint(LateBuffers, ABC):
    """Base class of constraints: a term of the loss, with multipliers that ``update`` moves.

    Forward passes in training mode record violations, and ``update`` uses what was recorded since the last update.
    Multipliers and records are buffers, so ``.to()``, ``state_dict`` and ``deepcopy`` include them. A subclass defines
    ``term`` and ``update``.

    Args:
        sync: In a distributed run, use the samples of all ranks, so that the multipliers are the same on every rank.

    Example:
        >>> from metricfit.constraints import RequirementConstraint
        >>> isinstance(RequirementConstraint("recall >= 0.9"), Constraint)
        True
    """

    multiplier: Tensor | None

    def __init__(self, *, sync: bool = True) -> None:
        super().__init__()
        self.sync = sync

    def forward(self, logits: Tensor, target: Tensor, penalty: Tensor, **optional: Tensor | None) -> Tensor:
        """Compute what the constraint adds to the objective.

        Args:
            logits: The outputs of the model.
            target: The labels.
            penalty: The penalty factor mu.
            **optional: The other attributes of ``Rows``: ``weight``, ``index`` and ``group``.

        Returns:
            What the constraint adds to the objective, a scalar.
        """
        return self.term(Rows(logits, target, **optional), penalty)

    @abstractmethod
    def term(self, rows: Rows, penalty: Tensor) -> Tensor:
        """Compute what the constraint adds to the objective for these rows, and record the violation.

        Args:
            rows: The rows.
            penalty: The penalty factor mu.

        Returns:
            What the constraint adds to the objective, a scalar.
        """

    @abstractmethod
    def update(self, penalty: Tensor) -> None:
        """Update the multipliers from the violations since the last update, and clear these.

        Args:
            penalty: The penalty factor mu.
        """

    @property
    def learns(self) -> bool:
        """Whether a forward pass now belongs to training, so that its violations are recorded."""
        return self.training and torch.is_grad_enabled()

    def is_new_pass(self, amount: Tensor) -> bool:
        """Whether a forward pass adds this amount, because no checkpoint computes an earlier pass again.

        Args:
            amount: What the pass adds to a record.

        Returns:
            Whether to add it.
        """
        if self.recomputed_pass(amount) is not None:
            return False
        self.remember_pass(amount, amount)
        return True

    @property
    def over_ranks(self) -> bool:
        """Whether a forward pass now uses the samples of all ranks."""
        return self.sync and self.learns and number_of_ranks() > 1


class MeasuredConstraint(Constraint):
    """Base class of constraints whose violation can be measured on any rows, such as a requirement on a metric.

    Such a constraint can move its multipliers on held-out rows, and an optimiser can move them. A RankingConstraint
    cannot, because its multipliers belong to training samples. A subclass names the buffers of its record in
    ``records`` and defines ``term``, ``record_held_out`` and ``recorded``.

    Args:
        sync: In a distributed run, use the samples of all ranks.

    Example:
        >>> from metricfit.constraints import RequirementConstraint
        >>> isinstance(RequirementConstraint("recall >= 0.9"), MeasuredConstraint)
        True
    """

    #: The buffers that hold what was recorded since the last update; the last one counts the records.
    records: ClassVar[tuple[str, ...]] = ()
    #: Whether ``observe_held_out`` records violations, and forward passes do not. AugmentedLagrangian sets it.
    held_out: bool = False

    @property
    def is_equality(self) -> bool:
        """Whether the violation should be 0, rather than at most 0, so that multipliers can be negative."""
        return False

    @abstractmethod
    def record_held_out(self, rows: Rows, sync: bool) -> None:
        """Record the violation on held-out rows.

        Args:
            rows: The rows.
            sync: Whether each rank of a distributed run passes its share of the rows.
        """

    @abstractmethod
    def recorded(self) -> tuple[Tensor, Tensor] | None:
        """Return the violations since the last update.

        Returns:
            The violations, and for each whether it was measured; None before the first batch.
        """

    def clear(self) -> None:
        """Forget the violations since the last update."""
        for name in self.records:
            record = getattr(self, name)
            if record is not None:
                record.zero_()

    def take_recorded(self) -> tuple[Tensor, Tensor] | None:
        """Return the violations since the last update, as ``recorded`` does.

        Returns:
            The violations, and for each whether it was measured; None before the first batch.

        Raises:
            InvalidStateError: They belong to held-out rows, and ``observe_held_out`` was not called.
        """
        amount = getattr(self, self.records[-1])
        if self.held_out and self.multiplier is not None and (amount is None or is_false(amount.sum())):
            raise InvalidStateError(
                "update_on='held_out' moves the multipliers on held-out rows, but there were none since the last "
                "update: call observe_held_out(logits, target) before update(); fit does, with the validation set"
            )
        return None if self.multiplier is None else self.recorded()

    def sum_of_terms(self, violation: Any, measured: Any, multiplier: Tensor, penalty: Tensor) -> Any:
        """Return what violations add to the objective, without those that were not measured.

        Args:
            violation: The violations, a tensor or dual numbers.
            measured: Whether each one was measured.
            multiplier: The multipliers.
            penalty: The penalty factor mu.

        Returns:
            The sum, one number.
        """
        term = equality_term if self.is_equality else augmented_term
        if type(violation) is Dual:
            factors = _multipliers_for(violation, multiplier, penalty)
        else:
            factors = [multiplier.to(violation.dtype), _with_device_of(penalty, violation)]
        terms = term(violation, *factors) * measured
        return terms if type(terms) is Dual and terms.is_one_number else terms.sum()

    def update(self, penalty: Tensor) -> None:
        """Update the multipliers from the violation since the last update.

        Args:
            penalty: The penalty factor mu.
        """
        recorded, multiplier = self.take_recorded(), self.multiplier
        if recorded is None or multiplier is None:
            return
        violation, measured = recorded[0].to(multiplier.dtype), recorded[1]
        moved = multiplier + penalty.to(multiplier.dtype) * violation
        multiplier.copy_(torch.where(measured, moved if self.is_equality else moved.relu(), multiplier))
        self.clear()


class FunctionConstraint(MeasuredConstraint):
    r"""The constraint ``g(logits, target) <= 0``, or ``= 0``; AugmentedLagrangian turns a callable into it.

    .. math:: \frac{\max(0, \lambda + \mu g)^2 - \lambda^2}{2\mu}

    The function returns one number or several, each with its multiplier. The update uses the mean of the values since
    the last update. NaN, such as the mean over the positives of a batch without positives, adds nothing. The function
    does not receive weights.

    Args:
        function: The function g. If it is a module, its state is part of the state of this constraint.
        size: The number of values that the function returns. It is needed only if the first batch has as many rows,
            because these could be one number per sample.
        equality: Require g = 0 instead of g <= 0. The term is :math:`\lambda g + \mu g^2 / 2`, and multipliers may be
            negative.
        sync: In a distributed run, call the function on the logits and targets of all ranks together.

    Raises:
        InvalidTypeError: ``function`` is no function, or does not return a floating-point tensor (when called).
        InvalidValueError: The function returns another number of values than ``size`` or the batches before, or what
            may be one number per sample (when called).

    Example:
        >>> small_logits = FunctionConstraint(lambda logits, target: logits.abs().mean() - 2)
        >>> small_logits(torch.tensor([3.0, -5.0]), torch.tensor([1, 0]), torch.tensor(1.0))
        tensor(2.)
    """

    late: ClassVar[tuple[str, ...]] = ("multiplier", "total", "times")
    records: ClassVar[tuple[str, ...]] = ("total", "times")
    total: Tensor | None
    times: Tensor | None

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        *,
        size: int | None = None,
        equality: bool = False,
        sync: bool = True,
    ) -> None:
        super().__init__(sync=sync)
        if isinstance(function, type) or not callable(function):
            raise InvalidTypeError(f"a FunctionConstraint needs a function g(logits, target), got {quote(function)}")
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InvalidValueError(f"size is the number of values of the function, at least 1; got {quote(size)}")
        self.function, self.size, self.equality = function, size, equality

    @property
    def is_equality(self) -> bool:
        """Whether the values should be 0."""
        return self.equality

    def term(self, rows: Rows, penalty: Tensor) -> Tensor:
        """Compute the augmented term of the value of the function.

        Args:
            rows: The rows.
            penalty: The penalty factor mu.

        Returns:
            What the constraint adds to the objective, a scalar.

        Raises:
            InvalidTypeError: The function does not return a floating-point tensor.
            InvalidValueError: The function returns a wrong number of values.
        """
        violation, known = self._measure(rows, self.over_ranks)
        multiplier = self.made("multiplier", violation)
        if self.learns:
            self._record(violation, known, counts=not self.held_out)
        return self.sum_of_terms(violation, known, multiplier, penalty)

    def _measure(self, rows: Rows, over_ranks: bool) -> tuple[Tensor, Tensor]:
        """Call the function; return its values, and whether they are numbers."""
        logits, target = rows.logits, rows.target
        if over_ranks:
            logits, target = gather_over_ranks(logits), gather_over_ranks(target)
        violation = self.function(logits, target)
        if not isinstance(violation, Tensor) or not violation.is_floating_point():
            raise InvalidTypeError(
                f"the constraint {self.name} must return a floating-point tensor, got {quote(violation)}"
            )
        self._check_size(violation, len(logits))
        known = ~violation.detach().isnan()
        return torch.where(known, violation, 0.0), known

    def _check_size(self, violation: Tensor, rows: int) -> None:
        """Refuse another number of values than ``size`` or the batches before, and at first one number per sample."""
        values, shape = violation.numel(), tuple(violation.shape)
        if self.size is not None and values != self.size:
            raise InvalidValueError(f"the constraint {self.name} returns {values} values, and size is {self.size}")
        if self.multiplier is not None and shape != self.multiplier.shape:
            raise InvalidValueError(
                f"the constraint {self.name} returns values of shape {shape} for {rows} rows, and returned "
                f"{tuple(self.multiplier.shape)} before; a constraint returns as many values for every batch"
            )
        if self.size is None and self.multiplier is None and shape[:1] == (rows,) and rows > 1:
            raise InvalidValueError(
                f"the constraint {self.name} returns one number per sample, {shape}; a constraint is on the batch: "
                f"return a mean, a maximum or a share. If these are {values} constraints, say so: "
                f"constraints.FunctionConstraint({self.name}, size={values})"
            )

    def _record(self, violation: Tensor, known: Tensor, *, counts: bool = True) -> None:
        total, times, seen = self.made("total", violation), self.made("times", violation), violation.detach()
        if counts and self.is_new_pass(seen):
            total.add_(seen)
            times.add_(known)

    def record_held_out(self, rows: Rows, sync: bool) -> None:
        """Record the value of the function on held-out rows.

        Args:
            rows: The rows. The function receives neither weights nor groups.
            sync: Whether each rank of a distributed run passes its share of the rows.
        """
        self._record(*self._measure(rows, sync))

    def recorded(self) -> tuple[Tensor, Tensor] | None:
        """Return the mean value since the last update.

        Returns:
            The mean, and whether there was a value; None before the first batch.
        """
        if self.total is None or self.times is None:
            return None
        return ratio(self.total, self.times), self.times > 0

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def extra_repr(self) -> str:
        """Return the name of the function."""
        return self.name
