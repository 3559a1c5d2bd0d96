"""What learns: members, each a model with all that its training changes, and the steps that they make together.

One model is a population of one. Members share nothing but the time of their steps, so each of them learns what it
would learn alone. metricfit_papers computes the forward passes of many members as one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase as Norm
from torch.optim.swa_utils import get_ema_multi_avg_fn

from metricfit.losses.accumulation import random_state, replayed
from metricfit.losses.calling import observe_value, update_loss
from metricfit.train import label_checks
from metricfit.train.data.batches import Batch
from metricfit.train.data.sources import InMemory, Source
from metricfit.train.engine.launching import OneDevice, Runtime, gather_batch, get_precision, sync_over_ranks
from metricfit.train.engine.validation import (
    Validation,
    compute_outputs,
    drop_uncounted,
    join_outputs,
    split_loss,
    validate,
    validate_stream,
)
from metricfit.train.monitor import Monitor
from metricfit.train.settings import Steps
from metricfit.train.stage import Objective, Schedule, Stage


class Member:
    """One model, on one device or, through Fabric, on several and in any precision.

    Args:
        runtime: The launched Fabric, or one device without it.
        model: The model.
        validation: The validation samples, if there are any.
        settings: How steps are made.
        channels_last: Whether images are laid out with their channels last, which convolutions prefer.
    """

    def __init__(
        self, runtime: Runtime, model: nn.Module, validation: Source | None, settings: Steps, channels_last: bool
    ) -> None:
        self.runtime: Any = runtime  # Fabric's types are narrower than what OneDevice takes
        self.model, self.validation, self.settings, self.channels_last = model, validation, settings, channels_last
        if channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network: nn.Module = runtime.setup(model)
        self.largest_batch = 1  # validation may take as many samples at once as training
        self.average: WeightAverage | None = None
        self.best: dict[str, Tensor] | None = None
        self.validation_outputs: tuple[Tensor, Batch] | None = None

    def begin(self, stage: Stage, lr: float, steps: int | None) -> None:
        """Make a new optimizer, and put the objective, which sees the samples of all ranks, on the device."""
        self.best, self.stage = None, stage
        self.labels_checked = self.validation is None or self.validation.knows_labels
        loss = copy.deepcopy(stage.objective).to(self.runtime.device).train()
        self.gathers = sync_over_ranks(loss) if self.runtime.world_size > 1 else False
        self.objective = Objective(loss)
        parameters = self.model.parameters()
        precision = get_precision(self.runtime)
        optimizer = (
            make_adamw(parameters, lr, fused=precision is None or precision.precision != "16-mixed")
            if stage.optimizer is None
            else stage.optimizer(parameters, lr=lr)
        )
        self.optimizer: Any = self.runtime.setup_optimizers(optimizer)
        self.optimized = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.schedule = Schedule(stage.scheduler, stage.scheduler_step, self.optimizer, steps)
        self.average = None
        if self.settings.ema is not None:
            averaged: dict[str, Tensor] = {
                name: weight for name, weight in self.model.named_parameters() if weight.requires_grad
            }
            self.averaged_buffers = name_averaged_buffers(self.model)
            averaged |= {name: self.model.get_buffer(name) for name in self.averaged_buffers}
            self.average = WeightAverage(self.settings.ema, averaged)
        self.network.train()

    def _averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its averaged weights, if there are any."""
        return nullcontext() if self.average is None else self.average.applied()

    def lay_out(self, x: Any) -> Any:
        """Return images with their channels last, if this is wanted."""
        if self.channels_last and isinstance(x, Tensor) and x.dim() == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch; on several processes, of their batches together."""
        return self.objective(*gather_batch(logits, batch)) if self.gathers else self.objective(logits, batch)

    def backward_in_parts(self, batch: Batch) -> Tensor:
        """Compute the gradient of the whole batch with one part of it in memory at a time, exact for any loss.

        A first pass computes all logits without gradient. The loss gives its gradient with respect to them, and a
        second pass backpropagates it through each part with the same random numbers.
        """
        rows = torch.arange(max(1, len(batch)), device=batch.y.device)
        parts = rows.tensor_split(min(self.settings.accumulate, len(rows)))
        states, logits = [], []
        with torch.no_grad():
            for part in parts:
                states.append(random_state())
                logits.append(self.network(self.lay_out(batch.x[part])))
        all_logits = torch.cat(logits).requires_grad_()
        loss = self.loss(drop_uncounted(all_logits, batch), batch)
        (gradient,) = torch.autograd.grad(loss, all_logits)
        for number, (part, state) in enumerate(zip(parts, states, strict=True), start=1):
            unfinished = self.runtime.no_backward_sync(self.network, enabled=number < len(parts))
            with unfinished, replayed(state):
                self.runtime.backward((self.network(self.lay_out(batch.x[part])) * gradient[part]).sum())
        return loss

    def end_step(self) -> None:
        """Move a learning rate that changes with every step, and the average of the weights."""
        if self.schedule.scheduler is not None:
            self.rate = float(self.optimizer.param_groups[0]["lr"])
            self.schedule.batch_ended()
        if self.average is not None:
            self.average.update()

    def end_epoch(self) -> None:
        """Update multipliers and the learning rate."""
        if self.objective.updates_on_held_out:
            with self._averaged():
                self.validation_outputs = self._outputs_on_validation()
            self.objective.observe_held_out(*self.validation_outputs)
        update_loss(self.objective.loss)
        self.schedule.epoch_ended()

    def anneal(self, fraction: float) -> None:
        """Set the annealed steps of the objective to the fraction of the stage that is done."""
        for step in self.objective.annealed():
            step.advance(fraction)

    def validate(self, monitors: Sequence[Monitor]) -> Validation:
        """Compute the comparable loss in eval mode, the monitored values and the requirements."""
        assert self.validation is not None
        streams = self.runtime.world_size == 1 and not any(monitor.needs_scores for monitor in monitors)
        parts = split_loss(self.objective.loss) if streams else None
        if parts is not None:
            check = None if self.labels_checked else self._check_labels
            with self._averaged():
                return validate_stream(monitors, self.objective, parts, self.outputs_of(self.validation), check)
        with self._averaged():
            logits, batch = self.validation_outputs or self._outputs_on_validation()
        self.validation_outputs = None  # they were computed with the present weights, at the end of the epoch
        loss = self.objective.loss.eval()
        with torch.no_grad():
            value = float(self.objective.comparable(logits, batch))
        loss.train()
        # Values that stop a run must be identical on all ranks.
        result: Validation = self.runtime.broadcast(validate(monitors, self.objective, value, logits, batch))
        return result

    def _outputs_on_validation(self) -> tuple[Tensor, Batch]:
        assert self.validation is not None
        logits, batch = self.logits(self.validation)
        if not self.labels_checked:
            self._check_labels(logits, batch.y)
        return logits, batch

    def _check_labels(self, logits: Tensor, y: Tensor, part: bool = False) -> None:
        """Check validation labels, or a part of them, that are known only after they were read."""
        label_checks.check_target(logits, y, [self.stage], "validation", part=part)
        if not part:
            label_checks.check_validation([self.stage], logits, y)
            self.labels_checked = True

    def logits(self, data: Source) -> tuple[Tensor, Batch]:
        """Return the logits of all samples with labels and weights; each rank computes its share."""
        return gather_batch(*join_outputs(self.outputs_of(data)))

    def outputs(self, x: Tensor) -> Tensor:
        """Return the logits of these inputs, in eval mode and without gradient."""
        inputs, here = InMemory(x, x.new_zeros(len(x))), OneDevice(self.runtime.device)  # only rank 0 calls it
        with self._averaged():
            return join_outputs(compute_outputs(here, self.network, inputs.to(here.device), self.lay_out))[0]

    def outputs_of(self, data: Source) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the logits of this rank's share of the samples, batch by batch, in eval mode and without gradient."""
        return compute_outputs(self.runtime, self.network, data, self.lay_out, self.largest_batch)

    def observe(self, result: Validation) -> None:
        """Pass the result to the objective, and the monitored value to a ReduceLROnPlateau."""
        observe_value(self.objective.loss, torch.tensor(result.observed, dtype=torch.float64))
        self.schedule.observe(result.measured.value)

    def remember(self) -> None:
        """Keep the present weights as the best."""
        with self._averaged():
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        if self.average is not None and self.runtime.world_size > 1 and self.averaged_buffers:
            # Every rank has averaged statistics of its own samples; rank 0's count, as in training.
            self.best |= self.runtime.broadcast({name: self.best[name] for name in self.averaged_buffers})

    def recall(self) -> None:
        """Restore the copy of the best weights; without one, take the averaged weights, if there are any."""
        if self.best is not None:
            self.model.load_state_dict(self.best)
        elif self.average is not None:
            self.average.apply()

    def finish(self) -> None:
        """Give the weights their usual layout again."""
        if self.channels_last:
            self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint needs."""
        precision = get_precision(self.runtime)
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "objective": self.objective.loss.state_dict(),
            "precision": {} if precision is None else precision.state_dict(),
            "best": self.best,
            "average": None if self.average is None else self.average.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state; called after ``begin`` of the same stage."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for weight, moments in self.optimizer.state.items():
            for name, moment in moments.items():
                if isinstance(moment, Tensor) and moment.shape == weight.shape:
                    moments[name] = match_layout(moment, weight)
        self.schedule.load_state_dict(state["scheduler"])
        self.objective.loss.load_state_dict(state["objective"])
        self.objective.loss.to(self.runtime.device)  # also buffers that the loss did not have yet
        precision = get_precision(self.runtime)
        if precision is not None:
            precision.load_state_dict(state["precision"])
        best, device = state["best"], self.runtime.device
        self.best = best and {name: tensor.to(device) for name, tensor in best.items()}
        if self.average is not None:
            self.average.load(state["average"])


class Learner:
    """Members that make their steps together. ``active`` lists the members that are still trained.

    Args:
        members: The members.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.runtime, self.settings = self.members[0].runtime, self.members[0].settings
        self.active = list(range(len(self.members)))
        self.computed = 0  # the member whose loss was computed last, for messages

    def begin(self, stage: Stage, lr: Sequence[float], steps: int | None = None) -> None:
        """Start a stage with new optimizers and the stage's objective; all members are active again.

        Args:
            stage: The stage.
            lr: Each member's learning rate.
            steps: Number of optimizer steps of the whole stage, if it is known.
        """
        self.active = list(range(len(self.members)))
        for member, rate in zip(self.members, lr, strict=True):
            member.begin(stage, rate, steps)

    def notes(self, member: int) -> dict[str, Any]:
        """Return further columns of the history: the learning rate, if it changes."""
        trained = self.members[member]
        return {} if trained.schedule.scheduler is None else {"lr": trained.rate}

    def step(self, batches: Sequence[Batch]) -> Tensor:
        """Make one optimizer step with one batch per active member, and return the members' losses, detached."""
        losses = self.make_step(batches)
        for number in self.active:
            self.members[number].end_step()
        return losses

    def make_step(self, batches: Sequence[Batch]) -> Tensor:
        """Compute the losses and their gradients, and move the weights."""
        members = [self.members[number] for number in self.active]
        for member, batch in zip(members, batches, strict=True):
            member.largest_batch = max(member.largest_batch, len(batch) // self.settings.accumulate)
            for weight in member.optimized:
                weight.grad = None
        if self.settings.accumulate > 1:
            losses = [member.backward_in_parts(batch) for member, batch in zip(members, batches, strict=True)]
        else:
            losses = []
            inputs = [member.lay_out(batch.x) for member, batch in zip(members, batches, strict=True)]
            for number, logits, batch in zip(self.active, self.forward(inputs), batches, strict=True):
                self.computed = number
                losses.append(self.members[number].loss(drop_uncounted(logits, batch), batch))
            self.runtime.backward(losses[0] if len(losses) == 1 else torch.stack(losses).sum())
        clip = self.settings.clip
        for member in members:
            if clip is not None:
                self.runtime.clip_gradients(member.network, member.optimizer, max_norm=clip, error_if_nonfinite=False)
            member.optimizer.step()
        return torch.stack([loss.detach().reshape(()) for loss in losses])

    def forward(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Return the logits of the active members, each for its own inputs."""
        return [self.members[number].network(x) for number, x in zip(self.active, inputs, strict=True)]

    def outputs(self, member: int, x: Tensor) -> Tensor:
        """Return the logits of a member for these inputs, by the weights that are validated."""
        return self.members[member].outputs(x)

    def retire(self, members: Sequence[int]) -> None:
        """Stop the training of these members."""
        self.active = [number for number in self.active if number not in members]

    def recall(self) -> None:
        """Restore the best weights of all members that have them."""
        for member in self.members:
            member.recall()

    def finish(self) -> None:
        """Bring the models into their usual form, at the end of training."""
        for member in self.members:
            member.finish()

    def state(self) -> dict[str, Any]:
        """Return everything that a checkpoint needs."""
        return {"members": [member.state() for member in self.members], "active": self.active}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state; called after ``begin`` of the same stage."""
        for member, saved in zip(self.members, state["members"], strict=True):
            member.load(saved)
        self.active = state["active"]


def make_adamw(weights: Iterable[Tensor], lr: float, *, fused: bool = True) -> torch.optim.AdamW:
    """Make AdamW; fused, all weights move in one operation, which is four times as fast for a small model.

    torch's fused optimisers on the CPU walk through the memory of weight, gradient and state side by side, and compute
    nonsense without an error where their strides differ: see ``match_layout``. ``backward`` gives gradients the strides
    of their weights, if these are dense.

    The weights are marked as written to. torch's fused optimisers do not count their writes, and ``start_at_prior``
    recognises a trained model by them.

    Args:
        weights: The weights of a model.
        lr: The learning rate.
        fused: Whether the fused form may be used. Gradient scalers that clip need the other one.

    Returns:
        The optimiser.

    Example:
        >>> make_adamw(torch.nn.Linear(2, 1).parameters(), lr=0.1).defaults["fused"]
        True
    """
    weights = list(weights)
    fused = fused and all(map(_may_be_fused, weights))
    if fused:
        torch.autograd.graph.increment_version(weights)
    return torch.optim.AdamW(weights, lr=lr, fused=fused or None)


def match_layout(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return a state of an optimiser with the strides of its weight."""
    return tensor if tensor.stride() == weight.stride() else torch.empty_like(weight).copy_(tensor)


def _may_be_fused(weight: Tensor) -> bool:
    dense = weight.is_contiguous() or (weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last))
    return dense and weight.is_floating_point() and weight.device.type in ("cpu", "cuda")


class WeightAverage:
    """The average of some tensors, which ``update`` moves towards their present values.

    After update n, counted from 0, average = d average + (1 - d) present with d = min(decay, (1 + n) / (10 + n)). The
    smaller d at the start lets the average forget the initial weights, as in TensorFlow's ExponentialMovingAverage.
    Averages have at least the precision of float32: in bfloat16 a small move would be rounded to none.

    Args:
        decay: The decay, between 0 and 1.
        present: The tensors by name, whose values change in place.

    Example:
        >>> weight = torch.tensor([0.0])
        >>> average = WeightAverage(0.999, {"weight": weight})
        >>> weight += 10
        >>> average.update()
        >>> with average.applied():
        ...     print(weight)
        tensor([9.])
        >>> weight
        tensor([10.])
    """

    def __init__(self, decay: float, present: Mapping[str, Tensor]) -> None:
        self.decay, self.present, self.updates = decay, dict(present), 0
        self.averages = {
            name: tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
            for name, tensor in self.present.items()
        }

    def update(self) -> None:
        """Move the average towards the present values, after an optimiser step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        averages = list(self.averages.values())
        present = [self.present[name].detach().to(average.dtype) for name, average in self.averages.items()]
        get_ema_multi_avg_fn(decay)(averages, present, self.updates)  # type: ignore[no-untyped-call]
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the tensors the values of their averages inside the block."""
        present = {name: tensor.detach().clone() for name, tensor in self.present.items()}
        self.apply()
        try:
            yield
        finally:
            self._write(present)

    def apply(self) -> None:
        """Give the tensors the values of their averages."""
        self._write(self.averages)

    @torch.no_grad()
    def _write(self, values: Mapping[str, Tensor]) -> None:
        for name, tensor in self.present.items():
            tensor.copy_(values[name])

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"averages": self.averages, "updates": self.updates}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        devices = {name: tensor.device for name, tensor in self.present.items()}
        self.averages = {name: state["averages"][name].to(device) for name, device in devices.items()}
        self.updates = state["updates"]


def name_averaged_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers that are averaged with the weights: running means and variances.

    Other buffers, such as masks that hold infinities, keep their present values.

    Example:
        >>> name_averaged_buffers(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        ['1.running_mean', '1.running_var']
    """
    statistics = {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        if isinstance(module, Norm)
        for name in ("running_mean", "running_var")
    }
    return [name for name, _ in model.named_buffers() if name in statistics]
