"""Many models trained as one: members side by side under one optimiser, which stop, are kept and resumed one by one.

Each member has its own weights, data order, training and validation samples, learning rate, multipliers and stopping
point, and learns what it would learn alone. A member that stops is taken out of the stack, and the others go on faster.
The members' forward passes are those of stacked_models, their losses those of stacked_objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.train.data.batches import Batch
from metricfit.train.data.samples import InMemory
from metricfit.train.engine.cuda_graphs import Graphs, capturable
from metricfit.train.engine.epoch_validation import Validation, validate
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.schedules import Schedule
from metricfit.train.engine.stacked_models import StackedModels
from metricfit.train.engine.stacked_objective import StackedObjective, with_state
from metricfit.train.engine.stacked_tensors import Stack, Stacked, cloned, filled, moved
from metricfit.train.monitor import Monitor
from metricfit.train.stage import Stage

FEW = 2**16


class Population(Learner):
    """Models of one architecture, trained side by side on one device.

    Args:
        models: the members, which keep their own weights until ``finish``.
        validation: each member's validation samples, as numbers into ``data``; None for no validation.
        data: the tensors that all members' samples are taken from.
        clip: the largest norm of a member's gradient.
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
        precision: str | None = None,
        cuda_graphs: bool = False,
    ) -> None:
        self.models, self.data, self.validation, self.clip = list(models), data, validation, clip
        self.device = data.y.device
        self.stack = StackedModels(self.models, self.device, precision)
        self.everyone = list(range(len(self.models)))
        self.active = list(self.everyone)
        self.final = cloned(self.stack.weights), cloned(self.stack.buffers)
        self.has_best = [False] * len(self.models)
        self.held_out: tuple[Stacked, bool] | None = None
        self.learned: list[Stack | None] = [None] * len(self.models)
        self.graphs = Graphs(self._captured_step) if cuda_graphs and self.device.type == "cuda" else None

    def begin(self, stage: Stage, lr: Sequence[float], steps: int | None = None) -> None:
        """A fresh optimiser over the stacked weights, and an objective whose state is stacked at its first batch."""
        self.active, self.held_out = list(self.everyone), None
        self.stack.weights, self.stack.buffers = (cloned(stack) for stack in self.final)
        self.has_best = [False] * len(self.models)
        self.stage, self.lr, self.steps = stage, list(lr), steps
        self.objective = StackedObjective(stage.objective, self.device)
        self.learned = [None] * len(self.models)
        self._make_optimizer()

    def _make_optimizer(self) -> None:
        learning = [given.requires_grad_() for given in self.stack.learning]
        make = self.stage.optimizer or torch.optim.AdamW
        self.highest = max(self.lr)
        self.optimizer = make(learning, lr=self.highest)
        self.schedule = Schedule(self.stage.scheduler, self.stage.scheduler_step, self.optimizer, self.steps)
        rates = [self.lr[member] / self.highest for member in self.active]
        self.rates = None if min(rates, default=1.0) == 1.0 else learning[0].new_tensor(rates)
        self._begin_graphs()

    def _begin_graphs(self) -> None:
        if self.graphs is not None or self.device.type != "cuda":
            capturable(self.optimizer)
        if self.graphs is not None:
            self.graphs.clear()

    def step(self, batch: Stacked) -> Tensor:  # type: ignore[override]
        """One backward pass through all members' losses, one optimiser step."""
        batch = self.objective.masked(batch)
        # A captured step has its learning rate in it, so a rate that moves per batch is not captured.
        if self.graphs is None or not batch.alike or self.schedule.per_batch:
            losses = self._step(batch)
            self.schedule.batch_ended()
            return losses
        return self.graphs((batch.x, batch.y, batch.weight, batch.index, batch.group), self.stack.learning)

    def _captured_step(
        self, x: Tensor, y: Tensor, weight: Tensor | None, index: Tensor | None, group: Tensor | None
    ) -> Tensor:
        return self._step(Stacked(x, y, weight, index, group, (y.shape[1],) * len(y)))

    def _step(self, batch: Stacked) -> Tensor:
        logits = self.stack(batch.x)
        losses = self.objective(logits, batch)
        learning = self.stack.learning
        gradients = torch.autograd.grad(losses.sum(), learning, allow_unused=True)
        for weight, gradient in zip(learning, gradients, strict=True):
            weight.grad = gradient
        if self.clip is not None:
            self._clip(self.clip)
        self._take_step()
        return losses.detach()

    def _take_step(self) -> None:
        if self.rates is None:
            self.optimizer.step()
            return
        # Every optimiser in common use moves in proportion to its learning rate: the move at the highest, scaled.
        with torch.no_grad():
            before = [given.clone() for given in self.stack.learning]
            self.optimizer.step()
            for given, was in zip(self.stack.learning, before, strict=True):
                rate = self.rates.reshape(-1, *(1,) * (given.dim() - 1))
                given.copy_(torch.where(rate == 1, given, torch.lerp(was, given, rate)))

    @torch.no_grad()
    def _clip(self, largest: float) -> None:
        """torch's clip_grad_norm_, member by member."""
        gradients = [given.grad for given in self.stack.weights.values() if given.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(each.flatten(1), dim=1) for each in gradients])
        scale = (largest / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        for each in gradients:
            each.mul_(scale.reshape(-1, *(1,) * (each.dim() - 1)))

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Move multipliers and learning rates."""
        self.objective.update()
        if self.schedule.epoch_ended():
            self._begin_graphs()

    def observe(self, results: Sequence[Validation]) -> None:
        """Tell each member's objective what was observed."""
        self.objective.observe([result.observed for result in results])

    def anneal(self, fraction: float) -> None:
        """Advance the objectives' annealed steps."""
        self.objective.anneal(fraction)

    @torch.no_grad()
    def validate(self, monitor: Monitor) -> list[Validation]:
        """Each active member on its own validation samples."""
        batch, shared = self._held_out()
        assert batch.index is not None
        logits = self.stack.evaluated(self.data.x, batch.index, shared)
        losses = self.objective.compared(logits, replace(batch, index=None)).tolist()
        few = logits.shape[1] <= FEW  # whose metrics cost a GPU more to start than a CPU to compute
        parts = (logits, batch.y, batch.weight, batch.group)
        logits, y, weight, group = (part.cpu() if few and part is not None else part for part in parts)  # type: ignore
        assert y is not None
        results = []
        for at, (length, loss) in enumerate(zip(batch.lengths, losses, strict=True)):
            rest = (None if part is None else part[at, :length] for part in (weight, group))
            mine = Batch(None, y[at, :length], **dict(zip(("weight", "group"), rest, strict=True)))
            results.append(validate(monitor, self.objective.objective, loss, logits[at, :length], mine))
        return results

    def _held_out(self) -> tuple[Stacked, bool]:
        """The active members' validation samples but their inputs, and whether they are the same for all."""
        assert self.validation is not None
        if self.held_out is None:
            own = [self.validation[member] for member in self.active]
            positions, lengths = filled([torch.arange(len(each), device=each.device) for each in own])
            numbers = torch.stack([mine[row] for mine, row in zip(own, positions, strict=True)])
            weight = None if self.data.weight is None else self.data.weight[numbers]
            shared = bool((numbers == numbers[0]).all())
            group = None if self.data.group is None else self.data.group[numbers]
            self.held_out = Stacked(None, self.data.y[numbers], weight, numbers, group, lengths), shared
        return self.held_out

    def gradient_size(self) -> Tensor:
        """Over all weights of each member."""
        sizes = [
            given.grad.abs().flatten(1).sum(1, dtype=torch.float32)
            for given in self.stack.weights.values()
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
            rows = self._rows(members)
            for final, now in zip(self.final, (self.stack.weights, self.stack.buffers), strict=True):
                for name, given in now.items():
                    final[name][list(members)] = given[rows]

    def _rows(self, members: Sequence[int]) -> list[int]:
        return [self.active.index(member) for member in members]

    def outputs(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """These active members' logits."""
        return self.stack.outputs(self._rows(members), inputs)

    def retire(self, members: Sequence[int]) -> None:
        """Take these members out of the stack: weights, buffers, optimiser and objective."""
        if not members:
            return
        self._keep([member for member in members if not self.has_best[member]])
        self._keep_learned(members)
        stay = [at for at, member in enumerate(self.active) if member not in members]
        self.active, self.held_out = [self.active[at] for at in stay], None
        rows = torch.tensor(stay, dtype=torch.long, device=self.device)
        moments = self.optimizer.state_dict()
        rates = self.schedule.state_dict()
        sizes = [given.shape for given in self.stack.learning]
        self.stack.keep(rows)
        self.objective.keep(rows)
        if not self.active:
            return
        self._make_optimizer()
        for at, of_weight in moments["state"].items():
            for key, given in of_weight.items():
                if isinstance(given, Tensor) and given.shape == sizes[at]:
                    of_weight[key] = given[rows]
        self.optimizer.load_state_dict(moments)
        self.schedule.load_state_dict(rates)
        self._begin_graphs()

    def recall(self) -> None:
        """What is final: the best weights of those who have some, the last of the others."""
        self._keep([member for member in self.active if not self.has_best[member]])
        self._keep_learned(self.active)

    def _keep_learned(self, members: Sequence[int]) -> None:
        for member, row in zip(members, self._rows(members), strict=True):
            self.learned[member] = self.objective.learned(row)

    def objectives(self) -> list[nn.Module]:
        """Each member's objective of the last stage, with what it has learned."""
        return [with_state(self.stage.objective, learned, self.device) for learned in self.learned]

    def finish(self) -> None:
        """Give the members their weights."""
        for at, model in enumerate(self.models):
            model.load_state_dict(
                {name: given[at] for stack in self.final for name, given in stack.items()}, strict=False
            )

    def state(self) -> dict[str, Any]:
        """The stacks, the optimiser, the objectives, the best weights."""
        return {
            "weights": self.stack.weights,
            "buffers": self.stack.buffers,
            "final": list(self.final),
            "has_best": self.has_best,
            "active": self.active,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "objective": self.objective.state,
            "learned": self.learned,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.active, self.has_best, self.held_out = state["active"], state["has_best"], None
        self.learned = [each and moved(each, self.device) for each in state["learned"]]
        self.stack.weights, self.stack.buffers = (moved(state[name], self.device) for name in ("weights", "buffers"))
        final = [moved(each, self.device) for each in state["final"]]
        self.final = final[0], final[1]
        self._make_optimizer()
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["scheduler"])
        self._begin_graphs()
        self.objective.load(state["objective"])
