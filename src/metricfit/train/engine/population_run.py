"""A run of several models of one architecture, trained as one computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.train import label_checks
from metricfit.train.checkpoint.provenance import fingerprint
from metricfit.train.checkpoint.run_spec import describe_run
from metricfit.train.data.batches import SAMPLES_AT_ONCE, Batch
from metricfit.train.data.class_weight import ClassWeight, compute_class_weights, look_up_weights
from metricfit.train.data.order import Order
from metricfit.train.data.samples import InMemory
from metricfit.train.engine.driver import RunSettings, TrainingRun
from metricfit.train.engine.epoch_validation import RequirementResult, has_requirements, measure_requirements
from metricfit.train.engine.population_learner import Population
from metricfit.train.engine.position import Standing
from metricfit.train.engine.stacked_tensors import StackedBatch, pad_positions
from metricfit.train.history import History, Row
from metricfit.train.prior import start_at_prior
from metricfit.train.result import FitResult, make_report


@dataclass(frozen=True)
class PopulationData:
    """The data of all members.

    Attributes:
        samples: All samples, of training and validation.
        labels: Their labels on the CPU; ignored labels are -1.
        train: For each member, the numbers of its training samples.
        validation: For each member, the numbers of its validation samples; None without validation.
        priors: For each member, its share of positives; None if the models have several outputs.
    """

    samples: InMemory
    labels: Tensor
    train: list[Tensor]
    validation: list[Tensor] | None
    priors: list[float] | None


class PopulationRun(TrainingRun):
    """A run of several models.

    Args:
        models: The members.
        data: Their data.
        settings: How to train them.
        order: The order of samples.
        seeds: The seed of each member's order.
        steps: The number of optimiser steps per epoch.
        rates: The learning rate of each member.
        class_weight: The weights of classes, if there are any.
        clip: The maximum norm of a member's gradient.
        precision: None, or "bf16-mixed".
        cuda_graphs: Whether steps on a GPU are captured and replayed.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        data: PopulationData,
        settings: RunSettings,
        *,
        order: Order,
        seeds: list[int],
        steps: int,
        rates: list[float],
        class_weight: ClassWeight | None,
        clip: float | None,
        precision: str | None,
        cuda_graphs: bool,
    ) -> None:
        super().__init__(models, settings, validated=data.validation is not None)
        self.data, self.order, self.seeds, self.steps, self.rates = data, order, seeds, steps, rates
        self.class_weight, self.clip, self.precision, self.cuda_graphs = class_weight, clip, precision, cuda_graphs

    def spec(self) -> dict[str, Any]:
        """Describe the run, so that a resumed run can be compared with it."""
        splits = zip(self.data.train, self.data.validation or self.data.train, strict=True)
        settings: dict[str, Any] = {
            "seeds": self.seeds,
            "rates": self.rates,
            "splits": [fingerprint(torch.cat(split)) for split in splits],
            "class_weight": self.class_weight,
            "clip": self.clip,
            "checkpoint_every": self.settings.checkpoint_every,
            "start_at_prior": self.settings.start_at_prior,
        }
        settings |= {} if self.precision is None else {"precision": self.precision}
        settings |= {} if self.settings.ema is None else {"ema": self.settings.ema}
        return describe_run(self.models[0], self.settings.stages, self.data.samples, None, self.order, **settings)

    def set_priors(self) -> None:
        """Set each member's last bias to its share of positives, if this is wanted."""
        start, inputs = self.settings.start_at_prior, self.data.samples.x[:2]
        if self.data.priors is None or start is False:
            return
        for model, prior in zip(self.models, self.data.priors, strict=True):
            start_at_prior(
                model,
                prior,
                strict=start is True,
                fresh_only=start is None,
                logits=lambda model=model: label_checks.sample_logits(model, inputs),  # type: ignore[misc]
            )

    def place(self) -> Population:
        """Move the samples to the device, and stack the members there."""
        device, validation = self.settings.device, self.data.validation
        self.samples = self.data.samples.to(device)
        self.class_weights = self._compute_class_weights()
        self.learner = Population(
            self.models,
            self.samples,
            None if validation is None else [numbers.to(device) for numbers in validation],
            clip=self.clip,
            precision=self.precision,
            cuda_graphs=self.cuda_graphs,
            ema=self.settings.ema,
        )
        return self.learner

    def _compute_class_weights(self) -> Tensor | None:
        """Return the weight of each class for each member, whose shares of classes differ."""
        if self.class_weight is None:
            return None
        labels = self.data.labels
        classes = int(labels.max()) + 1
        weights = [compute_class_weights(labels[numbers], self.class_weight, classes) for numbers in self.data.train]
        self.sample_classes = labels.long().reshape(-1).to(self.settings.device)
        return torch.stack(weights).to(self.settings.device)

    def batches(self, stage: int, epoch: int, first: int) -> Iterator[Batch]:
        """Yield batches with a leading axis of active members; ``index`` counts each member's own samples."""
        active, device, train = list(self.learner.active), self.settings.device, self.data.train
        member_batches = [
            self.order.batches(self.data.labels[train[member]], self.seeds[member], stage, epoch, self.steps)
            for member in active
        ]
        # All numbers of the epoch are copied at once: on a GPU, one copy instead of one per step.
        parts = [batches[step] for step in range(first, self.steps) for batches in member_batches]
        positions, lengths = pad_positions(parts)
        numbers = torch.stack(
            [train[active[part % len(active)]][position] for part, position in enumerate(positions)]
        ).to(device)
        positions = positions.to(device)
        for part in range(0, len(parts), len(active)):
            sizes = lengths[part : part + len(active)]
            rows = slice(part, part + len(active)), slice(max(sizes))
            batch = self.samples.take(numbers[rows])
            weight = batch.weight
            if self.class_weights is not None:
                by_class = look_up_weights(self.class_weights[active], self.sample_classes[numbers[rows]])
                weight = by_class if weight is None else by_class * weight
            yield StackedBatch(batch.x, batch.y, weight, positions[rows], batch.group, sizes)

    @torch.no_grad()
    def measure_requirements(self, standings: Sequence[Standing]) -> list[tuple[RequirementResult, ...]]:
        """Measure them for each member, on its validation samples, or else on its training samples."""
        stage, validation, samples = self.settings.stages[-1], self.data.validation, self.samples
        if not has_requirements(stage):
            return [()] * len(self.models)
        rows = "train" if validation is None else "validation"
        results = []
        for model, numbers, standing in zip(self.models, validation or self.data.train, standings, strict=True):
            device = next(model.parameters()).device
            batch = samples.take(numbers.to(samples.y.device))
            outputs = [model.eval()(part.to(device)) for part in torch.split(batch.x, SAMPLES_AT_ONCE)]
            logits = torch.cat(outputs).to(samples.y.device)
            results.append(measure_requirements(stage, standing.threshold, logits, batch, rows))
        return results

    def objectives(self) -> list[nn.Module]:
        """Return each member's objective of the last stage."""
        return self.learner.objectives()

    def histories(self, rows: Sequence[Row]) -> list[History]:
        """Divide the rows among the members; a member's steps end when it stops."""
        histories: list[list[Row]] = [[] for _ in self.models]
        for row in rows:
            history = histories[row.get("member", 0)]
            columns = {name: value for name, value in row.items() if name != "member"}
            history.append({**columns, "step": self.steps * (len(history) + 1)})
        return [History(history) for history in histories]

    def pack(self, results: Sequence[FitResult]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the results of all members and their report."""
        state = {"members": [result.state() for result in results]}
        return state, {"members": len(results), **make_report(list(results))}

    def unpack(self, saved: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the state of each member."""
        states: list[dict[str, Any]] = saved["members"]
        return states
