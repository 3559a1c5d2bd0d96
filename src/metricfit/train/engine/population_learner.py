"""Several models trained as one: members side by side under one optimiser, which stop and resume one by one.

Each member has its own weights, data order, training and validation samples, learning rate, multipliers and stopping
point, and learns what it would learn alone. A member that stops is taken out of the stack, so that the others train
faster. The forward passes are in stacked_models, and the losses in stacked_objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.train.data.batches import Batch
from metricfit.train.data.samples import InMemory
from metricfit.train.engine.cuda_graphs import StepGraphs, make_capturable
from metricfit.train.engine.default_optimizer import make_adamw, match_layout
from metricfit.train.engine.epoch_validation import Validation, validate
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.schedules import Schedule
from metricfit.train.engine.stacked_models import StackedModels, runs_one_by_one
from metricfit.train.engine.stacked_objective import StackedObjective, copy_with_state
from metricfit.train.engine.stacked_tensors import Stack, StackedBatch, clone_stack, move_stack, pad_positions
from metricfit.train.engine.weight_average import WeightAverage, name_averaged_buffers
from metricfit.train.monitor import Monitor
from metricfit.train.stage import MakeOptimizer, Stage

#: Up to this many validation samples, metrics are computed on the CPU, where small operations start faster.
SAMPLES_FOR_CPU = 2**16


class Population(Learner):
    """Models of one architecture, trained side by side on one device.

    Args:
        models: The members, which keep their own weights until ``finish``.
        data: The tensors from which all members' samples are taken.
        validation: The numbers of each member's validation samples in ``data``; None for no validation.
        clip: The maximum norm of a member's gradient.
        precision: None, or "bf16-mixed" for forward passes under autocast.
        cuda_graphs: Whether steps on a GPU are captured and replayed.
        ema: The decay of the average of the weights, if there is one.
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
        ema: float | None = None,
    ) -> None:
        self.models, self.data, self.validation, self.clip = list(models), data, validation, clip
        self.device = data.y.device
        one_by_one = runs_one_by_one(self.models[0], self.device, cuda_graphs)
        self.stack = StackedModels(self.models, self.device, precision, one_by_one=one_by_one)
        self.active = list(range(len(self.models)))
        self.final = clone_stack(self.stack.weights), clone_stack(self.stack.buffers)
        self.has_best = [False] * len(self.models)
        self.ema, self.average_buffers = ema, name_averaged_buffers(self.models[0])
        self.average: WeightAverage | None = None
        self.validation_batch: tuple[StackedBatch, bool] | None = None
        self.validation_logits: Tensor | None = None
        self.objective_states: list[Stack | None] = [None] * len(self.models)
        self.graphs = StepGraphs(self._captured_step) if cuda_graphs and self.device.type == "cuda" else None

    def begin(self, stage: Stage, lr: Sequence[float], steps: int | None = None) -> None:
        """Make a new optimiser for the stacked weights, and an objective whose state is made at its first batch."""
        self.active, self.validation_batch = list(range(len(self.models))), None
        self.stack.weights, self.stack.buffers = (clone_stack(stack) for stack in self.final)
        self.stack.active = list(self.active)
        self.has_best = [False] * len(self.models)
        self.stage, self.lr, self.steps = stage, list(lr), steps
        self.objective = StackedObjective(stage.objective, self.device)
        self.objective_states = [None] * len(self.models)
        self._make_optimizer()
        self.average = None if self.ema is None else WeightAverage(self.ema, self._list_averaged())

    def _list_averaged(self) -> Stack:
        """Return the stacks that are averaged."""
        weights = {name: self.stack.weights[name] for name in self.stack.trainable}
        return weights | {name: self.stack.buffers[name] for name in self.average_buffers}

    def _averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the members have their averaged weights, if there are any."""
        return nullcontext() if self.average is None else self.average.applied()

    def _make_optimizer(self) -> None:
        weights = [weight.requires_grad_() for weight in self.stack.trainable_weights]
        make: MakeOptimizer = self.stage.optimizer or make_adamw
        highest = max(self.lr)
        self.optimizer = make(weights, lr=highest)
        self.schedule = Schedule(self.stage.scheduler, self.stage.scheduler_step, self.optimizer, self.steps)
        rates = [self.lr[member] / highest for member in self.active]
        self.relative_rates = None if min(rates, default=1.0) == 1.0 else weights[0].new_tensor(rates)
        self._reset_graphs()

    def _reset_graphs(self) -> None:
        if self.graphs is not None or self.device.type != "cuda":
            make_capturable(self.optimizer)
        if self.graphs is not None:
            self.graphs.clear()

    def step(self, batch: StackedBatch) -> Tensor:  # type: ignore[override]
        """Make one backward pass through all members' losses, and one optimiser step."""
        batch = self.objective.weigh_padding(batch)
        if self.schedule.scheduler is not None:
            self.rate = float(self.optimizer.param_groups[0]["lr"])
        # A captured step contains its learning rate, so a rate that changes per batch cannot be captured.
        if self.graphs is None or not batch.equal_lengths or self.schedule.per_batch:
            losses = self._step(batch)
            self.schedule.batch_ended()
        else:
            inputs = batch.x, batch.y, batch.weight, batch.index, batch.group
            losses = self.graphs(inputs, self.stack.trainable_weights)
        if self.average is not None:
            self.average.update()
        return losses

    def _captured_step(
        self, x: Tensor, y: Tensor, weight: Tensor | None, index: Tensor | None, group: Tensor | None
    ) -> Tensor:
        return self._step(StackedBatch(x, y, weight, index, group, (y.shape[1],) * len(y)))

    def _step(self, batch: StackedBatch) -> Tensor:
        logits = self.stack(batch.x)
        losses = self.objective(logits, batch)
        weights = self.stack.trainable_weights
        gradients = torch.autograd.grad(losses.sum(), weights, allow_unused=True)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = None if gradient is None else match_layout(gradient, weight)
        if self.clip is not None:
            self._clip(self.clip)
        self._move_weights()
        return losses.detach()

    def _move_weights(self) -> None:
        if self.relative_rates is None:
            self.optimizer.step()
            return
        # These optimisers move in proportion to their learning rate: step at the highest rate, then scale the move.
        with torch.no_grad():
            previous = [weight.clone() for weight in self.stack.trainable_weights]
            self.optimizer.step()
            for weight, start in zip(self.stack.trainable_weights, previous, strict=True):
                rate = self.relative_rates.reshape(-1, *(1,) * (weight.dim() - 1))
                weight.copy_(torch.where(rate == 1, weight, torch.lerp(start, weight, rate)))

    @torch.no_grad()
    def _clip(self, max_norm: float) -> None:
        """Clip each member's gradient as torch's clip_grad_norm_ does."""
        gradients = [weight.grad for weight in self.stack.weights.values() if weight.grad is not None]
        norms = torch.stack(
            [torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1) for gradient in gradients]
        )
        scale = (max_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.reshape(-1, *(1,) * (gradient.dim() - 1)))

    def notes(self, member: int) -> dict[str, Any]:
        """Give the learning rate, if it changes, and say on a GPU whether steps were captured."""
        share = self.lr[member] / max(self.lr)
        rate = {} if self.schedule.scheduler is None else {"lr": self.rate * share}
        if self.device.type != "cuda":
            return rate
        return rate | {
            "cuda_graphs": "captured" if self.graphs is not None and self.graphs.captured else "not captured"
        }

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Update multipliers and learning rates."""
        if self.objective.objective.updates_on_held_out:
            batch, shared = self._get_validation_batch()
            assert batch.index is not None
            with self._averaged():
                self.validation_logits = self.stack.evaluate(self.data.x, batch.index, shared)
            self.objective.observe_held_out(self.validation_logits, replace(batch, index=None))
        self.objective.update()
        if self.schedule.epoch_ended():
            self._reset_graphs()

    def observe(self, results: Sequence[Validation]) -> None:
        """Pass each member's result to its objective."""
        self.objective.observe([result.observed for result in results])

    def anneal(self, fraction: float) -> None:
        """Advance the objectives' annealed steps."""
        self.objective.anneal(fraction)

    @torch.no_grad()
    def validate(self, monitors: Sequence[Monitor]) -> list[Validation]:
        """Validate each active member on its own validation samples."""
        batch, shared = self._get_validation_batch()
        assert batch.index is not None
        logits = self.validation_logits
        if logits is None:
            with self._averaged():
                logits = self.stack.evaluate(self.data.x, batch.index, shared)
        self.validation_logits = None  # they were computed with the present weights, at the end of the epoch
        losses = self.objective.comparable(logits, replace(batch, index=None)).tolist()
        parts: list[Any] = [logits, batch.y, batch.weight, batch.group]
        if logits.shape[1] <= SAMPLES_FOR_CPU:
            parts = [None if part is None else part.cpu() for part in parts]
        results = []
        for row, (length, loss) in enumerate(zip(batch.lengths, losses, strict=True)):
            member: list[Any] = [None if part is None else part[row, :length] for part in parts]
            member_logits, y, weight, group = member
            member_batch = Batch(None, y, weight, group=group)
            results.append(validate(monitors, self.objective.objective, loss, member_logits, member_batch))
        return results

    def _get_validation_batch(self) -> tuple[StackedBatch, bool]:
        """Return the active members' validation samples without inputs, and whether all members have the same."""
        assert self.validation is not None
        if self.validation_batch is None:
            samples = [self.validation[member] for member in self.active]
            positions, lengths = pad_positions([torch.arange(len(numbers), device=self.device) for numbers in samples])
            numbers = torch.stack([numbers[row] for numbers, row in zip(samples, positions, strict=True)])
            weight = None if self.data.weight is None else self.data.weight[numbers]
            shared = bool((numbers == numbers[0]).all())
            group = None if self.data.group is None else self.data.group[numbers]
            batch = StackedBatch(None, self.data.y[numbers], weight, numbers, group, lengths)
            self.validation_batch = batch, shared
        return self.validation_batch

    def gradient_size(self) -> Tensor:
        """Return the sum over all weights of each member."""
        gradients = [weight.grad for weight in self.stack.weights.values() if weight.grad is not None]
        sizes = [gradient.abs().reshape(len(gradient), -1).sum(1, dtype=torch.float32) for gradient in gradients]
        return torch.stack(sizes).sum(0)

    def remember(self, members: Sequence[int]) -> None:
        """Copy these members' weights."""
        self._store_weights(members)
        for member in members:
            self.has_best[member] = True

    @torch.no_grad()
    def _store_weights(self, members: Sequence[int]) -> None:
        if not members:
            return
        rows = self._find_rows(members)
        with self._averaged():
            for final, current in zip(self.final, (self.stack.weights, self.stack.buffers), strict=True):
                for name, tensor in current.items():
                    final[name][list(members)] = tensor[rows]

    def _find_rows(self, members: Sequence[int]) -> list[int]:
        return [self.active.index(member) for member in members]

    def outputs(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of these active members."""
        with self._averaged():
            return self.stack.outputs(self._find_rows(members), inputs)

    def retire(self, members: Sequence[int]) -> None:
        """Take these members out of the stack: their weights, buffers, optimiser state and objective."""
        if not members:
            return
        self._store_weights([member for member in members if not self.has_best[member]])
        self._store_objective_states(members)
        staying = [row for row, member in enumerate(self.active) if member not in members]
        self.active, self.validation_batch = [self.active[row] for row in staying], None
        rows = torch.tensor(staying, dtype=torch.long, device=self.device)
        optimizer_state = self.optimizer.state_dict()
        schedule_state = self.schedule.state_dict()
        shapes = [weight.shape for weight in self.stack.trainable_weights]
        self.stack.keep(rows)
        self.objective.keep(rows)
        if self.average is not None:
            self.average.keep(rows, self._list_averaged())
        if not self.active:
            return
        self._make_optimizer()
        for number, weight_state in optimizer_state["state"].items():
            for name, value in weight_state.items():
                if isinstance(value, Tensor) and value.shape == shapes[number]:
                    weight_state[name] = value[rows]
        self.optimizer.load_state_dict(optimizer_state)
        self.schedule.load_state_dict(schedule_state)
        self._reset_graphs()

    def recall(self) -> None:
        """Make the best weights final, or the last weights of members that have no best ones."""
        self._store_weights([member for member in self.active if not self.has_best[member]])
        self._store_objective_states(self.active)

    def _store_objective_states(self, members: Sequence[int]) -> None:
        for member, row in zip(members, self._find_rows(members), strict=True):
            self.objective_states[member] = self.objective.copy_state(row)

    def objectives(self) -> list[nn.Module]:
        """Return each member's objective of the last stage, with its state."""
        return [copy_with_state(self.stage.objective, state, self.device) for state in self.objective_states]

    def finish(self) -> None:
        """Write the final weights into the models."""
        for row, model in enumerate(self.models):
            model.load_state_dict(
                {name: tensor[row] for stack in self.final for name, tensor in stack.items()}, strict=False
            )

    def state(self) -> dict[str, Any]:
        """Return the stacks, the optimiser, the objectives and the best weights."""
        return {
            "weights": self.stack.weights,
            "buffers": self.stack.buffers,
            "final": list(self.final),
            "has_best": self.has_best,
            "active": self.active,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "objective": self.objective.state,
            "learned": self.objective_states,
            **({} if self.average is None else {"average": self.average.state()}),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.active, self.has_best, self.validation_batch = state["active"], state["has_best"], None
        self.objective_states = [learned and move_stack(learned, self.device) for learned in state["learned"]]
        self.stack.weights = move_stack(state["weights"], self.device)
        self.stack.buffers = move_stack(state["buffers"], self.device)
        self.stack.active = list(self.active)
        weights, buffers = state["final"]
        self.final = move_stack(weights, self.device), move_stack(buffers, self.device)
        self._make_optimizer()
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["scheduler"])
        self._reset_graphs()
        self.objective.load(state["objective"])
        if self.ema is not None:
            self.average = WeightAverage(self.ema, self._list_averaged())
            self.average.load(state["average"])
