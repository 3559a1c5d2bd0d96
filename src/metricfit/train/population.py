"""Many models as one computation: weights stacked along a first axis, forward and loss under vmap, one optimiser.

Each member has its own weights, data order, training and validation samples, learning rate, multipliers and stopping
point, and learns what it would learn alone. A member that stops is taken out of the stack, and the others go on faster.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.modules.loss import _Loss as TorchLoss
from torch.nn.utils.rnn import pad_sequence

from metricfit.constraints import AugmentedLagrangian, FunctionConstraint
from metricfit.losses.mix import Mix, takes_weight
from metricfit.train.batch import Batch
from metricfit.train.graphs import Graphs, capturable
from metricfit.train.learner import Learner
from metricfit.train.member_checks import ALONE
from metricfit.train.monitor import Measured, Monitor
from metricfit.train.samples import InMemory
from metricfit.train.stage import Objective, Stage, matched

Stack = dict[str, Tensor]

FEW = 2**16


@dataclass(frozen=True)
class Stacked(Batch):
    """The members' batches, an axis of members in front, filled up to the longest; ``lengths`` are their own."""

    lengths: tuple[int, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether all are of one length."""
        return min(self.lengths) == max(self.lengths)

    @property
    def real(self) -> Tensor:
        """Which samples are the members' own."""
        device = self.y.device
        return torch.arange(self.y.shape[1], device=device) < torch.tensor(self.lengths, device=device).unsqueeze(1)


class Population(Learner):
    """Models of one architecture, trained side by side on one device.

    Args:
        models: the members, which keep their own weights until ``finish``.
        validation: each member's validation samples, as numbers into ``data``; None for no validation.
        data: the tensors that all members' samples are taken from.
        clip: the largest norm of a member's gradient.
        chunk: how many samples are evaluated at once.
        precision: None, or "bf16-mixed" for forward passes under autocast.
        cuda_graphs: whether steps are captured and replayed, on a GPU.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        data: InMemory,
        validation: Sequence[Tensor] | None,
        *,
        clip: float | None = None,
        chunk: int = 8192,
        precision: str | None = None,
        cuda_graphs: bool = False,
    ) -> None:
        if precision not in (None, "bf16-mixed"):
            raise ValueError(f"a population's precision is None or 'bf16-mixed', got {precision!r}")
        self.mixed = precision is not None
        self.models, self.data, self.validation, self.clip, self.chunk = list(models), data, validation, clip, chunk
        device = data.y.device
        for model in self.models:
            model.to(device)
        self.skeleton = copy.deepcopy(self.models[0]).to("meta")
        self.weights, self.buffers = (_clone(stack) for stack in stack_module_state(self.models))
        self.trainable = [name for name, given in self.models[0].named_parameters() if given.requires_grad]
        self.everyone = list(range(len(self.models)))
        self.active = list(self.everyone)
        self.final = _clone(self.weights), _clone(self.buffers)
        self.has_best = [False] * len(self.models)
        self.held_out: tuple[Stacked, bool] | None = None
        self.untried = True
        self.learned: list[Stack | None] = [None] * len(self.models)
        self.graphs = Graphs(self._captured_step) if cuda_graphs and device.type == "cuda" else None

    def begin(self, stage: Stage, lr: Sequence[float]) -> None:
        """A fresh optimiser over the stacked weights, and an objective whose state is stacked at its first batch."""
        self.active, self.held_out = list(self.everyone), None
        self.weights, self.buffers = (_clone(stack) for stack in self.final)
        self.has_best = [False] * len(self.models)
        self.stage, self.lr = stage, list(lr)
        loss = copy.deepcopy(stage.objective).to(self.data.y.device).train()
        self.objective = Objective(loss)
        self.call = _Methods(loss)
        self.weighs_all = weighs_all(loss)
        self.state_of_loss: Stack | None = None
        self.learned = [None] * len(self.models)
        self._make_optimizer()
        self.skeleton.train()

    def _make_optimizer(self) -> None:
        learning = [self.weights[name].requires_grad_() for name in self.trainable]
        make = self.stage.optimizer or torch.optim.AdamW
        self.highest = max(self.lr)
        self.optimizer = make(learning, lr=self.highest)
        self.scheduler = self.stage.scheduler(self.optimizer) if self.stage.scheduler else None
        rates = [self.lr[member] / self.highest for member in self.active]
        self.rates = None if min(rates, default=1.0) == 1.0 else learning[0].new_tensor(rates)
        self._begin_graphs()

    def _begin_graphs(self) -> None:
        if self.graphs is not None or not self.data.y.is_cuda:
            capturable(self.optimizer)
        if self.graphs is not None:
            self.graphs.clear()

    def step(self, batch: Stacked) -> Tensor:  # type: ignore[override]
        """One backward pass through all members' losses, one optimiser step."""
        batch = self._masked(batch)
        if self.graphs is None or not batch.alike:
            return self._step(batch)
        return self.graphs((batch.x, batch.y, batch.weight, batch.index), self._learning())

    def _captured_step(self, x: Tensor, y: Tensor, weight: Tensor | None, index: Tensor | None) -> Tensor:
        return self._step(Stacked(x, y, weight, index, (y.shape[1],) * len(y)))

    def _step(self, batch: Stacked) -> Tensor:
        logits = self._first_forward(batch.x) if self.untried else self._forwards(batch.x)
        losses = self._losses(logits, batch)
        learning = self._learning()
        gradients = torch.autograd.grad(losses.sum(), learning, allow_unused=True)
        for weight, gradient in zip(learning, gradients, strict=True):
            weight.grad = gradient
        if self.clip is not None:
            self._clip(self.clip)
        self._take_step()
        return losses.detach()

    def _learning(self) -> list[Tensor]:
        return [self.weights[name] for name in self.trainable]

    def _forwards(self, x: Tensor, shared: bool = False) -> Tensor:
        """All active members' logits; one alone needs no vmap, whose layers are not torch's fastest."""
        if len(self.active) == 1:
            weights, buffers = ({name: given[0] for name, given in of.items()} for of in (self.weights, self.buffers))
            return self._forward(weights, buffers, x if shared else x[0]).unsqueeze(0)
        axes = (0, 0, None if shared else 0)
        logits: Tensor = vmap(self._forward, axes, randomness="different")(self.weights, self.buffers, x)
        return logits

    def _first_forward(self, x: Tensor) -> Tensor:
        """One that tells of models which cannot be stacked what to do instead."""
        try:
            logits = self._forwards(x)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            kind = type(self.models[0]).__name__
            raise RuntimeError(
                f"a {kind} cannot be trained as one of a population, whose members run under torch.vmap; {ALONE}. The "
                f"reason: {error}"
            ) from error
        self.untried = False
        return logits

    def _forward(self, weights: Stack, buffers: Stack, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16) if self.mixed else nullcontext():
            logits: Tensor = functional_call(self.skeleton, {**weights, **buffers}, (x,))
        return logits.to(torch.get_default_dtype()) if self.mixed else logits

    def _masked(self, batch: Stacked) -> Stacked:
        """Batches that differ in length as alike, their filling of weight 0, if the loss heeds weights."""
        if batch.alike or not self.weighs_all:
            return batch
        real = batch.real
        weight = real.to(torch.get_default_dtype()) if batch.weight is None else batch.weight * real
        return replace(batch, weight=weight, lengths=(max(batch.lengths),) * len(batch.lengths))

    def _losses(self, logits: Tensor, batch: Stacked) -> Tensor:
        """Each member's loss; where batches differ in length, that of its own samples alone."""
        batch = self._masked(batch)
        state = self._loss_state(logits, batch)
        if not batch.alike:
            return torch.stack([self._loss_of(at, logits, batch) for at in range(len(batch.lengths))])
        given = {name: each for name, each in (("weight", batch.weight), ("index", batch.index)) if each is not None}

        def of_member(state: Stack, logits: Tensor, y: Tensor, *rest: Tensor) -> Tensor:
            extra = dict(zip(given, rest, strict=True))
            return self.objective.of(self._bound(state, "forward"), logits, y, extra.get("weight"), extra.get("index"))

        losses: Tensor = vmap(of_member, randomness="different")(state, logits, batch.y, *given.values())
        return losses

    def _loss_of(self, at: int, logits: Tensor, batch: Stacked) -> Tensor:
        """One member's loss, for objectives that would count samples of weight 0."""
        assert self.state_of_loss is not None
        state = {name: given[at] for name, given in self.state_of_loss.items()}  # views: what changes, changes there
        own = [None if each is None else each[at, : batch.lengths[at]] for each in (batch.y, batch.weight, batch.index)]
        y, weight, index = own
        assert y is not None
        return self.objective.of(self._bound(state, "forward"), logits[at, : batch.lengths[at]], y, weight, index)

    def _bound(self, state: Stack, method: str) -> Callable[..., Any]:
        if not state:
            bound: Callable[..., Any] = getattr(self.objective.loss, method)
            return bound
        return lambda *args, **kwargs: functional_call(self.call, state, (method, *args), kwargs)

    def _loss_state(self, logits: Tensor, batch: Batch) -> Stack:
        """The objectives' buffers, one row a member. A first call, of member 0 alone, makes those made at first use."""
        if self.state_of_loss is None:
            before = {name: given.clone() for name, given in self.call.state_dict().items()}
            one = Batch(None, batch.y[0], None if batch.weight is None else batch.weight[0], _first(batch.index))
            self.objective(logits[0].detach(), one)
            made = {name: before.get(name, torch.zeros_like(given)) for name, given in self.call.state_dict().items()}
            self.state_of_loss = {name: torch.stack([given] * len(self.active)) for name, given in made.items()}
        return self.state_of_loss

    def _take_step(self) -> None:
        if self.rates is None:
            self.optimizer.step()
            return
        # Every optimiser in common use moves in proportion to its learning rate: the move at the highest, scaled.
        with torch.no_grad():
            before = {name: self.weights[name].clone() for name in self.trainable}
            self.optimizer.step()
            for name in self.trainable:
                given = self.weights[name]
                rate = self.rates.reshape(-1, *(1,) * (given.dim() - 1))
                given.copy_(torch.where(rate == 1, given, torch.lerp(before[name], given, rate)))

    @torch.no_grad()
    def _clip(self, largest: float) -> None:
        """torch's clip_grad_norm_, member by member."""
        gradients = [given.grad for given in self.weights.values() if given.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(each.flatten(1), dim=1) for each in gradients])
        scale = (largest / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        for each in gradients:
            each.mul_(scale.reshape(-1, *(1,) * (each.dim() - 1)))

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Move multipliers and learning rates."""
        if self.state_of_loss and hasattr(self.objective.loss, "update"):
            self._each("update")
        if self.scheduler is not None:
            self.scheduler.step()
            self._begin_graphs()

    def observe(self, values: Sequence[float]) -> None:
        """Tell each member's objective its value."""
        if self.state_of_loss and hasattr(self.objective.loss, "observe"):
            self._each("observe", torch.tensor(values, dtype=torch.float64, device=self.data.y.device))

    def _each(self, method: str, *args: Tensor) -> None:
        def of_member(state: Stack, *args: Tensor) -> Tensor:
            self._bound(state, method)(*args)
            return torch.zeros(())

        vmap(of_member)(self.state_of_loss or {}, *args)

    def anneal(self, fraction: float) -> None:
        """Advance the objectives' annealed steps."""
        for name in self.objective.annealed():
            self.objective.loss.get_submodule(name).advance(fraction)  # type: ignore[operator]
            if self.state_of_loss is not None:
                self.state_of_loss[f"loss.{name}.a"].fill_(fraction)

    @torch.no_grad()
    def logits(self, numbers: Tensor, shared: bool) -> Tensor:
        """Each active member's logits of its row of samples, numbers into the data; ``shared`` rows are the same."""
        self.skeleton.eval()
        found = []
        for part in torch.split(numbers, self.chunk, dim=1):
            found.append(self._forwards(self.data.x[part[0] if shared else part], shared))
        self.skeleton.train()
        return torch.cat(found, dim=1)

    @torch.no_grad()
    def validate(self, monitor: Monitor) -> list[tuple[float, Measured]]:
        """Each active member on its own validation samples."""
        batch, shared = self._held_out()
        assert batch.index is not None
        logits = self.logits(batch.index, shared)
        self.objective.loss.eval()
        losses = self._losses(logits, replace(batch, index=None)).tolist()
        self.objective.loss.train()
        if monitor.is_loss:
            return [(loss, Measured(loss, math.nan)) for loss in losses]
        few = logits.shape[1] <= FEW  # whose metrics cost a GPU more to start than a CPU to compute
        own = [given.cpu() if few and given is not None else given for given in (logits, batch.y, batch.weight)]
        measured = []
        for at, length in enumerate(batch.lengths):
            mine, y, weight = (None if given is None else given[at, :length] for given in own)
            assert mine is not None
            assert y is not None
            measured.append(monitor.measure(*matched(mine, y), weight))
        return list(zip(losses, measured, strict=True))

    def _held_out(self) -> tuple[Stacked, bool]:
        """The active members' validation samples but their inputs, and whether they are the same for all."""
        assert self.validation is not None
        if self.held_out is None:
            own = [self.validation[member] for member in self.active]
            positions, lengths = filled([torch.arange(len(each), device=each.device) for each in own])
            numbers = torch.stack([mine[row] for mine, row in zip(own, positions, strict=True)])
            weight = None if self.data.weight is None else self.data.weight[numbers]
            shared = bool((numbers == numbers[0]).all())
            self.held_out = Stacked(None, self.data.y[numbers], weight, numbers, lengths), shared
        return self.held_out

    def gradient_size(self) -> Tensor:
        """Over all weights of each member."""
        sizes = [
            given.grad.abs().flatten(1).sum(1, dtype=torch.float32)
            for given in self.weights.values()
            if given.grad is not None
        ]
        return torch.stack(sizes).sum(0)

    def remember(self, members: Sequence[int]) -> None:
        """Copy these members' weights."""
        self._keep(members)
        for member in members:
            self.has_best[member] = True

    @torch.no_grad()
    def _keep(self, members: Sequence[int]) -> None:
        if members:
            rows = [self.active.index(member) for member in members]
            for final, now in zip(self.final, (self.weights, self.buffers), strict=True):
                for name, given in now.items():
                    final[name][list(members)] = given[rows]

    @torch.no_grad()
    def outputs(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """These active members' logits; inputs of unequal length are filled up for the while."""
        rows = [self.active.index(member) for member in members]
        weights, buffers = ({name: given[rows] for name, given in of.items()} for of in (self.weights, self.buffers))
        device, found = self.data.y.device, []
        lengths = [len(x) for x in inputs]
        self.skeleton.eval()
        for first in range(0, max(lengths), self.chunk):
            part = pad_sequence([x[first : first + self.chunk] for x in inputs], batch_first=True).to(device)
            found.append(vmap(self._forward)(weights, buffers, part))
        self.skeleton.train()
        return [mine[:length] for mine, length in zip(torch.cat(found, dim=1), lengths, strict=True)]

    def retire(self, members: Sequence[int]) -> None:
        """Take these members out of the stack: weights, buffers, optimiser and objective."""
        if not members:
            return
        self._keep([member for member in members if not self.has_best[member]])
        self._keep_learned(members)
        stay = [at for at, member in enumerate(self.active) if member not in members]
        self.active, self.held_out = [self.active[at] for at in stay], None
        rows = torch.tensor(stay, dtype=torch.long, device=self.data.y.device)
        moments = self.optimizer.state_dict()
        rates = {} if self.scheduler is None else self.scheduler.state_dict()
        sizes = [self.weights[name].shape for name in self.trainable]
        self.weights = {name: given.detach()[rows] for name, given in self.weights.items()}
        self.buffers = {name: given[rows] for name, given in self.buffers.items()}
        if self.state_of_loss is not None:
            self.state_of_loss = {name: given[rows] for name, given in self.state_of_loss.items()}
        if not self.active:
            return
        self._make_optimizer()
        for at, of_weight in moments["state"].items():
            for key, given in of_weight.items():
                if isinstance(given, Tensor) and given.shape == sizes[at]:
                    of_weight[key] = given[rows]
        self.optimizer.load_state_dict(moments)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(rates)
        self._begin_graphs()

    def recall(self) -> None:
        """What is final: the best weights of those who have some, the last of the others."""
        self._keep([member for member in self.active if not self.has_best[member]])
        self._keep_learned(self.active)

    def _keep_learned(self, members: Sequence[int]) -> None:
        for member in members if self.state_of_loss is not None else ():
            row = self.active.index(member)
            self.learned[member] = {
                name.removeprefix("loss."): given[row].clone() for name, given in (self.state_of_loss or {}).items()
            }

    def objectives(self) -> list[nn.Module]:
        """Each member's objective of the last stage, with what it has learned."""
        return [with_state(self.stage.objective, learned, self.data.y.device) for learned in self.learned]

    def finish(self) -> None:
        """Give the members their weights."""
        for at, model in enumerate(self.models):
            model.load_state_dict(
                {name: given[at] for stack in self.final for name, given in stack.items()}, strict=False
            )

    def state(self) -> dict[str, Any]:
        """The stacks, the optimiser, the objectives, the best weights."""
        return {
            "weights": self.weights,
            "buffers": self.buffers,
            "final": list(self.final),
            "has_best": self.has_best,
            "active": self.active,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "objective": self.state_of_loss,
            "learned": self.learned,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        device = self.data.y.device
        self.active, self.has_best, self.held_out = state["active"], state["has_best"], None
        self.learned = [each and _to(each, device) for each in state["learned"]]
        self.weights, self.buffers = (_to(state[name], device) for name in ("weights", "buffers"))
        final = [_to(each, device) for each in state["final"]]
        self.final = final[0], final[1]
        self._make_optimizer()
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self._begin_graphs()
        self.state_of_loss = None
        if state["objective"] is not None:
            self.state_of_loss = _to(state["objective"], device)
            if self.active:  # else there is no member left whose state could stand for all
                self.call.load_state_dict({name: given[0] for name, given in self.state_of_loss.items()})


def filled(positions: Sequence[Tensor]) -> tuple[Tensor, tuple[int, ...]]:
    """Rows of positions among a member's own samples, filled up with its first to the length of the longest, and how
    long they were.
    """
    return pad_sequence(list(positions), batch_first=True), tuple(len(each) for each in positions)


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
    return takes_weight(loss) and not any(isinstance(part, TorchLoss) for part in loss.modules())


class _Methods(nn.Module):
    """Calls a loss's methods by name, so that functional_call can lend it a member's state for any of them."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.loss, method)(*args, **kwargs)


def _clone(stack: Stack) -> Stack:
    return {name: given.detach().clone() for name, given in stack.items()}


def _to(stack: Stack, device: torch.device) -> Stack:
    return {name: given.to(device) for name, given in stack.items()}


def _first(index: Tensor | None) -> Tensor | None:
    return None if index is None else index[0]
