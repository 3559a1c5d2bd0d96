"""One loss for all members of a population: its buffers are stacked, one row per member, and it runs under vmap."""

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
from metricfit.errors import InvalidValueError
from metricfit.losses.calling import OPTIONAL_ARGUMENTS, accepted_arguments
from metricfit.losses.combine import Mix
from metricfit.train.data.batches import Batch
from metricfit.train.engine.stacked_tensors import Stack, StackedBatch, move_stack, select_rows
from metricfit.train.stage import Objective


class StackedObjective:
    """Computes each member's loss, as if every member had its own copy of the loss.

    The state of a loss (multipliers, running counts, the position of annealed steps) is in its buffers. ``state`` holds
    them stacked, one row per member, and each call lends a member's row to the loss. ``state`` is None until the first
    batch, because some losses create buffers at their first use. After that its tensors keep their memory and change
    in place, which a captured CUDA graph relies on; only ``keep`` and ``load`` replace them.

    Args:
        loss: The loss, which is copied.
        device: The device of the state.

    Example:
        >>> from metricfit.losses import MetricLoss
        >>> objective = StackedObjective(MetricLoss("f1"), torch.device("cpu"))
        >>> logits, y = torch.tensor([[9.0, -9.0], [9.0, 9.0]]), torch.tensor([[1, 0], [1, 0]])
        >>> objective(logits, StackedBatch(None, y, lengths=(2, 2))).round(decimals=3)
        tensor([0.0000, 0.3330])
    """

    def __init__(self, loss: nn.Module, device: torch.device) -> None:
        self.device = device
        self.loss = copy.deepcopy(loss).to(device).train()
        self.objective = Objective(self.loss)
        if getattr(self.loss, "multiplier_optimizer", None) is not None:
            raise InvalidValueError(
                "members trained together cannot have a multiplier_optimizer, whose state is not stacked; leave it "
                "out, or train them one by one with fit"
            )
        self.methods = _Methods(self.loss)
        self.ignores_zero_weights = ignores_zero_weights(self.loss)
        self.state: Stack | None = None

    def weigh_padding(self, batch: StackedBatch) -> StackedBatch:
        """Give the padding weight 0, so that all lengths are equal, if the loss ignores samples of weight 0."""
        if batch.equal_lengths or not self.ignores_zero_weights:
            return batch
        mask = batch.is_sample
        weight = mask.to(torch.get_default_dtype()) if batch.weight is None else batch.weight * mask
        return replace(batch, weight=weight, lengths=(max(batch.lengths),) * len(batch.lengths))

    def __call__(self, logits: Tensor, batch: StackedBatch) -> Tensor:
        """Return each member's loss on its own samples, without the padding."""
        batch = self.weigh_padding(batch)
        if self.state is None:
            self.state = self._initial_state(logits, batch)
        return self._compute_losses(self.state, "forward", logits, batch)

    def _compute_losses(self, stack: Stack, method: str, logits: Tensor, batch: StackedBatch) -> Tensor:
        """Compute each member's loss by calling this method of the loss."""
        if not batch.equal_lengths:
            members = range(len(batch.lengths))
            return torch.stack([self._compute_loss(member, stack, method, logits, batch) for member in members])
        optional = _optional_arguments(batch)

        def compute(state: Stack, logits: Tensor, y: Tensor, *arguments: Tensor) -> Tensor:
            member_batch = Batch(None, y, **dict(zip(optional, arguments, strict=True)))
            return self.objective.call(self._bind(state, method), logits, member_batch)

        losses: Tensor = vmap(compute, randomness="different")(stack, logits, batch.y, *optional.values())
        return losses

    def comparable(self, logits: Tensor, batch: StackedBatch) -> Tensor:
        """Return each member's loss in eval mode, in a form that is the same in all epochs of a stage."""
        batch, method = self.weigh_padding(batch), self.objective.comparison
        state = self.state
        if state is None and method == "forward":
            state = self.state = self._initial_state(logits, batch)
        annealed = [f"{_Methods.PREFIX}{name}.a" for name in self.objective.annealed()] if state else []
        positions = {name: state[name].clone() for name in annealed} if state else {}
        self.loss.eval()
        try:
            with self.objective.annealed_to_end():
                for name in positions:
                    state[name].fill_(1.0)  # type: ignore[index]
                return self._compute_losses(state or {}, method, logits, batch)
        finally:
            self.loss.train()
            for name, position in positions.items():
                state[name].copy_(position)  # type: ignore[index]

    def update(self) -> None:
        """Move each member's multipliers, at the end of an epoch."""
        if self.state and hasattr(self.loss, "update"):
            self._call_for_all(self.state, "update")

    def observe_held_out(self, logits: Tensor, batch: StackedBatch) -> None:
        """Record each member's violations on its validation samples, before ``update``."""
        if self.state:
            self._compute_losses(self.state, "observe_held_out", logits, self.weigh_padding(batch))

    def observe(self, values: Sequence[float]) -> None:
        """Pass each member's value to its objective after validation; higher is better."""
        if self.state and hasattr(self.loss, "observe"):
            self._call_for_all(self.state, "observe", torch.tensor(values, dtype=torch.float64, device=self.device))

    def anneal(self, fraction: float) -> None:
        """Advance the annealed steps of all members."""
        for name in self.objective.annealed():
            self.loss.get_submodule(name).advance(fraction)  # type: ignore[operator]
            if self.state is not None:
                self.state[f"{_Methods.PREFIX}{name}.a"].fill_(fraction)

    def keep(self, rows: Tensor) -> None:
        """Keep these members only."""
        if self.state is not None:
            self.state = select_rows(self.state, rows)

    def copy_state(self, row: int) -> Stack | None:
        """Copy the state of a member's loss, with the loss's own names; None before the first batch."""
        if self.state is None:
            return None
        return {name.removeprefix(_Methods.PREFIX): buffer[row].clone() for name, buffer in self.state.items()}

    def load(self, state: Stack | None) -> None:
        """Continue from a ``state`` of a checkpoint."""
        self.state = None if state is None else move_stack(state, self.device)
        if self.state is not None and all(map(len, self.state.values())):  # at least one member is left
            self.methods.load_state_dict(select_rows(self.state, 0))

    def _initial_state(self, logits: Tensor, batch: StackedBatch) -> Stack:
        """Make the state at the start of training.

        The loss is called once for member 0, because some losses create buffers at their first use.
        """
        initial = {name: buffer.clone() for name, buffer in self.methods.state_dict().items()}
        arguments = {name: argument[0] for name, argument in _optional_arguments(batch).items()}
        self.objective(logits[0].detach(), Batch(None, batch.y[0], **arguments))
        created = self.methods.state_dict()
        state = {name: initial.get(name, torch.zeros_like(buffer)) for name, buffer in created.items()}
        return {name: torch.stack([buffer] * len(batch.lengths)) for name, buffer in state.items()}

    def _compute_loss(self, member: int, stack: Stack, method: str, logits: Tensor, batch: StackedBatch) -> Tensor:
        """Compute one member's loss without its padding, for losses that would count samples of weight 0."""
        state = select_rows(stack, member)  # views, so that changes reach the stack
        samples = member, slice(batch.lengths[member])
        arguments = {name: argument[samples] for name, argument in _optional_arguments(batch).items()}
        member_batch = Batch(None, batch.y[samples], **arguments)
        return self.objective.call(self._bind(state, method), logits[samples], member_batch)

    def _call_for_all(self, stack: Stack, method: str, *args: Tensor) -> None:
        """Call a method of the loss for each member."""

        def call(state: Stack, *args: Tensor) -> Tensor:
            self._bind(state, method)(*args)
            return torch.zeros(())

        vmap(call)(stack, *args)

    def _bind(self, state: Stack, method: str) -> Callable[..., Any]:
        """Return a method of the loss that uses a member's state."""
        if not state:
            bound: Callable[..., Any] = getattr(self.loss, method)
            return bound
        return lambda *args, **kwargs: functional_call(self.methods, state, (method, *args), kwargs)


def copy_with_state(objective: nn.Module, state: Stack | None, device: torch.device | None = None) -> nn.Module:
    """Copy an objective and give the copy this state."""
    copied = copy.deepcopy(objective)
    if state:
        copied.load_state_dict(state)
    return copied.to(device)


def ignores_zero_weights(loss: nn.Module) -> bool:
    """Check whether a sample of weight 0 has no effect on a loss."""
    if isinstance(loss, Mix):
        return all(map(ignores_zero_weights, loss.losses))
    if isinstance(loss, AugmentedLagrangian):
        has_functions = any(isinstance(constraint, FunctionConstraint) for constraint in loss.constraints)
        return ignores_zero_weights(loss.objective) and not has_functions
    return accepted_arguments(loss).weight and not any(isinstance(module, TorchLoss) for module in loss.modules())


def _optional_arguments(batch: StackedBatch) -> dict[str, Tensor]:
    """Return the optional arguments of a loss that the batch has."""
    arguments = {name: getattr(batch, name) for name in OPTIONAL_ARGUMENTS}
    return {name: argument for name, argument in arguments.items() if argument is not None}


class _Methods(nn.Module):
    """Calls a loss's methods by name, so that functional_call can lend a member's state to any of them."""

    PREFIX = "loss."  # of the names in its state

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, method: str, *args: Any, **kwargs: Any) -> Any:
        value = getattr(self.loss, method)(*args, **kwargs)
        return torch.zeros(()) if value is None else value  # vmap needs a tensor
