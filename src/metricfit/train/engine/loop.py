"""The training loop: stages, epochs, batches, checkpoints and stopping, for one model or several side by side.

The loop is apart from the run because it knows nothing of data and results: it is given batches and returns rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from metricfit.constraints import AugmentedLagrangian
from metricfit.core.class_shares import targets_judged
from metricfit.core.validation import DivergedError
from metricfit.errors import InvalidValueError, NotFiniteError
from metricfit.train.callbacks import Plan
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.state import Position, RunState
from metricfit.train.data.batches import Batch
from metricfit.train.engine.launching import on_first_rank
from metricfit.train.engine.learner import Learner
from metricfit.train.engine.validation import Validation, has_requirements
from metricfit.train.result import Row
from metricfit.train.settings import RunSettings
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

    def run(self) -> list[Row]:
        """Train to the end, and return the rows of the history."""
        saved = None if self.folder is None else on_first_rank(self.learner.runtime, self.folder.load)
        if saved is not None:
            self.position, self.rows_as_json = saved.loop, saved.history
            self.rows = [row for epoch in self.rows_as_json for row in json.loads(epoch)]
        plan = Plan(
            tuple((stage.name or "", stage.epochs or 0) for stage in self.stages),
            self.members,
            self.steps,
            self.learner.outputs,
        )
        try:
            for callback in self.callbacks:
                callback.stops = False  # it may have stopped an earlier run
                callback.started(plan, self.position.step)
            with targets_judged():
                for number in range(self.position.stage, len(self.stages)):
                    if not self.stopped:
                        self._run_stage(number, saved)
                    saved = None
        except KeyboardInterrupt:  # the models get their best weights so far
            self.learner.recall()
            self.learner.finish()
            raise
        finally:
            with ExitStack() as stack:  # calls every callback, even if one of them fails
                for callback in reversed(self.callbacks):
                    stack.callback(callback.finished)
        return self.rows

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
            self._restore(saved)
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
        save_is_due = False
        for batch in self.batches(position.stage, position.epoch, position.batch):
            if save_is_due:  # only now is it certain that the epoch continues, so that its end does not save this step
                self._read_losses(unread, active)
                self._save()
            try:
                losses = self.learner.step(batch)
            except DivergedError as error:
                self._read_losses(unread, active)
                problem = f"could not be computed ({error})"
                raise self._not_finite(problem, position.step + 1, self.learner.computed) from error
            position.step, position.batch = position.step + 1, position.batch + 1
            unread.append(losses)
            if losses.device.type == "cpu" or len(unread) == READ_EVERY:
                self._read_losses(unread, active)
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
        for member in active:
            self.learner.members[member].end_epoch()
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

    def _not_finite(self, problem: str, step: int, member: int, *, in_validation: bool = False) -> NotFiniteError:
        """Return the error about a loss at an optimiser step, which may be earlier than the position."""
        position, several = self.position, self.members > 1
        place = f"stage {position.stage}, epoch {position.epoch}"
        batch = position.batch + step - position.step - 1
        if batch >= 0:
            place += f", batch {batch}" + (f" of {self.steps}" if self.steps is not None else "")
        loss = f"{'validation ' if in_validation else ''}loss{f' of member {member}' if several else ''}"
        causes = "NaN or infinity in the validation inputs, " if in_validation else ""
        kept = f" The checkpoints in {self.folder.path} were written before this." if self.folder else ""
        return NotFiniteError(
            f"the {loss} {problem} at step {step} ({place}). Likely causes: {causes}a learning rate that is too high "
            f"(this stage: {self.lr[position.stage][member]:g}), inputs with very large values, or fp16 overflow; "
            f"lower lr, pass steps=Steps(clip=1.0), standardise the inputs, or use bf16.{kept}"
        )

    def _end_epoch(self, stage: Stage, active: list[int]) -> None:
        """Validate, and add the rows of the epoch to the history."""
        position, learner = self.position, self.learner
        rows = [self._make_row(stage, member) for member in active]
        if self.validated:
            stopped = []
            for row, member, result in zip(rows, active, self._validate(stage, active), strict=True):
                standing, trained = position.standings[member], learner.members[member]
                standing.succeeded |= bool(result.meets)
                trained.observe(result.after_success() if standing.succeeded else result)
                if stage.watched.better(result.measured, standing.measured):
                    standing.improve(result.measured)
                    trained.remember()
                else:
                    standing.waited += 1
                    stopped += [member] if stage.patience is not None and standing.waited >= stage.patience else []
                row |= result.columns(stage, standing.measured.value)
            learner.retire(stopped)
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

    def _validate(self, stage: Stage, active: list[int]) -> list[Validation]:
        """Validate the active members, and refuse losses that are not finite."""
        results = []
        for member in active:
            try:
                result = self.learner.members[member].validate(stage.monitors)
                problem, cause = (None if math.isfinite(result.loss) else f"is {result.loss}"), None
            except DivergedError as error:
                problem, cause = f"could not be computed ({error})", error
            if problem is not None:
                raise self._not_finite(problem, self.position.step, member, in_validation=True) from cause
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
            self.position.standings[member].improve(result.measured)
            self.position.standings[member].succeeded = bool(result.meets)
            self.learner.members[member].remember()

    def _save(self) -> None:
        if self.folder is None:
            return
        random_states = randomness.capture()  # every rank must call it
        if self.writes:
            self.folder.save(RunState(self.position, self.rows_as_json, self.learner.state(), random_states))

    def _restore(self, saved: RunState) -> None:
        self.learner.load(saved.learner)
        randomness.restore(saved.random)
