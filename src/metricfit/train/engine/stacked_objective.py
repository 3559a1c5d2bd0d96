"""One loss for all members of a population, each with a state of its own: buffers stacked, the loss under vmap."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.loss import _Loss as TorchLoss

from metricfit.constraints import AugmentedLagrangian, FunctionConstraint
from metricfit.losses.calling import OPTIONAL_ARGUMENTS, accepted_arguments
from metricfit.losses.combine import Mix
from metricfit.train.data.batches import Batch
from metricfit.train.engine.stacked_tensors import Stack, Stacked, moved, rows_of
from metricfit.train.stage import Objective


class StackedObjective:
    """Each member's loss, as if every member had a copy of it to itself.

    What a loss learns (multipliers, a memory, how far a step has come) is in its buffers. ``state`` holds them stacked,
    one row a member, and for each call the one loss is lent a member's row. It is None until the first batch, since
    some losses make buffers at their first use. From then on its tensors stay where they are and change in place, as a
    captured CUDA graph needs them to; only ``keep`` and ``load`` put others there.

    Args:
        loss: copied, so that it is left as it was.
        device: where.

    >>> from metricfit.losses import MetricLoss
    >>> objective = StackedObjective(MetricLoss("f1"), torch.device("cpu"))
    >>> logits, y = torch.tensor([[9.0, -9.0], [9.0, 9.0]]), torch.tensor([[1, 0], [1, 0]])
    >>> objective(logits, Stacked(None, y, lengths=(2, 2))).round(decimals=3)
    tensor([0.0000, 0.3330])
    """

    def __init__(self, loss: nn.Module, device: torch.device) -> None:
        self.device = device
        self.loss = copy.deepcopy(loss).to(device).train()
        self.objective = Objective(self.loss)
        self.methods = _Methods(self.loss)
        self.weighs_all = weighs_all(self.loss)
        self.state: Stack | None = None

    def masked(self, batch: Stacked) -> Stacked:
        """Batches that differ in length as alike, their filling of weight 0, if the loss heeds weights."""
        if batch.alike or not self.weighs_all:
            return batch
        real = batch.real
        weight = real.to(torch.get_default_dtype()) if batch.weight is None else batch.weight * real
        return replace(batch, weight=weight, lengths=(max(batch.lengths),) * len(batch.lengths))

    def __call__(self, logits: Tensor, batch: Stacked) -> Tensor:
        """Each member's loss; where batches differ in length, that of its own samples alone."""
        batch = self.masked(batch)
        if self.state is None:
            self.state = self._made(logits, batch)
        return self._losses(self.state, "forward", logits, batch)

    def _losses(self, stack: Stack, method: str, logits: Tensor, batch: Stacked) -> Tensor:
        """Each member's loss by this method."""
        if not batch.alike:
            members = range(len(batch.lengths))
            return torch.stack([self._of_member(at, stack, method, logits, batch) for at in members])
        extra = {name: part for name in OPTIONAL_ARGUMENTS if (part := getattr(batch, name)) is not None}

        def of_member(state: Stack, logits: Tensor, y: Tensor, *rest: Tensor) -> Tensor:
            mine = Batch(None, y, **dict(zip(extra, rest, strict=True)))
            return self.objective.of(self._bound(state, method), logits, mine)

        losses: Tensor = vmap(of_member, randomness="different")(stack, logits, batch.y, *extra.values())
        return losses

    def compared(self, logits: Tensor, batch: Stacked) -> Tensor:
        """Each member's loss in eval mode, by a measure that is the same in all epochs of a stage."""
        batch, method = self.masked(batch), self.objective.comparison
        state = self.state
        if state is None and method == "forward":
            state = self.state = self._made(logits, batch)
        annealed = [f"{_Methods.PREFIX}{name}.a" for name in self.objective.annealed()] if state else []
        before = {name: state[name].clone() for name in annealed} if state else {}
        self.loss.eval()
        try:
            with self.objective.finally_annealed():
                for name in before:
                    state[name].fill_(1.0)  # type: ignore[index]
                return self._losses(state or {}, method, logits, batch)
        finally:
            self.loss.train()
            for name, a in before.items():
                state[name].copy_(a)  # type: ignore[index]

    def update(self) -> None:
        """At the end of an epoch: move each member's multipliers."""
        if self.state and hasattr(self.loss, "update"):
            self._each(self.state, "update")

    def observe(self, values: Sequence[float]) -> None:
        """After validation: tell each member's objective its value, of which higher is better."""
        if self.state and hasattr(self.loss, "observe"):
            self._each(self.state, "observe", torch.tensor(values, dtype=torch.float64, device=self.device))

    def anneal(self, fraction: float) -> None:
        """Advance the annealed steps of all members."""
        for name in self.objective.annealed():
            self.loss.get_submodule(name).advance(fraction)  # type: ignore[operator]
            if self.state is not None:
                self.state[f"{_Methods.PREFIX}{name}.a"].fill_(fraction)

    def keep(self, rows: Tensor) -> None:
        """Go on with these members alone."""
        if self.state is not None:
            self.state = rows_of(self.state, rows)

    def learned(self, row: int) -> Stack | None:
        """A copy of what a member's objective has learned, by the loss's own names; None before the first batch."""
        if self.state is None:
            return None
        return {name.removeprefix(_Methods.PREFIX): given[row].clone() for name, given in self.state.items()}

    def load(self, state: Stack | None) -> None:
        """Go on from a ``state`` that was kept."""
        self.state = None if state is None else moved(state, self.device)
        if self.state is not None and all(map(len, self.state.values())):  # else no member's could stand for all
            self.methods.load_state_dict(rows_of(self.state, 0))

    def _made(self, logits: Tensor, batch: Stacked) -> Stack:
        """The state at the start. A first call, of member 0 alone, makes the buffers that are made at first use."""
        before = {name: given.clone() for name, given in self.methods.state_dict().items()}
        one = Batch(
            None,
            batch.y[0],
            **{name: part[0] for name in OPTIONAL_ARGUMENTS if (part := getattr(batch, name)) is not None},
        )
        self.objective(logits[0].detach(), one)
        made = {name: before.get(name, torch.zeros_like(given)) for name, given in self.methods.state_dict().items()}
        return {name: torch.stack([given] * len(batch.lengths)) for name, given in made.items()}

    def _of_member(self, at: int, stack: Stack, method: str, logits: Tensor, batch: Stacked) -> Tensor:
        """One member's loss, for objectives that would count samples of weight 0."""
        state = rows_of(stack, at)  # views: what changes, changes there
        real = at, slice(batch.lengths[at])
        extra = {name: part[real] for name in OPTIONAL_ARGUMENTS if (part := getattr(batch, name)) is not None}
        return self.objective.of(self._bound(state, method), logits[real], Batch(None, batch.y[real], **extra))

    def _each(self, stack: Stack, method: str, *args: Tensor) -> None:
        def of_member(state: Stack, *args: Tensor) -> Tensor:
            self._bound(state, method)(*args)
            return torch.zeros(())

        vmap(of_member)(stack, *args)

    def _bound(self, state: Stack, method: str) -> Callable[..., Any]:
        if not state:
            bound: Callable[..., Any] = getattr(self.loss, method)
            return bound
        return lambda *args, **kwargs: functional_call(self.methods, state, (method, *args), kwargs)


def with_state(objective: nn.Module, state: Stack | None, device: torch.device | None = None) -> nn.Module:
    """A copy of an objective that has learned this."""
    made = copy.deepcopy(objective)
    if state:
        made.load_state_dict(state)
    return made.to(device)


def weighs_all(loss: nn.Module) -> bool:
    """Whether a sample of weight 0 leaves no trace in a loss."""
    if isinstance(loss, Mix):
        return all(map(weighs_all, loss.losses))
    if isinstance(loss, AugmentedLagrangian):
        return weighs_all(loss.objective) and not any(isinstance(one, FunctionConstraint) for one in loss.constraints)
    return accepted_arguments(loss).weight and not any(isinstance(part, TorchLoss) for part in loss.modules())


class _Methods(nn.Module):
    """Calls a loss's methods by name, so that functional_call can lend it a member's state for any of them."""

    PREFIX = "loss."  # of the names in its state

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.loss, method)(*args, **kwargs)
