"""The steps that ``fit`` and ``fit_population`` have in common, after data and settings are checked.

A run takes its folder, sets the first biases, trains, measures the requirements, and writes and returns its results.
The two kinds of runs differ in their learner and in their batches: see single_run and population_run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from metricfit.train.callbacks import Callback
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.data.batches import Batch
from metricfit.train.data.order import derive_seed
from metricfit.train.engine.epoch_validation import RequirementResult, warn_about_unmet
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.loop import Loop
from metricfit.train.engine.more_epochs import check_more_epochs
from metricfit.train.engine.position import Standing
from metricfit.train.history import History, Row
from metricfit.train.result import FitResult
from metricfit.train.stage import Stage


@dataclass(frozen=True)
class Processes:
    """The processes that train together; by default this process alone.

    Attributes:
        writes: Whether this process writes files and warnings, and calls callbacks.
        share: Returns rank 0's value on all ranks.
        wait: Returns when all ranks have called it.
    """

    writes: bool = True
    share: Callable[[Any], Any] = lambda value: value
    wait: Callable[[], None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What every run needs besides its models and data.

    Attributes:
        stages: The stages, with all settings filled in.
        lr: For each stage, the learning rate of each member.
        steps: The expected number of optimiser steps per epoch, if it is known.
        noise: Numbers that seed dropout and random augmentation.
        device: The device to train on.
        folder: The folder of checkpoints, if there is one.
        resume: Whether to continue the run in the folder.
        checkpoint_every: Optimiser steps between checkpoints; None for one per epoch.
        start_at_prior: As for ``fit``.
        callbacks: Called by the process that writes.
        ema: The decay of the average of the weights, if there is one.
        started: The time at which the call began.
    """

    stages: Sequence[Stage]
    lr: Sequence[Sequence[float]]
    steps: int | None
    noise: tuple[int | str, ...]
    device: torch.device
    folder: RunFolder | None
    resume: bool
    checkpoint_every: int | None
    start_at_prior: bool | None
    callbacks: Sequence[Callback]
    ema: float | None
    started: float


class TrainingRun(ABC):
    """One call of ``fit`` or ``fit_population``, from checked data to results.

    Args:
        models: The models, which are trained in place.
        settings: How to train them.
        validated: Whether there is a validation set.
        processes: The processes that train together.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        settings: RunSettings,
        *,
        validated: bool,
        processes: Processes | None = None,
    ) -> None:
        self.models, self.settings, self.validated = models, settings, validated
        self.processes = Processes() if processes is None else processes

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Describe the run, so that a resumed run can be compared with it."""

    @abstractmethod
    def set_priors(self) -> None:
        """Set the last biases to the share of positives, where this is wanted."""

    @abstractmethod
    def place(self) -> Learner:
        """Move the data to the device, and make what learns there."""

    @abstractmethod
    def batches(self, stage: int, epoch: int, first: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, starting with the batch number ``first``."""

    @abstractmethod
    def measure_requirements(self, standings: Sequence[Standing]) -> list[tuple[RequirementResult, ...]]:
        """Measure the requirements of the last stage for each model, after training."""

    @abstractmethod
    def objectives(self) -> list[nn.Module]:
        """Return each model's objective of the last stage, with its multipliers and other state."""

    @abstractmethod
    def histories(self, rows: Sequence[Row]) -> list[History]:
        """Divide the rows of the loop's history among the models."""

    @abstractmethod
    def pack(self, results: Sequence[FitResult]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the results as the folder stores them, and the content of the report."""

    @abstractmethod
    def unpack(self, saved: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the state of each model's result from what the folder stores."""

    def training_context(self) -> AbstractContextManager[None]:
        """Return the context in which the loop runs."""
        return nullcontext()

    def results(self) -> list[FitResult]:
        """Train, or load the results of a finished run, and warn about requirements that do not hold."""
        with self.settings.folder or nullcontext():
            saved = self._begin()
            if saved is not None:
                results = self._load(saved)
            else:
                self.set_priors()
                results = self._train()
                self._save(results)
            if self.processes.writes:
                warn_about_unmet([result.requirements for result in results])
            return results

    def _begin(self) -> dict[str, Any] | None:
        """Take the folder, and return its result if the run there is finished.

        Only rank 0 reads the folder, because other machines may not see it, and shares the result.
        """
        folder = self.settings.folder
        if folder is None:
            return None
        spec = self.spec()
        refusal: Exception | None = None
        saved: dict[str, Any] | None = None
        if self.processes.writes:
            try:
                folder.begin(spec, self.settings.resume, self._check_more_epochs)
                saved = folder.result() if folder.finished else None
            except (OSError, ValueError) as error:
                refusal = error
        refusal, saved = self.processes.share((refusal, saved))
        if refusal is not None:
            raise refusal
        return saved

    def _check_more_epochs(self, before: int) -> None:
        check_more_epochs(self.models[0], self.settings.stages[-1], before, self.settings.steps)

    def _load(self, saved: dict[str, Any]) -> list[FitResult]:
        objective = self.settings.stages[-1].objective
        return [
            FitResult.from_state(state, model.to(self.settings.device), objective)
            for model, state in zip(self.models, self.unpack(saved), strict=True)
        ]

    def _train(self) -> list[FitResult]:
        settings = self.settings
        learner = self.place()
        loop = Loop(
            learner,
            settings.stages,
            self.batches,
            settings.steps,
            lr=settings.lr,
            validated=self.validated,
            folder=settings.folder,
            writes=self.processes.writes,
            checkpoint_every=settings.checkpoint_every,
            callbacks=settings.callbacks if self.processes.writes else [],
            share=self.processes.share,
        )
        with randomness.seeded_run(derive_seed(*settings.noise), settings.device), self.training_context():
            rows = loop.run()
            learner.finish()
            requirements = self.measure_requirements(loop.position.standings)
        seconds = time.perf_counter() - settings.started
        parts = zip(
            self.models, self.histories(rows), loop.position.standings, self.objectives(), requirements, strict=True
        )
        return [
            FitResult(model.eval(), history, standing.best, standing.threshold, seconds, objective, measured)
            for model, history, standing, objective, measured in parts
        ]

    def _save(self, results: Sequence[FitResult]) -> None:
        folder = self.settings.folder
        if folder is not None and self.processes.writes:
            state, report = self.pack(results)
            folder.finish(state, {**report, "steps_made": folder.steps_made})
        self.processes.wait()
