"""The training loop: stages, epochs, batches, checkpoints and stopping, for one model or several side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricfit.constraints import AugmentedLagrangian
from metricfit.core.class_shares import targets_judged
from metricfit.core.validation import DivergedError
from metricfit.errors import CheckpointError, InvalidValueError, NotFiniteError, shorten
from metricfit.train.callbacks import Callback, Plan
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.saved_state import load_state
from metricfit.train.data.batches import Batch
from metricfit.train.engine.divergence import (
    GradientWatch,
    describe_not_finite,
    is_watched,
    warn_about_dead_gradients,
)
from metricfit.train.engine.epoch_validation import Validation, has_requirements
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.position import Position, Standing
from metricfit.train.history import Row
from metricfit.train.several_monitors import make_columns
from metricfit.train.stage import Stage

#: Steps on a GPU between two readings of the losses, each of which waits for the GPU.
READ_EVERY = 32
_NO_BATCH = "the DataLoader gives no batches, so there is nothing to train on"
_NO_BATCH_AGAIN = (
    "the DataLoader gives no batches, although an earlier epoch had some; its IterableDataset must start again in "
    "every call of __iter__"
)


class Loop:
    """Drives a learner through its stages.

    Args:
        learner: The models with their optimiser.
        stages: The stages, with all settings filled in.
        batches: ``batches(stage, epoch, first)`` yields the batches of an epoch for the active members, starting with
            the batch number ``first``. The epoch ends where it ends.
        steps: The expected number of batches per epoch, for callbacks and messages; None if it is not known.
        lr: For each stage, the members' learning rates. The default is the stages' own rates, for one member.
        validated: Whether there is a validation set.
        folder: The folder of checkpoints, if there is one.
        writes: Whether this process writes the checkpoints.
        checkpoint_every: Optimiser steps between checkpoints; None for one per epoch.
        callbacks: Called on rank 0.
        share: Returns rank 0's value on all ranks.
    """

    def __init__(
        self,
        learner: Learner,
        stages: Sequence[Stage],
        batches: Callable[[int, int, int], Iterator[Batch]],
        steps: int | None,
        *,
        lr: Sequence[Sequence[float]] | None = None,
        validated: bool,
        folder: RunFolder | None = None,
        writes: bool = True,
        checkpoint_every: int | None = None,
        callbacks: Sequence[Callback] = (),
        share: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.learner, self.stages, self.batches, self.steps = learner, stages, batches, steps
        self.lr = [[stage.lr or 0.0] for stage in stages] if lr is None else lr
        self.validated, self.folder, self.writes = validated, folder, writes
        self.checkpoint_every, self.callbacks, self.share = checkpoint_every, callbacks, share
        self.members = len(self.lr[0])
        self.position = Position()
        self.rows: list[Row] = []
        self.stopped = False  # by a callback
        self.rows_as_json: list[str] = []  # one text per epoch, encoded once, because every checkpoint holds all rows

    def run(self) -> list[Row]:
        """Train to the end, and return the rows of the history."""
        saved = None if self.folder is None else load_state(self.folder, self.writes, self.share)
        if saved is not None:
            self._restore_position(saved)
        plan = Plan(tuple((stage.name or "", stage.epochs or 0) for stage in self.stages), self.members, self.steps)
        try:
            for callback in self.callbacks:
                callback.stops = False  # it may have stopped an earlier run
                callback.started(plan, self.position.step)
            with targets_judged():
                self._run_stages(saved)
        finally:
            with ExitStack() as stack:  # calls every callback, even if one of them fails
                for callback in reversed(self.callbacks):
                    stack.callback(callback.finished)
        return self.rows

    def _run_stages(self, saved: dict[str, Any] | None) -> None:
        """Run the remaining stages; if the user interrupts one, its best weights so far are restored."""
        try:
            for number in range(self.position.stage, len(self.stages)):
                if self.stopped:
                    break
                self._run_stage(number, saved)
                saved = None
        except KeyboardInterrupt:
            self.learner.recall()
            self.learner.finish()
            raise

    def _run_stage(self, number: int, saved: dict[str, Any] | None) -> None:
        stage, position = self.stages[number], self.position
        assert stage.epochs is not None
        steps = None if self.steps is None else self.steps * stage.epochs
        self.learner.begin(stage, self.lr[number], steps)
        if saved is None:
            position.begin_stage(number, self.members)
            if number and self.validated:
                self._measure_start(stage)
            self._save()
        else:
            self._restore_learner(saved)
        while position.epoch < stage.epochs and self.learner.active and not self.stopped:
            self.learner.anneal(position.epoch / max(1, stage.epochs - 1))
            self._run_epoch(stage)
            position.next_epoch()
            if self.checkpoint_every is None or position.step % self.checkpoint_every == 0:
                self._save()
        self.learner.recall()

    def _run_epoch(self, stage: Stage) -> None:
        position, active = self.position, list(self.learner.active)
        unread: list[Tensor] = []
        watch = GradientWatch(self.writes and is_watched(position.epoch))
        save_is_due = False
        for batch in self.batches(position.stage, position.epoch, position.batch):
            if save_is_due:  # only now is it certain that the epoch continues, so that its end does not save this step
                self._read_losses(unread, active)
                self._save()
            try:
                losses = self.learner.step(batch)
            except DivergedError as error:
                self._read_losses(unread, active)
                raise self._not_finite(f"could not be computed ({error})", position.step + 1) from error
            if watch.is_open:
                watch.look(self.learner.gradient_size())
            position.step, position.batch = position.step + 1, position.batch + 1
            unread.append(losses)
            if losses.device.type == "cpu" or len(unread) == READ_EVERY:
                self._read_losses(unread, active)
                watch.read()
            if self.folder is not None and self.writes:
                self.folder.count_step()
            for callback in self.callbacks:
                callback.stepped(position.step, losses)
            save_is_due = bool(self.checkpoint_every) and position.step % (self.checkpoint_every or 1) == 0
        self._read_losses(unread, active)
        if not position.batch:
            raise InvalidValueError(
                f"epoch {position.epoch} of {stage.name}: {_NO_BATCH_AGAIN}" if position.step else _NO_BATCH
            )
        if watch.largest is not None:
            warn_about_dead_gradients(stage.name, position, active, watch.largest, self.members > 1)
        self.learner.end_epoch()
        self._end_epoch(stage, active)

    def _read_losses(self, unread: list[Tensor], active: list[int]) -> None:
        """Add up and check the losses of the last steps, which on a GPU means waiting for them."""
        first = self.position.step - len(unread) + 1
        rows = torch.stack(unread).tolist() if len(unread) > 1 else [losses.tolist() for losses in unread]
        for offset, values in enumerate(rows):
            for member, value in zip(active, values, strict=True):
                if not math.isfinite(value):
                    raise self._not_finite(f"is {value}", first + offset, member)
                self.position.loss_sum[member] += value
        unread.clear()

    def _not_finite(self, problem: str, step: int, member: int = 0, *, in_validation: bool = False) -> NotFiniteError:
        message = describe_not_finite(
            problem,
            self.position,
            step,
            self.steps,
            lr=self.lr[self.position.stage][member],
            member=member if self.members > 1 else None,
            in_validation=in_validation,
            checkpoints=None if self.folder is None else self.folder.path,
        )
        return NotFiniteError(message)

    def _end_epoch(self, stage: Stage, active: list[int]) -> None:
        """Validate, and add the rows of the epoch to the history."""
        rows = [self._make_row(stage, member) for member in active]
        if self.validated:
            results = self._validate(stage, active)
            self.learner.observe(self._mark_successes(results, active))
            improved, stopped = self._compare(stage, active, results, rows)
            self.learner.remember(improved)
            for callback in self.callbacks:
                callback.validated(active, partial(self.learner.outputs, active))
            if improved:
                for callback in self.callbacks:
                    callback.improved(improved, partial(self.learner.outputs, improved))
            self.learner.retire(stopped)
        self.rows += rows
        for callback in self.callbacks:
            callback.epoch_ended(rows)
        self.stopped = self.share(any(callback.stops for callback in self.callbacks))
        self.rows_as_json.append(json.dumps(rows))

    def _make_row(self, stage: Stage, member: int) -> Row:
        position = self.position
        row: Row = {"stage": stage.name, "epoch": position.epoch, "step": position.step}
        row |= {"member": member} if self.members > 1 else {}
        return row | {"train_loss": position.loss_sum[member] / position.batch} | self.learner.notes(member)

    def _compare(
        self, stage: Stage, active: list[int], results: list[Validation], rows: list[Row]
    ) -> tuple[list[int], list[int]]:
        """Compare the results with the best so far; return the members that improved, and those that stop.

        The results are added to the members' rows.
        """
        monitor, with_requirements = stage.watched, has_requirements(stage)
        improved, stopped = [], []
        for row, member, result in zip(rows, active, results, strict=True):
            standing, measured = self.position.standings[member], result.measured
            if monitor.better(measured, standing.measured):
                standing.improve(measured, self.position.epoch)
                improved.append(member)
            else:
                standing.waited += 1
                if stage.patience is not None and standing.waited >= stage.patience:
                    stopped.append(member)
            row |= {"validation_loss": result.loss, "monitor": monitor.name, "value": measured.value}
            row |= {"threshold": measured.threshold, "best": standing.best}
            if with_requirements:
                row |= {"feasible": measured.feasible, "violation": measured.violation}
            if isinstance(stage.monitor, (list, tuple)):
                row |= make_columns(stage.monitors, (measured, *result.others))
        return improved, stopped

    def _mark_successes(self, results: list[Validation], active: list[int]) -> list[Validation]:
        """Note which members have met their requirements, and return the results as the objectives observe them."""
        observed = []
        for result, member in zip(results, active, strict=True):
            standing = self.position.standings[member]
            standing.succeeded |= bool(result.meets)
            observed.append(result.after_success() if standing.succeeded else result)
        return observed

    def _validate(self, stage: Stage, active: list[int]) -> list[Validation]:
        """Validate the active members, and refuse losses that are not finite."""
        step = self.position.step
        try:
            results = self.learner.validate(stage.monitors)
        except DivergedError as error:
            raise self._not_finite(f"could not be computed ({error})", step, in_validation=True) from error
        for member, result in zip(active, results, strict=True):
            if not math.isfinite(result.loss):
                raise self._not_finite(f"is {result.loss}", step, member, in_validation=True)
        return results

    def _measure_start(self, stage: Stage) -> None:
        """Count the initial weights of a stage as its first best, so that the stage never returns worse ones.

        This is not done with constraints that cannot be measured on the validation set, such as a RankingConstraint:
        the initial weights may have a better value but violate them.
        """
        constrained = any(isinstance(module, AugmentedLagrangian) for module in stage.objective.modules())
        if constrained and not has_requirements(stage):
            return
        active = list(self.learner.active)
        for member, result in zip(active, self._validate(stage, active), strict=True):
            self.position.standings[member].improve(result.measured, epoch=-1)
            self.position.standings[member].succeeded = bool(result.meets)
        self.learner.remember(active)

    def _save(self) -> None:
        if self.folder is None:
            return
        random_states = randomness.capture()  # every rank must call it
        if self.writes:
            progress = {"loop": asdict(self.position), "history": self.rows_as_json}
            state = {**progress, "learner": self.learner.state(), "random": random_states}
            self.folder.save(self.position.step, state)

    def _restore_learner(self, saved: dict[str, Any]) -> None:
        try:
            self.learner.load(saved["learner"])
            randomness.restore(saved["random"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            assert self.folder is not None
            raise CheckpointError(
                f"the checkpoint of step {self.position.step} in {self.folder.path} does not fit this model: "
                f"{shorten(error)}. If it was copied from another run, delete it and run again with resume=True: the "
                "run then continues from the previous checkpoint"
            ) from error

    def _restore_position(self, saved: dict[str, Any]) -> None:
        standings = [Standing(**fields) for fields in saved["loop"]["standings"]]
        self.position = Position(**{**saved["loop"], "standings": standings})
        self.rows_as_json = saved["history"]
        self.rows = [row for epoch in self.rows_as_json for row in json.loads(epoch)]
