"""AugmentedLagrangian: a loss that minimises an objective while constraints hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from metricfit.constraints.constraint import Constraint, FunctionConstraint, MeasuredConstraint, Rows
from metricfit.constraints.ranking import RankingConstraint
from metricfit.constraints.requirement import RequirementConstraint
from metricfit.core.buffers import LateBuffers
from metricfit.core.validation import is_false, refuse_tracing
from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import takes_probabilities
from metricfit.losses.calling import (
    LossArguments,
    accepted_arguments,
    call_loss,
    observe_value,
    refuse_multipliers,
    update_loss,
)
from metricfit.metrics.metric import Metric, MetricFactory
from metricfit.metrics.requirements import Requirement

#: Which terms of the constraints are in the loss.
Terms = Literal["both", "penalty", "multipliers"]
#: The rows whose violations move the multipliers.
UpdateOn = Literal["train", "held_out"]
ConstraintLike = str | Requirement | Constraint | Callable[[Tensor, Tensor], Tensor]


class AugmentedLagrangian(LateBuffers):
    r"""An objective plus a penalty term per constraint, whose multipliers are learned during training.

    .. math:: F + \sum_i \frac{\max(0, \lambda_i + \mu g_i)^2 - \lambda_i^2}{2\mu},
        \qquad \lambda_i \leftarrow \max(0, \lambda_i + \mu g_i)

    for constraints :math:`g_i \le 0` (Rockafellar 1973). A RankingConstraint has the form of its paper instead. In a
    training loop call ``loss(...)``, ``backward()`` and ``optimizer.step()``, then ``update()`` after every step or
    every epoch, and ``observe(value)`` after each validation. ``fit`` does all of this. All learned state is in
    buffers, so ``.to()``, ``state_dict`` and ``deepcopy`` include it.

    Args:
        objective: Any loss, ``forward(logits, target)``, which may also accept ``weight``, ``index`` and ``group``.
        constraints: One or several of these: a Requirement or its text, ``"recall >= 0.95"``; a RankingConstraint; a
            function g(logits, target) that should be at most 0. Use ``constraints.RequirementConstraint`` for a
            requirement with settings, such as its threshold.
        mu: Penalty factor at the start.
        rho: Factor by which mu grows when the observed value falls. ``fit`` observes minus the violation of the
            requirements on the validation set, or the monitored value if there are no requirements.
        mu_max: Maximum of mu.
        fall: How far the observed value has to fall before mu grows.
        lambda_max: Maximum absolute value of the multipliers; by default there is none.
        terms: "both"; "penalty" for the quadratic penalty alone, with multipliers of 0; or "multipliers" for
            :math:`\lambda_i g_i` alone (Sangalli et al. 2021, Eq. 2 and 3). They are for comparison: a penalty alone
            leaves a violation, and multipliers alone need a convex problem.
        update_on: The rows that move the multipliers. "train": the batches of training. "held_out": the rows that
            ``observe_held_out`` gets, because a network can meet a requirement on its training rows and miss it on
            others (Cotter et al. 2019, "Training well-generalizing classifiers for fairness metrics and
            other data-dependent constraints"). ``fit`` then passes the validation set after every epoch.

    Raises:
        TypeError: If the objective is not a module or contains an AugmentedLagrangian, or if a constraint is of another
            kind; if a constraint such as RankingConstraint cannot have held-out rows; or if a number is of another
            type.
        ValueError: If there is no constraint, or another argument is out of range.

    Example:
        >>> loss = AugmentedLagrangian(nn.BCEWithLogitsLoss(), ["recall >= 0.9"], mu=1.0)
        >>> logits, target = torch.tensor([-1.0, 1.0, -2.0]), torch.tensor([1.0, 1.0, 0.0])
        >>> before = loss(logits, target)
        >>> loss.update()  # recall is 0.5, which is 0.4 too low
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
        constraints: ConstraintLike | Iterable[ConstraintLike],
        *,
        mu: float = 0.3,
        rho: float = 3.0,
        mu_max: float = 1e4,
        fall: float = 0.0,
        lambda_max: float | None = None,
        terms: Terms = "both",
        update_on: UpdateOn = "train",
    ) -> None:
        super().__init__()
        if not isinstance(objective, nn.Module):
            raise InvalidTypeError(
                f"the objective is a loss module, such as MetricLoss('precision'); got {quote(objective)}"
            )
        numbers = (("mu", mu), ("rho", rho), ("mu_max", mu_max), ("fall", fall), ("lambda_max", lambda_max))
        for name, number in numbers:
            if isinstance(number, bool) or not isinstance(number, Real | None):
                raise InvalidTypeError(f"{name} must be a number, got {quote(number)}")
        refuse_multipliers(objective, "the objective of an AugmentedLagrangian", "Pass all constraints to one of them")
        if takes_probabilities(objective):
            raise InvalidValueError("constraints take logits; leave from_probabilities out of the objective")
        if not 0.0 < mu <= mu_max < math.inf:
            raise InvalidValueError(
                f"AugmentedLagrangian needs 0 < mu <= mu_max, both finite; got mu={mu}, mu_max={mu_max}"
            )
        if not 1.0 <= rho < math.inf:
            raise InvalidValueError(f"rho multiplies mu: it must be at least 1 and finite, got {rho}")
        if not 0.0 <= fall < math.inf:
            raise InvalidValueError(f"fall is how far the observed value falls: at least 0 and finite, got {fall}")
        if lambda_max is not None and not 0.0 < lambda_max < math.inf:
            raise InvalidValueError(f"lambda_max bounds the multipliers: above 0 and finite, or None; got {lambda_max}")
        for name, choice, choices in (("update_on", update_on, UpdateOn), ("terms", terms, Terms)):
            if choice not in get_args(choices):
                allowed = " or ".join(map(repr, get_args(choices)))
                raise InvalidValueError(f"{name} must be {allowed}, got {quote(choice)}")
        self.objective = objective
        single = isinstance(constraints, (str, nn.Module)) or not isinstance(constraints, Iterable)
        self.constraints = nn.ModuleList(map(_as_constraint, [constraints] if single else constraints))  # type: ignore[arg-type]
        if not self.constraints:
            raise InvalidValueError("no constraint given; without one, use the objective alone")
        if terms == "multipliers" and any(getattr(part, "per", None) == "pair" for part in self.constraints):
            raise InvalidValueError("per='pair' has no multipliers, so terms='multipliers' would leave nothing of it")
        self.rho, self.mu_max, self.fall = float(rho), float(mu_max), float(fall)
        self.update_on, self.terms = update_on, terms
        self.lambda_max = 0.0 if terms == "penalty" else lambda_max
        if update_on == "held_out":
            _check_measured(self.constraints)
        for constraint in self.constraints:
            if isinstance(constraint, MeasuredConstraint):
                constraint.held_out = update_on == "held_out"
        self.register_buffer("mu", torch.tensor(float(mu), dtype=torch.float64))
        self.register_buffer("observed", torch.tensor(-math.inf, dtype=torch.float64))
        self._objective_accepts = accepted_arguments(objective)

    @property
    def accepts(self) -> LossArguments:
        """The optional arguments that the objective or a constraint uses."""
        objective = self._objective_accepts
        return LossArguments(
            weight=objective.weight or any(not isinstance(part, FunctionConstraint) for part in self.constraints),
            index=True,
            group=objective.group or any(getattr(part, "groups", None) for part in self.constraints),
        )

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        index: Tensor | None = None,
        group: Tensor | None = None,
    ) -> Tensor:
        """Compute the objective plus the terms of all constraints.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample, for the constraints and, if it accepts weights, the objective.
            index: The positions of the samples in the training set, for ranking constraints.
            group: The group numbers of the samples, for requirements that must hold in every group.

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: If ``weight`` or ``group`` was passed and neither the objective nor a constraint uses it.
            TypeError: If ``weight`` has integers and a RankingConstraint got no ``index``.
        """
        refuse_tracing()
        if weight is not None and not self.accepts.weight:
            raise InvalidValueError(
                f"weight was passed, but neither {type(self.objective).__name__} nor a constraint accepts it; use a "
                "loss of metricfit.losses, such as WeightedBCELoss() for cross-entropy"
            )
        if group is not None and not self.accepts.group:
            raise InvalidValueError(
                "group was passed, but no constraint is per group: RequirementConstraint(..., groups=k), or a "
                "requirement on a gap such as metrics.recall.gap(k) <= 0.05"
            )
        has_integers = isinstance(weight, Tensor) and not weight.is_floating_point()
        if has_integers and index is None and any(isinstance(part, RankingConstraint) for part in self.constraints):
            raise InvalidTypeError(
                "the third argument is weight, and it has integers: pass the positions of the samples as index=..., or "
                "weights as floating point numbers"
            )
        total = self.unconstrained(logits, target, weight, index=index, group=group)
        rows = Rows(logits, target, weight, index, group)
        mu = self.mu if self.terms != "multipliers" else torch.zeros_like(self.mu)
        return sum((constraint.term(rows, mu) for constraint in self.constraints), total)  # type: ignore[operator]

    def unconstrained(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, **optional: Tensor | None
    ) -> Tensor:
        """Compute the objective alone, without the terms of the constraints.

        These terms change with the multipliers and mu, so the values of ``forward`` at two times of the training
        cannot be compared. The values of this method can.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample, if the objective accepts weights.
            **optional: ``index`` and ``group`` of the samples, if the objective accepts them.

        Returns:
            The objective, a scalar.
        """
        return call_loss(self.objective, logits, target, self._objective_accepts, weight=weight, **optional)

    @torch.no_grad()
    def update(self) -> None:
        """Update the multipliers from the batches of training, or the held-out rows, since the last update.

        An objective with an ``update()`` of its own is updated too.

        Raises:
            RuntimeError: If ``update_on="held_out"`` and ``observe_held_out`` was not called since the last update.
        """
        update_loss(self.objective)
        for constraint in self.constraints:
            constraint.update(self.mu)  # type: ignore[operator]
            multiplier = constraint.multiplier
            if self.lambda_max is not None and isinstance(multiplier, Tensor):  # vmap has no rule for clamp_
                multiplier.copy_(multiplier.clamp(-self.lambda_max, self.lambda_max))

    @torch.no_grad()
    def observe_held_out(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        *,
        group: Tensor | None = None,
        sync: bool = False,
    ) -> None:
        """Record the constraints' violations on held-out rows; the next ``update()`` moves the multipliers by them.

        Call it once with all rows or several times with parts of them, in eval mode of the model.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per row.
            group: The group numbers of the rows, for requirements per group and gaps between groups.
            sync: Whether each rank of a distributed run passes its own share of the rows. By default every rank must
                pass the same rows.

        Raises:
            RuntimeError: If the multipliers are updated on the batches of training.
        """
        if self.update_on != "held_out":
            raise InvalidStateError(
                "the multipliers of this AugmentedLagrangian are updated on the batches of training; make it with "
                "update_on='held_out' to update them on held-out rows"
            )
        rows = Rows(logits, target, weight, group=group)
        for constraint in self.constraints:
            constraint.record_held_out(rows, sync)  # type: ignore[operator]

    @torch.no_grad()
    def observe(self, value: float | Tensor) -> None:
        """Report a validation metric; if it fell by more than ``fall`` since the last call, mu grows by the factor rho.

        An objective with an ``observe(value)`` of its own gets the value as well.

        Args:
            value: One finite number, for which higher is better.

        Raises:
            TypeError: If the value is neither a number nor a tensor of numbers.
            ValueError: If the value is NaN or infinite, or a tensor of several numbers.
        """
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number and not (isinstance(value, Tensor) and not value.is_complex() and value.dtype != torch.bool):
            raise InvalidTypeError(f"observe needs one number, such as a validation AUC; got {quote(value)}")
        current = torch.as_tensor(value, dtype=self.observed.dtype, device=self.observed.device)
        if current.dim():
            raise InvalidValueError(f"observe needs one number, got shape {tuple(current.shape)}")
        if is_false(current.isfinite()):
            shown = "NaN" if current.isnan() else f"{current.item()}"
            raise InvalidValueError(f"observe got {shown}, which cannot be compared with other values")
        observe_value(self.objective, current)
        fell = current < self.observed - self.fall
        self.mu.copy_(torch.where(fell, (self.mu * self.rho).clamp(max=self.mu_max), self.mu))
        self.observed.copy_(current)

    @property
    def multipliers(self) -> dict[str, Tensor | None]:
        """The multipliers of each constraint; None before its first batch, or if it has none."""
        names = [constraint.extra_repr() for constraint in self.constraints]
        return {
            name if names.count(name) == 1 else f"{name} ({position})": constraint.multiplier  # type: ignore[misc]
            for position, (name, constraint) in enumerate(zip(names, self.constraints, strict=True))
        }

    def extra_repr(self) -> str:
        """Return the settings of the penalty."""
        bound = "" if self.lambda_max is None else f", lambda_max={self.lambda_max:g}"
        others = (("fall", self.fall, 0.0), ("terms", self.terms, "both"), ("update_on", self.update_on, "train"))
        chosen = "".join(f", {name}={value!r}" for name, value, usual in others if value != usual)
        return f"mu={self.mu.item():g}, rho={self.rho:g}, mu_max={self.mu_max:g}{bound}{chosen}"


def _check_measured(constraints: Iterable[nn.Module]) -> None:
    """Refuse constraints whose violation cannot be measured on other rows than the training rows."""
    for constraint in constraints:
        if isinstance(constraint, RankingConstraint):
            kept = "has no multipliers" if constraint.per == "pair" else "has one multiplier per training sample"
            raise InvalidTypeError(
                f"update_on='held_out' does not go with a RankingConstraint, which {kept}. Leave the setting out, or "
                "use requirements such as 'recall >= 0.95' and 'fpr <= 0.1'"
            )
        if not isinstance(constraint, MeasuredConstraint):
            raise InvalidTypeError(
                "update_on='held_out' needs constraints that are measured on any rows; derive "
                f"{type(constraint).__name__} from constraints.MeasuredConstraint"
            )


def _as_constraint(constraint: ConstraintLike) -> Constraint:
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, (str, Requirement)):
        return RequirementConstraint(constraint)
    if isinstance(constraint, (Metric, MetricFactory)):
        raise InvalidTypeError(f"a constraint needs a bound, as in metrics.{constraint.name} >= 0.9")
    if isinstance(constraint, type):
        raise InvalidTypeError(f"{constraint.__name__} is a class; create an instance, {constraint.__name__}(...)")
    if callable(constraint):
        return FunctionConstraint(constraint)
    raise InvalidTypeError(
        f"a constraint is a requirement such as 'recall >= 0.9', a RankingConstraint or a function "
        f"g(logits, target); got {quote(constraint)}"
    )
