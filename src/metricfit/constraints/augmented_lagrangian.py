"""AugmentedLagrangian: an objective to be minimised while constraints hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from metricfit.constraints.constraint import Constraint
from metricfit.constraints.function import FunctionConstraint
from metricfit.constraints.requirement import RequirementConstraint
from metricfit.core.buffers import LateBuffers
from metricfit.core.tasks import is_false
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.combine import takes_weight
from metricfit.metrics.metric import Metric, MetricFactory
from metricfit.metrics.requirements import Requirement

Constrains = str | Requirement | Constraint | Callable[[Tensor, Tensor], Tensor]


class AugmentedLagrangian(LateBuffers):
    r"""The best objective subject to constraints, as a loss whose multipliers learn along.

    .. math:: F + \sum_i \frac{\max(0, \lambda_i + \mu g_i)^2 - \lambda_i^2}{2\mu},
        \qquad \lambda_i \leftarrow \max(0, \lambda_i + \mu g_i)

    for constraints :math:`g_i \le 0`; a RankingConstraint has the form of its paper. In a loop: ``loss(...)``,
    ``backward()``, ``optimizer.step()``, then ``update()``, after every step or every epoch; and after each validation
    ``observe(value)``.

    Args:
        objective: any loss, ``forward(logits, target)`` or ``forward(logits, target, weight)``.
        constraints: one or several of: a Requirement or its text, ``"recall >= 0.95"``; a RankingConstraint; a
            function g(logits, target) meant to be at most 0. Settings of a requirement, such as its threshold, go to
            ``constraints.RequirementConstraint``.
        mu: the penalty at the start.
        rho: what mu is multiplied by when the observed value falls. ``fit`` observes minus the violation of the
            requirements on the validation set, and without requirements the monitored value.
        mu_max: where mu ends.

    Everything it learns is in buffers, so ``.to()``, ``state_dict`` and ``deepcopy`` carry it.

    >>> loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), ["recall >= 0.9"], mu=1.0)
    >>> logits, target = torch.tensor([-1.0, 1.0, -2.0]), torch.tensor([1.0, 1.0, 0.0])
    >>> before = loss(logits, target)
    >>> loss.update()  # recall is 0.5, which is 0.4 too little
    >>> loss.multipliers
    {'recall >= 0.9': tensor([0.4000])}
    >>> bool(loss(logits, target) > before)
    True
    """

    mu: Tensor
    observed: Tensor

    def __init__(
        self,
        objective: nn.Module,
        constraints: Constrains | Iterable[Constrains],
        *,
        mu: float = 0.3,
        rho: float = 3.0,
        mu_max: float = 1e4,
    ) -> None:
        super().__init__()
        if not isinstance(objective, nn.Module):
            raise InvalidTypeError(
                f"the objective is a loss module, such as MetricLoss('precision'); got {quote(objective)}"
            )
        if not 0.0 < mu <= mu_max < math.inf:
            raise InvalidValueError(
                f"AugmentedLagrangian needs 0 < mu <= mu_max, both finite; got mu={mu}, mu_max={mu_max}"
            )
        if not 1.0 <= rho < math.inf:
            raise InvalidValueError(f"rho multiplies mu: it must be at least 1 and finite, got {rho}")
        self.objective = objective
        one_only = isinstance(constraints, (str, nn.Module)) or not isinstance(constraints, Iterable)
        self.constraints = nn.ModuleList(map(_constraint, [constraints] if one_only else constraints))  # type: ignore[arg-type]
        if not self.constraints:
            raise InvalidValueError("no constraint given; without one, use the objective alone")
        self.rho, self.mu_max = float(rho), float(mu_max)
        self.register_buffer("mu", torch.tensor(float(mu), dtype=torch.float64))
        self.register_buffer("observed", torch.tensor(-math.inf, dtype=torch.float64))
        self._objective_takes_weight = takes_weight(objective)
        self._counts = any(not isinstance(each, FunctionConstraint) for each in self.constraints)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        index: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """The objective plus every constraint's term.

        Args:
            logits: the model's outputs.
            target: the labels.
            weight: the samples' weights, for the objective if it takes them and for the constraints.
            index: the samples' positions in the training set, for ranking constraints.
            group: the samples' group numbers, for requirements that are to hold in every group.
        """
        if weight is not None and not (self._objective_takes_weight or self._counts):
            raise InvalidValueError(
                f"weight was given, but neither {type(self.objective).__name__} nor a constraint takes it; use one of "
                "metricfit.losses, such as WeightedBCELoss() for cross-entropy"
            )
        if group is not None and not any(getattr(each, "groups", None) for each in self.constraints):
            raise InvalidValueError(
                "group was given, but no constraint is per group: RequirementConstraint(..., groups=k)"
            )
        total = self.unconstrained(logits, target, weight)
        for constraint in self.constraints:
            total = total + constraint(logits, target, self.mu, index=index, weight=weight, group=group)
        return total

    def unconstrained(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        index: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """The objective alone, without the constraints' terms.

        These terms change with the multipliers and mu, so the values of ``forward`` at two times of the training
        cannot be compared. The values of this method can. It takes the arguments of ``forward``.
        """
        given = {"weight": weight} if self._objective_takes_weight else {}
        value: Tensor = self.objective(logits, target, **given)
        return value

    @torch.no_grad()
    def update(self) -> None:
        """Move the multipliers by what training-mode forwards saw since the last update."""
        for constraint in self.constraints:
            constraint.update(self.mu)  # type: ignore[operator]

    @torch.no_grad()
    def observe(self, value: float | Tensor) -> None:
        """Tell it a validation metric, higher being better: if it fell since the last time, mu grows by rho."""
        now = torch.as_tensor(value, dtype=self.observed.dtype, device=self.observed.device)
        if now.dim():
            raise InvalidValueError(f"observe takes one number, got shape {tuple(now.shape)}")
        if is_false(~now.isnan()):
            raise InvalidValueError("observe was given NaN: there is nothing to compare it with")
        fell = now < self.observed
        self.mu.copy_(torch.where(fell, (self.mu * self.rho).clamp(max=self.mu_max), self.mu))
        self.observed.copy_(now)

    @property
    def multipliers(self) -> dict[str, Tensor | None]:
        """Each constraint's multipliers; None before its first batch, or where it keeps none."""
        names = [one.extra_repr() for one in self.constraints]
        return {
            name if names.count(name) == 1 else f"{name} ({at})": one.multiplier  # type: ignore[misc]
            for at, (name, one) in enumerate(zip(names, self.constraints, strict=True))
        }

    def extra_repr(self) -> str:
        """The settings of the penalty."""
        return f"mu={self.mu.item():g}, rho={self.rho:g}, mu_max={self.mu_max:g}"


def _constraint(given: Constrains) -> Constraint:
    if isinstance(given, Constraint):
        return given
    if isinstance(given, (str, Requirement)):
        return RequirementConstraint(given)
    if isinstance(given, (Metric, MetricFactory)):
        raise InvalidTypeError(f"a constraint needs a bound, as in metrics.{given.name} >= 0.9")
    if isinstance(given, type):
        raise InvalidTypeError(f"{given.__name__} is a class; make one of it, {given.__name__}(...)")
    if callable(given):
        return FunctionConstraint(given)
    raise InvalidTypeError(
        f"a constraint is a requirement such as 'recall >= 0.9', a RankingConstraint or a function "
        f"g(logits, target); got {quote(given)}"
    )
