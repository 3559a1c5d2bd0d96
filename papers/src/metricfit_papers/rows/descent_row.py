"""Rows of the kind "descent": a fixed number of steps on all training rows at once, scored with the last weights."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.rnn import pad_sequence

from metricfit.errors import InvalidValueError
from metricfit.losses import MetricLoss
from metricfit.losses.pointwise import PointwiseLoss
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.graphs import StepGraphs, make_capturable
from metricfit_papers.models.construction import build_network
from metricfit_papers.rows.job import RowJob, TrialResult
from metricfit_papers.rows.trial_fitting import build_optimizer, compute_logits, group_by_width
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import build_object
from metricfit_papers.specs.table_spec import TrainingSpec


def train_by_descent(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Train all trials as one stack, or as several if their inputs differ in width.

    `fit_population` could do this, but in a step on all rows it copies the rows, evaluates them a second time and keeps
    the best weights. Here the rows are copied once, and the last weights are scored, as in papers without validation
    rows.
    """
    assert job.training is not None
    results: dict[int, TrialResult] = {}
    for group in group_by_width(trials):
        began = time.perf_counter()
        stack = Stack(job.training, job.loss, group, job.device)
        stack.descend(job.training.epochs)
        seconds = (time.perf_counter() - began) / job.training.epochs / len(group)
        for trial, model in zip(group, stack.models(), strict=True):
            values = job.values(
                trial, compute_logits(model, trial.test_rows()[0]), compute_logits(model, trial.validation_rows()[0])
            )
            results[trial.number] = TrialResult(values, job.training.epochs, seconds)
    return [results[trial.number] for trial in trials]


class Stack:
    """The networks of several trials, each with its own training rows; ``step`` moves all of them once."""

    def __init__(self, training: TrainingSpec, loss: str | None, trials: Sequence[Trial], device: str | None) -> None:
        assert loss is not None
        target_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        width = trials[0].x.shape[1]
        self.members = [build_network(training.network, width, trial.number).to(target_device) for trial in trials]
        self.x = pad_sequence([trial.x[trial.train] for trial in trials], batch_first=True).to(target_device)
        self.y = pad_sequence([trial.y[trial.train] for trial in trials], batch_first=True).to(target_device)
        lengths = torch.tensor([len(trial.train) for trial in trials])
        self.real = (torch.arange(self.x.shape[1]) < lengths.unsqueeze(1)).to(target_device, self.x.dtype)
        weights, self.buffers = stack_module_state(self.members)
        self.weights = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
        self.optimizer = build_optimizer(training.optimizer, list(self.weights.values()), training.lr)
        self.skeleton = copy.deepcopy(self.members[0]).to("meta").train()
        self.loss = stacked_loss(loss, self.y, self.real)

    def descend(self, steps: int) -> None:
        """Take this many steps; on a GPU they are replayed from a CUDA graph."""
        weights = list(self.weights.values())
        graphs = StepGraphs(self.step) if self.x.is_cuda else None
        if graphs is not None:
            make_capturable(self.optimizer)
        for _ in range(steps):
            if graphs is None:
                self.step()
            else:
                graphs((), weights)

    def step(self) -> Tensor:
        """Take one step of the optimiser, and return the sum of the losses."""
        weights = list(self.weights.values())
        logits = vmap(self._forward, randomness="different")(self.weights, self.buffers, self.x)
        loss = self.loss(logits.squeeze(-1))
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        self.optimizer.step()
        return loss.detach()

    def _forward(self, weights: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.skeleton, {**weights, **buffers}, (x,))
        return logits

    @torch.no_grad()
    def models(self) -> list[nn.Module]:
        """Return the networks with their current weights."""
        for number, model in enumerate(self.members):
            for name, parameter in model.named_parameters():
                parameter.copy_(self.weights[name][number])
        return self.members


def stacked_loss(text: str, y: Tensor, real: Tensor) -> Callable[[Tensor], Tensor]:
    """Make a function of logits ``(members, samples)`` that returns the sum of the members' losses.

    Only real samples count, not those that pad a member. A MetricLoss sees each member as an image; a mean over samples
    gives the samples of each member the same total weight. ``vmap`` over the members gives the same values and takes
    three times as long on small sets.
    """
    loss: nn.Module = build_object(text, vocabulary.LOSSES)
    members = len(y)
    if isinstance(loss, MetricLoss):
        of_images = build_object(text, vocabulary.LOSSES, per_image=True, validate=False).to(y.device)
        target, weight = y.unsqueeze(1), real.unsqueeze(1)
        return lambda logits: members * of_images(logits.unsqueeze(1), target, weight=weight)
    if isinstance(loss, PointwiseLoss):
        target, weight = y.flatten(), (real / real.sum(1, keepdim=True)).flatten()
        return lambda logits: members * loss(logits.flatten(), target, weight=weight)
    raise InvalidValueError(f"rows of kind descent take a MetricLoss or a mean over samples, not {text}")
