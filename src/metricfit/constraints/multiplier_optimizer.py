"""MultiplierOptimizer: an optimiser of torch that moves multipliers, with its state in ``state_dict``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from metricfit.constraints.constraint import MeasuredConstraint
from metricfit.errors import InvalidTypeError, quote

#: Called as ``make(multipliers)``, such as ``functools.partial(torch.optim.Adam, lr=0.05)``.
MakeMultiplierOptimizer = Callable[[list[Tensor]], Optimizer]


class MultiplierOptimizer(nn.Module):
    r"""Moves multipliers by an optimiser instead of :math:`\lambda \leftarrow \max(0, \lambda + \mu g)`.

    The optimiser gets minus the violation as the gradient, so that multipliers of violated constraints grow. Afterwards
    multipliers of inequalities are at least 0, and those of constraints that could not be measured are unchanged.
    ``torch.optim.SGD`` with learning rate mu is the usual update.

    Args:
        make: Called as ``make(multipliers)``, such as ``functools.partial(torch.optim.Adam, lr=0.05)``.

    Raises:
        TypeError: ``make`` is no function, or does not return an optimiser that steps by gradients alone (when called).

    Example:
        >>> from functools import partial
        >>> MultiplierOptimizer(partial(torch.optim.SGD, lr=0.1))
        MultiplierOptimizer()
    """

    def __init__(self, make: MakeMultiplierOptimizer) -> None:
        super().__init__()
        if isinstance(make, Optimizer) or not callable(make):
            raise InvalidTypeError(
                "multiplier_optimizer is called as multiplier_optimizer(multipliers): give a function such as "
                f"functools.partial(torch.optim.Adam, lr=0.05), got {quote(make)}"
            )
        self.make = make
        self.optimizer: Optimizer | None = None
        self._saved: dict[str, Any] | None = None

    @torch.no_grad()
    def update(self, constraints: Sequence[MeasuredConstraint]) -> None:
        """Move the multipliers of all constraints by one step, and clear their records.

        Args:
            constraints: The constraints, always the same.
        """
        records = []
        for constraint in constraints:
            constraint.check_recorded()
            recorded = constraint.recorded()
            if recorded is None or constraint.multiplier is None:
                return  # before the first batch
            records.append((constraint, constraint.multiplier, *recorded))
        optimizer = self._optimizer_of([multiplier for _, multiplier, _, _ in records])
        previous = []
        for _, multiplier, violation, measured in records:
            previous.append(multiplier.clone())
            multiplier.grad = torch.where(measured, -violation, 0.0).to(multiplier.dtype)
        optimizer.step()
        for (constraint, multiplier, _, measured), before in zip(records, previous, strict=True):
            if not constraint.is_equality:
                multiplier.clamp_(min=0.0)
            multiplier.copy_(torch.where(measured, multiplier, before))
            multiplier.grad = None
            constraint.clear()

    def _optimizer_of(self, multipliers: list[Tensor]) -> Optimizer:
        """Return the optimiser of these multipliers; ``.to()`` and loading replace the tensors that it must move."""
        current = [] if self.optimizer is None else self.optimizer.param_groups[0]["params"]
        is_same = len(current) == len(multipliers) and all(a is b for a, b in zip(current, multipliers, strict=True))
        if self.optimizer is not None and is_same and self._saved is None:
            return self.optimizer
        state = self._saved if self.optimizer is None or self._saved else self.optimizer.state_dict()
        made = self.make(multipliers)
        if not isinstance(made, Optimizer):
            raise InvalidTypeError(f"multiplier_optimizer must return a torch optimiser, got {quote(made)}")
        closure = inspect.signature(made.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise InvalidTypeError(
                f"{type(made).__name__} calls the loss several times per step, but multipliers have one gradient per "
                "update; use an optimiser such as torch.optim.SGD or Adam"
            )
        if state:
            made.load_state_dict(state)
        self.optimizer, self._saved = made, None
        return made

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the optimiser, for ``state_dict``; empty before the first update."""
        if self._saved is not None:
            return self._saved
        return {} if self.optimizer is None else self.optimizer.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from a state at the next update.

        Args:
            state: What ``get_extra_state`` returned.
        """
        self.optimizer, self._saved = None, state or None
