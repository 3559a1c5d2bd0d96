"""A run of one model, through lightning-fabric, on one device or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricfit.train import label_checks
from metricfit.train.checkpoint import randomness
from metricfit.train.checkpoint.run_spec import describe_run
from metricfit.train.data.batches import Batch, take_share
from metricfit.train.data.datasets import FromDataset
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.order import Order, derive_seed
from metricfit.train.data.samples import InMemory, Source
from metricfit.train.engine.driver import Processes, RunSettings, TrainingRun
from metricfit.train.engine.epoch_validation import RequirementResult, has_requirements, measure_requirements
from metricfit.train.engine.launching import OneDevice, get_precision
from metricfit.train.engine.model_outputs import has_2d_convolutions
from metricfit.train.engine.one_model import OneModel
from metricfit.train.engine.position import Standing
from metricfit.train.history import History, Row
from metricfit.train.prior import start_at_prior
from metricfit.train.result import FitResult, make_report

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class SingleRunData:
    """The data of one model.

    Attributes:
        train: The training samples, with the weights of ``class_weight``.
        unweighted: The training samples without them, for measuring requirements.
        validation: The validation samples, if there are any.
        labels: The training labels, ignored ones as -1; None if they are not known beforehand, as for a DataLoader.
        prior: The share of positives of a binary problem, if it is known.
    """

    train: Source
    unweighted: Source
    validation: Source | None
    labels: Tensor | None
    prior: float | None


class SingleRun(TrainingRun):
    """A run of one model.

    Args:
        model: The model.
        data: Its data.
        settings: How to train it.
        fabric: The launched Fabric, or one device without it.
        order: The order of samples.
        seed: The seed of that order.
        accumulate: The number of parts in which a batch is computed.
        clip: The maximum norm of the gradient.
        precision: The precision that the user chose, if any.
        channels_last: Whether images are laid out with their channels last; None for wherever convolutions profit.
        cuda_graphs: Whether steps are captured as CUDA graphs; None for wherever this is possible.
    """

    def __init__(
        self,
        model: nn.Module,
        data: SingleRunData,
        settings: RunSettings,
        *,
        fabric: Fabric | OneDevice,
        order: Order,
        seed: int,
        accumulate: int,
        clip: float | None,
        precision: str | None,
        channels_last: bool | None = None,
        cuda_graphs: bool | None = None,
    ) -> None:
        processes = Processes(fabric.is_global_zero, fabric.broadcast, fabric.barrier)
        super().__init__([model], settings, validated=data.validation is not None, processes=processes)
        self.model, self.data, self.fabric, self.order, self.seed = model, data, fabric, order, seed
        self.accumulate, self.clip, self.precision = accumulate, clip, precision
        self.channels_last = has_2d_convolutions(model) if channels_last is None else channels_last
        self.cuda_graphs = cuda_graphs
        self.check_batch = label_checks.LoaderCheck(model, settings.stages)

    def spec(self) -> dict[str, Any]:
        """Describe the run, so that a resumed run can be compared with it."""
        settings: dict[str, Any] = {
            "seed": self.seed,
            "accumulate": self.accumulate,
            "clip": self.clip,
            "precision": self.precision,
            "ranks": self.fabric.world_size,
            "checkpoint_every": self.settings.checkpoint_every,
            "start_at_prior": self.settings.start_at_prior,
        }
        settings |= {} if self.settings.ema is None else {"ema": self.settings.ema}
        data = self.data
        return describe_run(self.model, self.settings.stages, data.train, data.validation, self.order, **settings)

    def set_priors(self) -> None:
        """Set the last bias to the share of positives, if this is wanted and the share is known."""
        start, data = self.settings.start_at_prior, self.data.train
        if self.data.prior is None or start is False:
            return
        assert not isinstance(data, FromLoader)
        inputs = first_inputs(data)
        start_at_prior(
            self.model,
            self.data.prior,
            strict=start is True,
            fresh_only=start is None,
            logits=lambda: _sample_logits(self.model, inputs),
        )

    def place(self) -> OneModel:
        """Move data in memory to the device, take this rank's share of a loader, and set up the model."""
        self.train, self.unweighted = self._move_data(self.data.train), self._move_data(self.data.unweighted)
        validation = None if self.data.validation is None else self._move_data(self.data.validation)
        self.learner = OneModel(
            self.fabric,
            self.model,
            validation,
            accumulate=self.accumulate,
            clip=self.clip,
            channels_last=self.channels_last,
            cuda_graphs=self.cuda_graphs,
            ema=self.settings.ema,
        )
        return self.learner

    def _move_data(self, data: Source) -> Source:
        if isinstance(data, InMemory):
            moved = data.to(self.fabric.device)
            return moved.with_channels_last() if self.channels_last and moved.x.dim() == 4 else moved
        if isinstance(data, FromLoader):
            return data.for_rank(self.fabric.global_rank, self.fabric.world_size)
        return data

    def batches(self, stage: int, epoch: int, first: int) -> Iterator[Batch]:
        """Yield this rank's share of every batch of an epoch; a loader's first epoch is checked on the way."""
        device = self.fabric.device
        item_seed = derive_seed(self.seed, "items", stage, epoch)
        if isinstance(self.train, FromLoader):
            loaded = self.train.batches(device, item_seed, skip=first, epoch=epoch)
            if stage == epoch == 0:
                expected = self.train.expected_batches
                loaded = (self.check_batch(batch, number, expected) for number, batch in enumerate(loaded, first))
            yield from loaded
            if stage == epoch == first == 0:  # a run that is resumed within the epoch has not seen all of its labels
                self.check_batch.end_epoch(device)
            return
        labels = torch.zeros(len(self.train)) if self.data.labels is None else self.data.labels
        batches = self.order.batches(labels, self.seed, stage, epoch)[first:]
        loaded = self._read_shares(batches, item_seed)
        if self.data.labels is None and stage == epoch == 0:
            loaded = (self.check_batch(batch, number, None) for number, batch in enumerate(loaded, first))
        yield from loaded
        if self.data.labels is None and stage == epoch == first == 0:
            self.check_batch.end_epoch(device)
            self.check_batch.refuse_one_class(device)

    def _read_shares(self, batches: Sequence[Tensor], item_seed: int) -> Iterator[Batch]:
        """Yield this rank's share of each batch of tensors or of a Dataset."""
        assert not isinstance(self.train, FromLoader)
        device, ranks = self.fabric.device, self.fabric.world_size
        if ranks == 1:
            yield from self.train.batches(batches, device, item_seed)
            return
        shares = [take_share(batch, self.fabric.global_rank, ranks) for batch in batches]
        # A rank without samples still reads one, because all ranks take part in the step.
        samples = [share if len(share) else batch[:1] for share, batch in zip(shares, batches, strict=True)]
        for share, batch in zip(shares, self.train.batches(samples, device, item_seed), strict=True):
            yield batch if len(share) else batch.without_samples()

    @contextmanager
    def training_context(self) -> Iterator[None]:
        """Make float64 torch's default in double precision, because Fabric returns outputs in the default type."""
        default = torch.get_default_dtype()
        precision = get_precision(self.fabric)
        if precision is not None and precision.precision == "64-true":
            torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(default)

    def measure_requirements(self, standings: Sequence[Standing]) -> list[tuple[RequirementResult, ...]]:
        """Measure them on the validation set, or else on the training set with the user's own weights."""
        stage, learner = self.settings.stages[-1], self.learner
        if not has_requirements(stage):
            return [()]
        rows = "train" if learner.validation is None else "validation"
        logits, batch = learner.logits(self.unweighted if learner.validation is None else learner.validation)
        return [measure_requirements(stage, standings[0].threshold, logits, batch, rows)]

    def objectives(self) -> list[nn.Module]:
        """Return the objective of the last stage."""
        return [self.learner.objective.loss]

    def histories(self, rows: Sequence[Row]) -> list[History]:
        """Return all rows as one history."""
        return [History(rows)]

    def pack(self, results: Sequence[FitResult]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the only result and its report."""
        report = make_report(list(results))
        single = {name: value[0] if isinstance(value, list) else value for name, value in report.items()}
        return results[0].state(), single

    def unpack(self, saved: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the only state."""
        return [saved]


def first_inputs(data: InMemory | FromDataset) -> Any:
    """Return the inputs of the first samples."""
    return data.x[:2] if isinstance(data, InMemory) else data.first()


def _sample_logits(model: nn.Module, inputs: Any) -> Tensor:
    with randomness.seeded(0):
        return label_checks.sample_logits(model, inputs)
