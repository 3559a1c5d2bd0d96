"""A run: one call of ``fit``, or of the papers' ``fit_population``, from its data and settings to its results.

A run checks its data, takes its folder, sets the first biases, trains, measures the requirements, and writes and
returns its results. One model is a population of one. ``fitting`` only makes the settings of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError
from metricfit.train import label_checks
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.folder import RunFolder
from metricfit.train.checkpoint.run_spec import describe_run
from metricfit.train.data.batches import Batch, derive_seed
from metricfit.train.data.sources import FromLoader, InMemory, Source, get_weight_dtype, weigh_samples
from metricfit.train.engine.launching import Runtime, get_precision, on_first_rank
from metricfit.train.engine.learner import Learner, Member
from metricfit.train.engine.loop import Loop
from metricfit.train.engine.validation import (
    has_requirements,
    measure_requirements,
    warn_about_unmet,
)
from metricfit.train.prior import start_at_prior
from metricfit.train.result import FitResult, History, RequirementResult, Row, make_report
from metricfit.train.settings import RunSettings, check_learning, check_stages
from metricfit.train.stage import mask_ignored_labels

MakeLearner = Callable[[Sequence[Member]], Learner]


@dataclass(frozen=True)
class MemberData:
    """What one model trains on.

    Attributes:
        train: The training samples, with the weights of ``class_weight``.
        unweighted: The training samples without them, for measuring requirements.
        validation: The validation samples, if there are any.
        labels: The training labels, ignored ones as -1; None if they are not known beforehand, as for a DataLoader.
        prior: The share of positives of a binary problem, if it is known.
        steps: The number of optimiser steps per epoch, if it is known.
        seed: The seed of the order of samples.
    """

    train: Source
    unweighted: Source
    validation: Source | None
    labels: Tensor | None
    prior: float | None
    steps: int | None
    seed: int


def prepare_member(
    model: nn.Module, train: Source, validation: Source | None, settings: RunSettings, seed: int, validation_name: str
) -> MemberData:
    """Check the data of one model, and give them its type and the weights of their classes.

    Labels are read before training if they are at hand, or if the order of samples or the metric of a single class
    depends on them. Otherwise some of them are checked before, and all of them batch by batch in the first epoch.

    Raises:
        ValueError: The data do not go with the model or the settings.
    """
    stages, batches = settings.stages, settings.batches
    labels: Tensor | None = None
    counted: Tensor | None = None
    if isinstance(train, FromLoader):
        if batches.depend_on_labels:
            raise InvalidValueError(
                "a DataLoader makes its own batches; for stratified or oversampled batches pass a Dataset"
            )
        steps = train.expected_batches
    elif batches.depend_on_labels or label_checks.names_a_class(stages) or train.knows_labels:
        target = train.target.detach().cpu()
        labels = mask_ignored_labels(target, stages)
        batches.check(labels)
        steps = batches.steps_per_epoch(labels)
        logits = label_checks.sample_logits(model, train.first())
        check = label_checks.LabelCheck(logits, stages)
        counted = check(target, "train")
        check.refuse_one_class()
        label_checks.check_requirements(stages, logits, target)
        check.judge.conclude(f"training labels {tuple(target.shape)}")
    else:
        steps = batches.steps(len(train))
        logits = label_checks.sample_logits(model, train.first())
        counted = label_checks.check_target(logits, train.some_labels.cpu(), stages, "train", part=True)
    if validation is not None and not isinstance(validation, FromLoader) and validation.knows_labels:
        target = validation.target.detach().cpu()
        if counted is None:
            logits = label_checks.sample_logits(model, validation.first(), "validation")
        check = label_checks.LabelCheck(logits, stages)
        check(target, validation_name)
        if counted is None:
            check.judge.conclude(f"validation labels {tuple(target.shape)}")
        label_checks.check_validation(stages, logits, target, validation_name)
    prior = None
    if counted is not None and counted.numel() and (logits.dim() == 1 or logits.shape[1] == 1):
        unseen = 0 if labels is not None else 1  # some labels may all be of one class
        prior = (float(counted.double().sum()) + 0.5 * unseen) / (counted.numel() + unseen)
    weighted = train
    if isinstance(train, InMemory):
        target = mask_ignored_labels(train.y, stages)
        weighted = replace(train, weight=weigh_samples(target, train.weight, settings.class_weight))
    elif settings.class_weight is not None:
        raise InvalidValueError("class_weight needs data in memory; let your Dataset return (x, y, weight)")
    dtype = get_weight_dtype(model)
    held_out = None if validation is None else validation.with_dtype(dtype)
    return MemberData(weighted.with_dtype(dtype), train.with_dtype(dtype), held_out, labels, prior, steps, seed)


class TrainingRun:
    """One call of ``fit``; the constructor checks that models, data and settings go together.

    Args:
        models: The models, which are trained in place.
        data: The training samples of each model, and its validation samples if there are any.
        settings: How to train them.

    Raises:
        ValueError: Models, data and settings do not go together.
    """

    def __init__(
        self, models: Sequence[nn.Module], data: Sequence[tuple[Source, Source | None]], settings: RunSettings
    ) -> None:
        self.models, self.settings = list(models), settings
        validated = data[0][1] is not None
        weighted = settings.class_weight is not None or any(
            isinstance(source, InMemory) and source.weight is not None for source in data[0]
        )
        check_stages(settings.stages, validated, weighted)
        names = ["validation" if len(data) == 1 else f"validation (of member {member})" for member in range(len(data))]
        self.data = [
            prepare_member(model, *sources, settings, seed, name)
            for model, sources, seed, name in zip(models, data, settings.seeds, names, strict=True)
        ]
        self.steps = max((member.steps for member in self.data), default=None, key=lambda steps: steps or 0)
        check_learning(self.models[0], settings.stages, validated, self.steps)
        if settings.start_at_prior and self.data[0].prior is None:
            raise InvalidValueError(
                "start_at_prior=True needs one output and labels known beforehand: (X, y) or a Dataset"
            )
        self.folder = None if settings.checkpoints is None else RunFolder(settings.checkpoints.folder)

    def results(self, runtime: Runtime, make_learner: MakeLearner = Learner) -> list[FitResult]:
        """Train, or load the results of a finished run, and warn about requirements that do not hold.

        Args:
            runtime: The launched Fabric, or one device without it.
            make_learner: Makes what moves the weights from the members.
        """
        self.runtime = runtime
        with self.folder or nullcontext():
            saved = self._begin()
            if saved is not None:
                results = self._load(saved)
            else:
                self._set_priors()
                results = self._train(make_learner)
                self._save(results)
            if runtime.is_global_zero:
                warn_about_unmet([result.requirements for result in results])
            return results

    def _begin(self) -> dict[str, Any] | None:
        """Take the folder, and return its result if the run there is finished."""
        if self.folder is None:
            return None
        settings = self.settings
        data = [(member.train, member.validation) for member in self.data]
        spec = describe_run(self.models[0], data, settings, self.runtime.world_size)

        def begin() -> dict[str, Any] | None:
            assert self.folder is not None
            self.folder.begin(spec, settings.resume)
            return self.folder.result() if self.folder.finished else None

        return on_first_rank(self.runtime, begin)

    def _load(self, saved: dict[str, Any]) -> list[FitResult]:
        objective = self.settings.stages[-1].objective
        return [
            FitResult.from_state(state, model.to(self.runtime.device), objective)
            for model, state in zip(self.models, saved["members"], strict=True)
        ]

    def _set_priors(self) -> None:
        """Set the last biases to the share of positives, where this is wanted and the share is known."""
        start = self.settings.start_at_prior
        for model, data in zip(self.models, self.data, strict=True):
            if data.prior is None or start is False:
                continue
            assert not isinstance(data.train, FromLoader)
            inputs = data.train.first()

            def sample_logits(model: nn.Module = model, inputs: Any = inputs) -> Tensor:
                with randomness.Stream(0):
                    return label_checks.sample_logits(model, inputs)

            start_at_prior(model, data.prior, strict=start is True, fresh_only=start is None, logits=sample_logits)

    def _train(self, make_learner: MakeLearner) -> list[FitResult]:
        settings, runtime = self.settings, self.runtime
        self.data = [self._place(member) for member in self.data]
        self.learner = make_learner(
            [
                Member(runtime, model, data.validation, settings.steps, settings.channels_last)
                for model, data in zip(self.models, self.data, strict=True)
            ]
        )
        validated = self.data[0].validation is not None
        loop = Loop(self.learner, self._batches, settings, self.steps, self.folder, validated=validated)
        seed = derive_seed(*settings.seeds, "noise", runtime.global_rank)
        with randomness.seeded_run(seed, runtime.device), self._default_dtype():
            rows = loop.run()
            self.learner.finish()
            best = [standing.measured for standing in loop.position.standings]
            requirements = [self._measure(number, measured.threshold) for number, measured in enumerate(best)]
        seconds = time.perf_counter() - settings.started
        return [
            FitResult(
                member.model.eval(),
                self._history(number, rows),
                best[number].value,
                best[number].threshold,
                seconds,
                member.objective.loss,
                requirements[number],
            )
            for number, member in enumerate(self.learner.members)
        ]

    def _place(self, data: MemberData) -> MemberData:
        """Move data in memory to the device."""
        validation = None if data.validation is None else self._place_source(data.validation)
        train, unweighted = self._place_source(data.train), self._place_source(data.unweighted)
        return replace(data, train=train, unweighted=unweighted, validation=validation)

    def _place_source(self, data: Source) -> Source:
        if isinstance(data, InMemory):
            moved = data.to(self.runtime.device)
            laid_out = self.settings.channels_last and moved.x.dim() == 4
            return replace(moved, x=moved.x.contiguous(memory_format=torch.channels_last)) if laid_out else moved
        if isinstance(data, FromLoader):
            data.check_divided(self.runtime.world_size)
        return data

    def _batches(self, stage: int, epoch: int, first: int) -> Iterator[Sequence[Batch]]:
        """Yield one batch per active member for every step of an epoch."""
        members = [self._member_batches(self.data[number], stage, epoch, first) for number in self.learner.active]
        return zip(*members, strict=True)

    def _member_batches(self, data: MemberData, stage: int, epoch: int, first: int) -> Iterator[Batch]:
        """Yield this rank's share of every batch of a member; labels that are not known are checked on the way."""
        device, train = self.runtime.device, data.train
        item_seed = derive_seed(data.seed, "items", stage, epoch)
        expected = None
        if isinstance(train, FromLoader):
            loaded = train.batches(device, item_seed, skip=first, epoch=epoch)
            expected = train.expected_batches
        else:
            labels = torch.zeros(len(train)) if data.labels is None else data.labels
            steps = self.steps if data.labels is not None else None
            batches = self.settings.batches.divide(labels, data.seed, stage, epoch, steps)
            loaded = self._read_shares(train, batches[first:], item_seed)
        if data.labels is not None or stage or epoch:
            yield from loaded
            return
        check: label_checks.LabelCheck | None = None
        for number, batch in enumerate(loaded, first):
            if check is None:
                with randomness.Stream(0):
                    logits = label_checks.sample_logits(self.models[0], batch.x)
                check = label_checks.LabelCheck(logits, self.settings.stages)
            of_expected = f" of {expected}" if expected is not None and number < expected else ""
            check(batch.y, f"train, batch {number}{of_expected}", part=True)
            yield batch
        if check is not None and first == 0:  # a run that is resumed within the epoch has not seen all of its labels
            check.judge.add_other_ranks(device)
            check.judge.conclude(f"training labels ({check.judge.rows} rows, all of the first epoch)")
            if not isinstance(train, FromLoader):
                check.refuse_one_class(device)

    def _read_shares(self, train: Any, batches: Sequence[Tensor], item_seed: int) -> Iterator[Batch]:
        """Yield this rank's share of each batch of tensors or of a Dataset."""
        device, ranks = self.runtime.device, self.runtime.world_size
        if ranks == 1:
            yield from train.batches(batches, device, item_seed)
            return
        # Every n-th sample, because a stratified batch is sorted by class.
        shares = [batch[self.runtime.global_rank :: ranks] for batch in batches]
        # A rank without samples still reads one, because all ranks take part in the step.
        samples = [share if len(share) else batch[:1] for share, batch in zip(shares, batches, strict=True)]
        for share, batch in zip(shares, train.batches(samples, device, item_seed), strict=True):
            yield batch if len(share) else batch.without_samples()

    @contextmanager
    def _default_dtype(self) -> Iterator[None]:
        """Make float64 torch's default in double precision, because Fabric returns outputs in the default type."""
        default = torch.get_default_dtype()
        precision = get_precision(self.runtime)
        if precision is not None and precision.precision == "64-true":
            torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(default)

    def _measure(self, number: int, threshold: Any) -> tuple[RequirementResult, ...]:
        """Measure a member's requirements on the validation set, or else on the training set, by the user's weights."""
        stage, member = self.settings.stages[-1], self.learner.members[number]
        if not has_requirements(stage):
            return ()
        rows = "train" if member.validation is None else "validation"
        logits, batch = member.logits(member.validation or self.data[number].unweighted)
        return measure_requirements(stage, threshold, logits, batch, rows)

    def _history(self, number: int, rows: Sequence[Row]) -> History:
        """Return the rows of a member; its steps end when it stops."""
        own = [row for row in rows if row.get("member", 0) == number]
        if len(self.data) == 1:
            return History(own)
        columns = [{name: value for name, value in row.items() if name != "member"} for row in own]
        return History([row | {"step": (self.steps or 0) * epoch} for epoch, row in enumerate(columns, start=1)])

    def _save(self, results: Sequence[FitResult]) -> None:
        if self.folder is not None and self.runtime.is_global_zero:
            states = [result.state() for result in results]
            report = make_report(states) | {"seconds": results[0].seconds}
            self.folder.finish({"members": states}, report | {"steps_made": self.folder.steps_made})
        self.runtime.barrier()
