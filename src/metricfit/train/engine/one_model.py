"""One model that is trained: on one device directly, or through lightning-fabric."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.losses.accumulation import random_state, replayed
from metricfit.train import label_checks
from metricfit.train.data.batches import SAMPLES_AT_ONCE, Batch
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.samples import Source
from metricfit.train.engine.automatic_graphs import AutomaticGraphs, find_obstacle_in_settings
from metricfit.train.engine.default_optimizer import make_adamw, match_layout
from metricfit.train.engine.epoch_validation import Validation, validate
from metricfit.train.engine.launching import OneDevice, get_precision
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.model_outputs import compute_outputs, drop_uncounted, join_outputs
from metricfit.train.engine.ranks import gather_batch, sync_over_ranks
from metricfit.train.engine.schedules import Schedule
from metricfit.train.engine.streamed_validation import split_loss, validate_stream
from metricfit.train.engine.weight_average import WeightAverage, name_averaged_buffers
from metricfit.train.monitor import Monitor
from metricfit.train.stage import Objective, Stage


class OneModel(Learner):
    """One model, on one device or, through Fabric, on several and in any precision.

    Args:
        fabric: The launched Fabric, or one device without it.
        model: The model.
        validation: The validation samples, if there are any.
        accumulate: The number of parts in which a batch is computed.
        clip: The maximum norm of the gradient.
        channels_last: Whether images are laid out with their channels last, which convolutions prefer.
        cuda_graphs: Whether steps are captured as CUDA graphs; None for wherever this is possible.
        ema: The decay of the average of the weights, if there is one.
    """

    def __init__(
        self,
        fabric: Any,
        model: nn.Module,
        validation: Source | None,
        *,
        accumulate: int = 1,
        clip: float | None = None,
        channels_last: bool = False,
        cuda_graphs: bool | None = None,
        ema: float | None = None,
    ) -> None:
        self.fabric, self.plain_model, self.channels_last = fabric, model, channels_last
        if channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model = fabric.setup(model)
        self.validation, self.accumulate, self.clip, self.cuda_graphs = validation, accumulate, clip, cuda_graphs
        self.largest_batch = 1  # validation may take as many samples at once as training
        self.ema = ema
        self.average: WeightAverage | None = None
        self.best: dict[str, Tensor] | None = None
        self.validation_outputs: tuple[Tensor, Batch] | None = None
        self.active = [0]

    def begin(self, stage: Stage, lr: Sequence[float], steps: int | None = None) -> None:
        """Make a new optimizer, and put the objective, which sees the samples of all ranks, on the device."""
        self.active, self.best, self.stage = [0], None, stage
        self.labels_checked = not isinstance(self.validation, FromLoader) and (
            self.validation is None or self.validation.knows_labels
        )
        loss = copy.deepcopy(stage.objective).to(self.fabric.device).train()
        self.gathers = sync_over_ranks(loss) if self.fabric.world_size > 1 else False
        self.objective = Objective(loss)
        parameters = self.plain_model.parameters()
        optimizer = (
            make_adamw(parameters, lr[0], fused=not self._scales_gradients())
            if stage.optimizer is None
            else stage.optimizer(parameters, lr=lr[0])
        )
        self.optimizer: Any = self.fabric.setup_optimizers(optimizer)
        self.optimized = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.schedule = Schedule(stage.scheduler, stage.scheduler_step, self.optimizer, steps)
        self.graphs = (
            None if self.fabric.device.type != "cuda" or self.cuda_graphs is False else self._make_graphs(steps)
        )
        self.average = None if self.ema is None else self._make_average(self.ema)
        self.model.train()

    def _make_average(self, decay: float) -> WeightAverage:
        trained = {name: weight for name, weight in self.plain_model.named_parameters() if weight.requires_grad}
        self.averaged_buffers = name_averaged_buffers(self.plain_model)
        buffers = {name: self.plain_model.get_buffer(name) for name in self.averaged_buffers}
        return WeightAverage(decay, trained | buffers)

    def _averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its averaged weights, if there are any."""
        return nullcontext() if self.average is None else self.average.applied()

    def _make_graphs(self, steps: int | None) -> AutomaticGraphs:
        loss, optimizer = self.objective.loss, self.optimizer
        obstacle: str | None = "several processes or another precision"
        if isinstance(self.fabric, OneDevice):
            obstacle = find_obstacle_in_settings(
                self.model, loss, optimizer, steps=steps, per_batch=self.schedule.per_batch, accumulate=self.accumulate
            )
        return AutomaticGraphs(
            self._step,
            lambda model, loss, batch: self.fabric.backward(Objective(loss)(model(self._lay_out(batch.x)), batch)),
            self.model,
            loss,
            optimizer,
            obstacle=obstacle,
            required=bool(self.cuda_graphs),
        )

    def notes(self, member: int) -> dict[str, Any]:
        """Give the learning rate, if it changes, and say on a GPU whether steps were captured."""
        rate = {} if self.schedule.scheduler is None else {"lr": self.rate}
        return rate if self.graphs is None else {**rate, "cuda_graphs": self.graphs.note}

    def step(self, batch: Batch) -> Tensor:
        """Make one optimizer step."""
        losses = self._step(batch) if self.graphs is None else self.graphs(batch)
        if self.schedule.scheduler is not None:
            self.rate = float(self.optimizer.param_groups[0]["lr"])
            self.schedule.batch_ended()
        if self.average is not None:
            self.average.update()
        return losses

    def _lay_out(self, x: Any) -> Any:
        """Return images with their channels last, if this is wanted."""
        if self.channels_last and isinstance(x, Tensor) and x.dim() == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def _step(self, batch: Batch) -> Tensor:
        self.largest_batch = max(self.largest_batch, len(batch) // self.accumulate)
        for weight in self.optimized:
            weight.grad = None
        if self.accumulate == 1:
            loss = self._loss(drop_uncounted(self.model(self._lay_out(batch.x)), batch), batch)
            self.fabric.backward(loss)
        else:
            loss = self._backward_in_parts(batch)
        if self.clip is not None:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=self.clip, error_if_nonfinite=False)
        self.optimizer.step()
        return loss.detach().reshape(1)

    def _scales_gradients(self) -> bool:
        precision = get_precision(self.fabric)
        return precision is not None and precision.precision == "16-mixed"

    def _loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return self.objective(*gather_batch(logits, batch)) if self.gathers else self.objective(logits, batch)

    def _backward_in_parts(self, batch: Batch) -> Tensor:
        """Compute the gradient of the whole batch with one part of it in memory at a time, exact for any loss.

        A first pass computes all logits without gradient. The loss gives its gradient with respect to them, and a
        second pass backpropagates it through each part with the same random numbers.
        """
        rows = torch.arange(max(1, len(batch)), device=batch.y.device)
        parts = rows.tensor_split(min(self.accumulate, len(rows)))
        states, logits = [], []
        with torch.no_grad():
            for part in parts:
                states.append(random_state())
                logits.append(self.model(self._lay_out(batch.x[part])))
        all_logits = torch.cat(logits).requires_grad_()
        loss = self._loss(drop_uncounted(all_logits, batch), batch)
        (gradient,) = torch.autograd.grad(loss, all_logits)
        for number, (part, state) in enumerate(zip(parts, states, strict=True), start=1):
            with self.fabric.no_backward_sync(self.model, enabled=number < len(parts)), replayed(state):
                self.fabric.backward((self.model(self._lay_out(batch.x[part])) * gradient[part]).sum())
        return loss

    def end_epoch(self) -> None:
        """Update multipliers and the learning rate."""
        if self.objective.updates_on_held_out:
            with self._averaged():
                self.validation_outputs = self._outputs_on_validation()
            self.objective.observe_held_out(*self.validation_outputs)
        self.objective.update()
        self.schedule.epoch_ended()

    def anneal(self, fraction: float) -> None:
        """Advance the objective's annealed steps."""
        for name in self.objective.annealed():
            self.objective.loss.get_submodule(name).advance(fraction)  # type: ignore[operator]

    def validate(self, monitors: Sequence[Monitor]) -> list[Validation]:
        """Compute the comparable loss in eval mode, the monitored values and the requirements."""
        assert self.validation is not None
        parts = self._split_for_stream(monitors)
        if parts is not None:
            check = None if self.labels_checked else self._check_labels
            with self._averaged():
                return [validate_stream(monitors, self.objective, parts, self.outputs_of(self.validation), check)]
        with self._averaged():
            logits, batch = self.validation_outputs or self._outputs_on_validation()
        self.validation_outputs = None  # they were computed with the present weights, at the end of the epoch
        loss = self.objective.loss.eval()
        with torch.no_grad():
            value = float(self.objective.comparable(logits, batch))
        loss.train()
        # Values that stop a run must be identical on all ranks.
        return [self.fabric.broadcast(validate(monitors, self.objective, value, logits, batch))]

    def _split_for_stream(self, monitors: Sequence[Monitor]) -> list[Any] | None:
        """Return the parts of the loss if sums over samples are enough to validate; None if all logits are needed."""
        needs_scores = any(monitor.needs_scores for monitor in monitors)
        needs_logits = needs_scores or self.objective.requirements() or self.objective.updates_on_held_out
        alone = self.fabric.world_size == 1 and self.objective.comparison == "forward"
        return split_loss(self.objective.loss) if alone and not needs_logits else None

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
        return join_outputs(self.outputs_of(data))

    def outputs_of(self, data: Source) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the logits of this rank's share of the samples, batch by batch, in eval mode and without gradient."""
        return compute_outputs(self.fabric, self.model, data, self._lay_out, self.largest_batch)

    def observe(self, results: Sequence[Validation]) -> None:
        """Pass the result to the objective, and the monitored value to a ReduceLROnPlateau."""
        self.objective.observe(torch.tensor(results[0].observed, dtype=torch.float64))
        self.schedule.observe(results[0].measured.value)

    def gradient_size(self) -> Tensor:
        """Return the sum over all parameters."""
        gradients = [weight.grad for weight in self.plain_model.parameters() if weight.grad is not None]
        sizes = [gradient.abs().sum(dtype=torch.float32) for gradient in gradients]
        return torch.stack(sizes).sum().reshape(1)

    def remember(self, members: Sequence[int]) -> None:
        """Copy the weights."""
        if not members:
            return
        with self._averaged():
            self.best = {name: tensor.detach().clone() for name, tensor in self.plain_model.state_dict().items()}
        if self.average is not None and self.fabric.world_size > 1 and self.averaged_buffers:
            # Every rank has averaged statistics of its own samples; those of rank 0 count, as in training.
            self.best |= self.fabric.broadcast({name: self.best[name] for name in self.averaged_buffers})

    @torch.no_grad()
    def outputs(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of each of these inputs, computed in parts."""
        model, device = self.plain_model.eval(), self.fabric.device
        with self._averaged():
            logits = [
                torch.cat([model(self._lay_out(part.to(device))) for part in torch.split(x, SAMPLES_AT_ONCE)])
                for x in inputs
            ]
        model.train()
        return logits

    def retire(self, members: Sequence[int]) -> None:
        """Stop the training of the model."""
        self.active = [member for member in self.active if member not in members]

    def recall(self) -> None:
        """Restore the copy of the best weights; without one, take the averaged weights, if there are any."""
        if self.best is not None:
            self.plain_model.load_state_dict(self.best)
        elif self.average is not None:
            self.average.apply()

    def finish(self) -> None:
        """Give the weights their usual layout again."""
        if self.channels_last:
            self.plain_model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def state(self) -> dict[str, Any]:
        """Return the weights, optimizer, scheduler, loss, scaler, average and best weights."""
        precision = get_precision(self.fabric)
        return {
            "model": self.plain_model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "objective": self.objective.loss.state_dict(),
            "precision": {} if precision is None else precision.state_dict(),
            "best": self.best,
            "active": self.active,
            **({} if self.average is None else {"average": self.average.state()}),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.plain_model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for weight, moments in self.optimizer.state.items():
            for name, moment in moments.items():
                if isinstance(moment, Tensor) and moment.shape == weight.shape:
                    moments[name] = match_layout(moment, weight)
        self.schedule.load_state_dict(state["scheduler"])
        self.objective.loss.load_state_dict(state["objective"])
        self.objective.loss.to(self.fabric.device)  # also buffers that the loss did not have yet
        precision = get_precision(self.fabric)
        if precision is not None:
            precision.load_state_dict(state["precision"])
        best, device = state["best"], self.fabric.device
        self.best = best and {name: tensor.to(device) for name, tensor in best.items()}
        self.active = state["active"]
        if self.average is not None:
            self.average.load(state["average"])
