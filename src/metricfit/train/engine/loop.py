"""The training loop: stages, epochs, batches, checkpoints and stopping, for one model or several side by side."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from metricfit.constraints import AugmentedLagrangian
from metricfit.core.class_shares import targets_judged
from metricfit.core.validation import DivergedError
from metricfit.errors import CheckpointError, InvalidValueError, MetricfitError, NotFiniteError, shorten
from metricfit.losses.gradient_watch import DEAD_GRADIENT, DeadGradientWarning
from metricfit.train.callbacks import Plan
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.state import DamagedError, Position, RunState
from metricfit.train.data.batches import Batch
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.validation import Validation, has_requirements
from metricfit.train.monitor import make_columns
from metricfit.train.result import Row
from metricfit.train.settings import RunSettings
from metricfit.train.stage import Stage

#: Steps on a GPU between two readings of the losses, each of which waits for the GPU.
READ_EVERY = 32
_LOW_LOSS = 0.05  # below it a vanished gradient is normal
_NO_BATCH = "the DataLoader gives no batches, so there is nothing to train on"
_NO_BATCH_AGAIN = (
    "the DataLoader gives no batches, although an earlier epoch had some; its IterableDataset must start again in "
    "every call of __iter__"
)


class Loop:
    """Drives a learner through its stages.

    Args:
        learner: The models with their optimisers.
        batches: ``batches(stage, epoch, first)`` yields, for each step of an epoch from number ``first`` on, one batch
            per active member. The epoch ends where it ends.
        settings: How to train.
        steps: The expected number of optimiser steps per epoch; None if it is not known.
        folder: The folder of checkpoints, if there is one.
        validated: Whether there is a validation set.
    """

    def __init__(
        self,
        learner: Learner,
        batches: Callable[[int, int, int], Iterator[Sequence[Batch]]],
        settings: RunSettings,
        steps: int | None,
        folder: RunFolder | None,
        *,
        validated: bool,
    ) -> None:
        self.learner, self.batches, self.validated = learner, batches, validated
        self.stages, self.lr, self.steps, self.folder = settings.stages, settings.rates, steps, folder
        runtime = learner.runtime
        self.writes, self.share = runtime.is_global_zero, runtime.broadcast
        self.checkpoint_every = None if settings.checkpoints is None else settings.checkpoints.every
        self.callbacks = settings.callbacks if self.writes else []
        self.members = len(learner.members)
        self.position = Position()
        self.rows: list[Row] = []
        self.stopped = False  # by a callback
        self.rows_as_json: list[str] = []  # one text per epoch, encoded once, because every checkpoint holds all rows
        self.resumed: str | None = None  # the name of the checkpoint whose state no step has been made with yet

    def run(self) -> list[Row]:
        """Train to the end, and return the rows of the history."""
        saved = None if self.folder is None else self.folder.load(self.writes, self.share)
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

    def _run_stages(self, saved: RunState | None) -> None:
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

    def _run_stage(self, number: int, saved: RunState | None) -> None:
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
            for member in self.learner.active:
                self.learner.members[member].anneal(position.epoch / max(1, stage.epochs - 1))
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
                losses = self._step(batch)
            except DivergedError as error:
                self._read_losses(unread, active)
                problem = f"could not be computed ({error})"
                raise self._not_finite(problem, position.step + 1, self.learner.computed) from error
            if watch.is_open:
                watch.look(self.learner.gradient_sizes())
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
        for member in active:
            self.learner.members[member].end_epoch()
        self._end_epoch(stage, active)

    def _step(self, batches: Sequence[Batch]) -> Tensor:
        """Make a step; one that fails right after a checkpoint was read is a checkpoint that does not fit."""
        if self.resumed is None:
            return self.learner.step(batches)
        try:
            losses = self.learner.step(batches)
        except (MetricfitError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # values of a checkpoint can fail anywhere in a step
            raise self._does_not_fit(error) from error
        self.resumed = None
        return losses

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
            for member, result in zip(active, self._mark_successes(results, active), strict=True):
                self.learner.members[member].observe(result)
            improved, stopped = self._compare(stage, active, results, rows)
            for member in improved:
                self.learner.members[member].remember()
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
        step, results = self.position.step, []
        for member in active:
            try:
                result = self.learner.members[member].validate(stage.monitors)
            except DivergedError as error:
                problem = f"could not be computed ({error})"
                raise self._not_finite(problem, step, member, in_validation=True) from error
            if not math.isfinite(result.loss):
                raise self._not_finite(f"is {result.loss}", step, member, in_validation=True)
            results.append(result)
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
            self.learner.members[member].remember()

    def _save(self) -> None:
        if self.folder is None:
            return
        random_states = randomness.capture()  # every rank must call it
        if self.writes:
            self.folder.save(RunState(self.position, self.rows_as_json, self.learner.state(), random_states))

    def _restore_learner(self, saved: RunState) -> None:
        try:
            self.learner.load(saved.learner)
            randomness.restore(saved.random)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # values of another kind can fail anywhere
            raise self._does_not_fit(error) from error
        self.resumed = f"step {self.position.step}"

    def _restore_position(self, saved: RunState) -> None:
        self.position, self.rows_as_json = saved.loop, saved.history
        self.rows = [row for epoch in self.rows_as_json for row in json.loads(epoch)]
        stage, members = self.position.stage, len(self.position.standings)
        if stage >= len(self.stages) or members != self.members:
            raise self._does_not_fit(DamagedError(f"it is of stage {stage} and {members} members"))
        if self.steps is not None and self.position.batch > self.steps:
            raise self._does_not_fit(DamagedError(f"it is of batch {self.position.batch} of {self.steps}"))

    def _does_not_fit(self, error: Exception) -> CheckpointError:
        assert self.folder is not None
        return CheckpointError(
            f"the checkpoint of {self.resumed or f'step {self.position.step}'} in {self.folder.path} does not fit this "
            f"model: {shorten(error)}. If it was copied from another run, delete it and run again with resume=True: "
            "the run then continues from the previous checkpoint"
        )


def describe_not_finite(
    problem: str,
    position: Position,
    step: int,
    steps_per_epoch: int | None,
    *,
    lr: float,
    member: int | None,
    in_validation: bool,
    checkpoints: Path | None,
) -> str:
    """Write the message about a loss that is not finite.

    Args:
        problem: The problem in a few words, such as "is nan".
        position: The position of the run.
        step: The optimiser step in which it happened, which may be earlier than the position.
        steps_per_epoch: The number of batches per epoch, if it is known.
        lr: The learning rate of the stage.
        member: The number of the member, if there are several.
        in_validation: Whether it is the loss of the validation set.
        checkpoints: The folder of checkpoints, if there is one.

    Returns:
        The message.
    """
    place = f"stage {position.stage}, epoch {position.epoch}"
    batch = position.batch + step - position.step - 1
    if batch >= 0:
        place += f", batch {batch}" + (f" of {steps_per_epoch}" if steps_per_epoch is not None else "")
    loss = f"{'validation ' if in_validation else ''}loss{'' if member is None else f' of member {member}'}"
    causes = "NaN or infinity in the validation inputs, " if in_validation else ""
    kept = "" if checkpoints is None else f" The checkpoints in {checkpoints} were written before this."
    return (
        f"the {loss} {problem} at step {step} ({place}). Likely causes: {causes}a learning rate that is too high (this "
        f"stage: {lr:g}), inputs with very large values, or fp16 overflow; lower lr, pass clip=1.0, standardise the "
        f"inputs, or use bf16.{kept}"
    )


def is_watched(epoch: int) -> bool:
    """Check whether the gradients of an epoch are watched: those of the 1st, 2nd, 4th, 8th epoch and so on."""
    return (epoch + 1) & epoch == 0


class GradientWatch:
    """Follows the largest gradient of each member in an epoch, until each has had one that is not dead.

    Attributes:
        is_open: Whether gradients are still measured.
        largest: The largest sizes so far; None if there are none, or if no member is in danger.
    """

    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open
        self.largest: Tensor | None = None

    def look(self, sizes: Tensor) -> None:
        """Note the sizes of the gradients of a step."""
        self.largest = sizes if self.largest is None else torch.maximum(self.largest, sizes)

    def read(self) -> None:
        """End the watch if all gradients are alive, which on a GPU means waiting for them."""
        if self.largest is not None and min(self.largest.tolist()) >= DEAD_GRADIENT:
            self.is_open, self.largest = False, None


def warn_about_dead_gradients(
    stage: str | None, position: Position, members: Sequence[int], sizes: Tensor, several: bool
) -> None:
    """Warn about members whose gradient vanished in every batch of an epoch although their loss is not low.

    A single batch is not enough: without positives in a batch, the gradient of F1 is 0.

    Args:
        stage: The name of the stage.
        position: The position of the run, at the end of the epoch.
        members: The members that were trained.
        sizes: The largest sum of absolute gradients of each of them.
        several: Whether to name the members.
    """
    for member, size in zip(members, sizes.tolist(), strict=True):
        loss = position.loss_sum[member] / position.batch
        if size < DEAD_GRADIENT and loss > _LOW_LOSS:
            name = f" of member {member}" if several else ""
            warnings.warn(
                f"{stage}, epoch {position.epoch}: the gradient{name} has died. The loss is {loss:.3g}, but the "
                f"gradients of all weights add up to at most {size:.1g} in every batch. Use a step that is "
                "flat nowhere, such as steps.Linear(), or train with cross-entropy first, recipes.two_stage; see "
                "'Start well'.",
                DeadGradientWarning,
                stacklevel=3,
            )
