"""The training loop: stages, epochs, batches, checkpoints and stopping, for one model or many side by side."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricfit.constraints import AugmentedLagrangian
from metricfit.core.class_shares import targets_judged
from metricfit.core.validation import DivergedError
from metricfit.errors import CheckpointError, InvalidValueError, NotFiniteError, shorten
from metricfit.losses.gradient_watch import DEAD_GRADIENT, DeadGradientWarning
from metricfit.train.callbacks import Callback, Plan
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.saved_state import load_state
from metricfit.train.data.batches import Batch
from metricfit.train.engine.epoch_validation import Validation, has_requirements
from metricfit.train.engine.learner import Learner
from metricfit.train.history import Row
from metricfit.train.monitor import Measured, Monitor
from metricfit.train.stage import Stage

LOOK_EVERY = 32
_NO_BATCH = "the DataLoader gives no batches, so there is nothing to train on"
_NO_BATCH_AGAIN = (
    "the DataLoader gives no batches, although an earlier epoch had some; its IterableDataset must start anew in every "
    "call of __iter__"
)


@dataclass
class Standing:
    """The best measurement of a member in a stage so far, and for how many epochs nothing was better."""

    best: float = math.nan
    best_epoch: int = -1
    threshold: float = math.nan
    waited: int = 0
    feasible: bool = True
    violation: float = 0.0
    succeeded: bool = False  # whether an epoch has met the objective's requirements

    @property
    def measured(self) -> Measured:
        """The best measurement; its value is NaN before the first."""
        return Measured(self.best, self.threshold, self.feasible, self.violation)

    def improve(self, measured: Measured, epoch: int) -> None:
        """Make this measurement the best."""
        self.best, self.threshold = measured.value, measured.threshold
        self.feasible, self.violation = measured.feasible, measured.violation
        self.best_epoch, self.waited = epoch, 0


@dataclass
class Position:
    """Where a run is: all that the loop itself needs to go on."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: list[float] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)


class Loop:
    """Drives a learner through its stages.

    Args:
        learner: what learns.
        stages: with nothing left open.
        batches: the batches of an epoch from one on, for the active members: ``batches(stage, epoch, first)``.
        steps: the expected number of batches per epoch, for callbacks and messages; None if it is not known. An epoch
            ends where ``batches`` ends.
        lr: for each stage the members' learning rates; by default the stages' own, of one member.
        validated: whether there is a validation set.
        folder: where checkpoints go, if anywhere; ``writes`` is whether this process writes them.
        checkpoint_every: in steps; None is every epoch.
        callbacks: called on rank 0.
        share: gives rank 0's value to all ranks.
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
        share: Callable[[Any], Any] = lambda given: given,
    ) -> None:
        self.learner, self.stages, self.batches, self.steps = learner, stages, batches, steps
        self.lr = [[stage.lr or 0.0] for stage in stages] if lr is None else lr
        self.validated, self.folder, self.writes = validated, folder, writes
        self.checkpoint_every, self.callbacks, self.share = checkpoint_every, callbacks, share
        self.members = len(self.lr[0])
        self.at = Position()
        self.rows: list[Row] = []
        self.rows_as_json: list[str] = []  # an epoch's each, since every checkpoint holds all that were

    def run(self) -> list[Row]:
        """Train to the end; the history."""
        saved = None if self.folder is None else load_state(self.folder, self.writes, self.share)
        if saved is not None:
            self._restore(saved)
        plan = Plan(tuple((stage.name or "", stage.epochs or 0) for stage in self.stages), self.members, self.steps)
        try:
            for callback in self.callbacks:
                callback.started(plan, self.at.step)
            with targets_judged():
                self._stages(saved)
        finally:
            with ExitStack() as every:  # all hear of the end, though one fails
                for callback in reversed(self.callbacks):
                    every.callback(callback.finished)
        return self.rows

    def _stages(self, saved: dict[str, Any] | None) -> None:
        """All that are left; of one that the user interrupts, the best so far."""
        try:
            for number in range(self.at.stage, len(self.stages)):
                self._stage(number, saved)
                saved = None
        except KeyboardInterrupt:
            self.learner.recall()
            raise

    def _stage(self, number: int, saved: dict[str, Any] | None) -> None:
        stage, at = self.stages[number], self.at
        assert stage.epochs is not None
        steps = None if self.steps is None else self.steps * stage.epochs
        self.learner.begin(stage, self.lr[number], steps)
        if saved is None:
            at.stage, at.epoch, at.batch = number, 0, 0
            at.standings = [Standing() for _ in range(self.members)]
            at.loss_sum = [0.0] * self.members
            if number and self.validated:
                self._measure_start(stage)
            self._save()
        else:
            self._continue_from(saved)
        while at.epoch < stage.epochs and self.learner.active:
            self.learner.anneal(at.epoch / max(1, stage.epochs - 1))
            self._epoch(stage)
            at.epoch, at.batch, at.loss_sum = at.epoch + 1, 0, [0.0] * self.members
            if self.checkpoint_every is None or at.step % self.checkpoint_every == 0:
                self._save()
        self.learner.recall()

    def _epoch(self, stage: Stage) -> None:
        at, active = self.at, list(self.learner.active)
        pending: list[Tensor] = []
        looks, largest = self._looks_at_gradient(), None
        save_is_due = False
        for batch in self.batches(at.stage, at.epoch, at.batch):
            if save_is_due:  # only now is it known that the epoch goes on, and that its end will not save this step
                self._settle(pending, active)
                self._save()
            try:
                losses = self.learner.step(batch)
            except DivergedError as error:
                self._settle(pending, active)
                raise NotFiniteError(self._not_finite(at.step + 1, f"could not be computed ({error})")) from error
            if looks:
                size = self.learner.gradient_size()
                largest = size if largest is None else torch.maximum(largest, size)
            at.step, at.batch = at.step + 1, at.batch + 1
            pending.append(losses)
            if losses.device.type == "cpu" or len(pending) == LOOK_EVERY:
                self._settle(pending, active)
            if self.folder is not None and self.writes:
                self.folder.count_step()
            for callback in self.callbacks:
                callback.stepped(at.step, losses)
            save_is_due = bool(self.checkpoint_every) and at.step % (self.checkpoint_every or 1) == 0
        self._settle(pending, active)
        if not at.batch:
            raise InvalidValueError(
                _NO_BATCH if not at.step else f"epoch {at.epoch} of {stage.name}: {_NO_BATCH_AGAIN}"
            )
        if largest is not None:
            self._watch_gradient(stage, active, largest)
        self.learner.end_epoch()
        self._end_epoch(stage, active)

    def _settle(self, pending: list[Tensor], active: list[int]) -> None:
        """Look at the losses of the last few steps, which on a GPU means to wait for them."""
        first = self.at.step - len(pending) + 1
        for offset, values in enumerate(torch.stack(pending).tolist() if pending else []):
            for member, value in zip(active, values, strict=True):
                if not math.isfinite(value):
                    raise NotFiniteError(self._not_finite(first + offset, f"is {value}", member))
                self.at.loss_sum[member] += value
        pending.clear()

    def _not_finite(self, step: int, what: str, member: int = 0, where: str = "") -> str:
        who = f" of member {member}" if self.members > 1 else ""
        batch = self.at.batch + step - self.at.step - 1
        position = f"stage {self.at.stage}, epoch {self.at.epoch}"
        if batch >= 0:
            position += f", batch {batch}" + (f" of {self.steps}" if self.steps is not None else "")
        causes = "NaN or infinity in the validation inputs, " if where else ""
        kept = "" if self.folder is None else f" The checkpoints in {self.folder.path} are from before it."
        return (
            f"the {where}loss{who} {what} at step {step} ({position}). Likely causes: {causes}a learning rate that is "
            f"too high (this stage: "
            f"{self.lr[self.at.stage][member]:g}), inputs of very large values, or fp16 overflow; lower lr, give "
            f"clip=1.0, standardise the inputs, or use bf16.{kept}"
        )

    def _looks_at_gradient(self) -> bool:
        """Whether this epoch's gradients are looked at: those of epochs 1, 2, 4, 8 and so on, counted from 1."""
        epoch = self.at.epoch + 1
        return self.writes and epoch & (epoch - 1) == 0

    def _watch_gradient(self, stage: Stage, active: list[int], largest: Tensor) -> None:
        """Warn of members whose gradient was gone in every batch of the epoch though their loss is not.

        One batch tells nothing: where it holds no positives, the gradient of F1 is 0.
        """
        for member, size in zip(active, largest.tolist(), strict=True):
            loss = self.at.loss_sum[member] / self.at.batch
            if size < DEAD_GRADIENT and loss > 0.05:
                who = f" of member {member}" if self.members > 1 else ""
                warnings.warn(
                    f"{stage.name}, epoch {self.at.epoch}: the gradient{who} has died. The loss is {loss:.3g}, but the "
                    f"gradients of all weights add up to at most {size:.1g} in every batch. Take a step that is "
                    "flat nowhere, such as steps.Linear(), or train with cross-entropy first, recipes.two_stage; see "
                    "'Start well'.",
                    DeadGradientWarning,
                    stacklevel=2,
                )

    def _end_epoch(self, stage: Stage, active: list[int]) -> None:
        at, monitor = self.at, stage.watched
        rows = []
        for member in active:
            row: Row = {"stage": stage.name, "epoch": at.epoch, "step": at.step}
            row |= {"member": member} if self.members > 1 else {}
            row["train_loss"] = at.loss_sum[member] / at.batch
            rows.append(row)
        if self.validated:
            found = self._validated(monitor, active)
            self.learner.observe(self._observed(found, active))
            improved, stopped = [], []
            for row, member, result in zip(rows, active, found, strict=True):
                standing, measured = at.standings[member], result.measured
                if monitor.better(measured, standing.measured):
                    standing.improve(measured, at.epoch)
                    improved.append(member)
                else:
                    standing.waited += 1
                    if stage.patience is not None and standing.waited >= stage.patience:
                        stopped.append(member)
                row |= {"validation_loss": result.loss, "monitor": monitor.name, "value": measured.value}
                row |= {"threshold": measured.threshold, "best": standing.best}
                if has_requirements(stage):
                    row |= {"feasible": measured.feasible, "violation": measured.violation}
            self.learner.remember(improved)
            if improved:
                for callback in self.callbacks:
                    callback.improved(improved, partial(self.learner.outputs, improved))
            self.learner.retire(stopped)
        self.rows += rows
        for callback in self.callbacks:
            callback.epoch_ended(rows)
        self.rows_as_json.append(json.dumps(rows))

    def _observed(self, results: list[Validation], active: list[int]) -> list[Validation]:
        """Return the results as the objectives observe them."""
        for result, member in zip(results, active, strict=True):
            self.at.standings[member].succeeded |= bool(result.meets)
        pairs = zip(results, active, strict=True)
        return [each.after_success() if self.at.standings[member].succeeded else each for each, member in pairs]

    def _validated(self, monitor: Monitor, active: list[int]) -> list[Validation]:
        """What the learner finds on the validation set; an error where a loss is not finite."""
        try:
            found = self.learner.validate(monitor)
        except DivergedError as error:
            what = f"could not be computed ({error})"
            raise NotFiniteError(self._not_finite(self.at.step, what, where="validation ")) from error
        for member, result in zip(active, found, strict=True):
            if not math.isfinite(result.loss):
                raise NotFiniteError(self._not_finite(self.at.step, f"is {result.loss}", member, where="validation "))
        return found

    def _measure_start(self, stage: Stage) -> None:
        """Count the weights a stage starts from as its first best, so that it returns none that are worse.

        Not under constraints that cannot be measured on the validation set, such as a RankingConstraint: there the
        start may have a better value and yet break them.
        """
        under = any(isinstance(module, AugmentedLagrangian) for module in stage.objective.modules())
        if under and not has_requirements(stage):
            return
        active = list(self.learner.active)
        for member, result in zip(active, self._validated(stage.watched, active), strict=True):
            self.at.standings[member].improve(result.measured, epoch=-1)
            self.at.standings[member].succeeded = bool(result.meets)
        self.learner.remember(active)

    def _save(self) -> None:
        if self.folder is None:
            return
        random_numbers = randomness.capture()  # of every rank, so by every rank
        if self.writes:
            so_far = {"loop": asdict(self.at), "history": self.rows_as_json}
            self.folder.save(self.at.step, {**so_far, "learner": self.learner.state(), "random": random_numbers})

    def _continue_from(self, saved: dict[str, Any]) -> None:
        try:
            self.learner.load(saved["learner"])
            randomness.restore(saved["random"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            assert self.folder is not None
            raise CheckpointError(
                f"the checkpoint of step {self.at.step} in {self.folder.path} does not fit this model: "
                f"{shorten(error)}. If it was copied from another run, delete it and run again with resume=True: the "
                "run then continues from the one before"
            ) from error

    def _restore(self, saved: dict[str, Any]) -> None:
        standings = [Standing(**each) for each in saved["loop"]["standings"]]
        self.at = Position(**{**saved["loop"], "standings": standings})
        self.rows_as_json = saved["history"]
        self.rows = [row for epoch in self.rows_as_json for row in json.loads(epoch)]
