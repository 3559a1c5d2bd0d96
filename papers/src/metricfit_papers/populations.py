"""Many models of one architecture, trained as one computation under ``torch.vmap``: what the tables' trials are.

The trainer's loop knows members already, and makes their passes one after the other. Here they are computed as one.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase as Norm
from torch.nn.utils.rnn import pad_sequence

from metricfit.errors import InvalidStateError, InvalidTypeError, InvalidValueError, quote
from metricfit.train.callbacks import Callback, add_progress_bar
from metricfit.train.data.batches import Batches
from metricfit.train.data.sources import ClassWeight, InMemory, Source, as_source, get_weight_dtype
from metricfit.train.engine.launching import OneDevice
from metricfit.train.engine.learner import Learner, Member
from metricfit.train.engine.run import MakeLearner, TrainingRun
from metricfit.train.label_checks import with_group_numbers
from metricfit.train.monitor import Monitored
from metricfit.train.result import FitResult
from metricfit.train.settings import PLAIN_STEPS, CheckpointDir, RunSettings, Steps, as_checkpoints
from metricfit.train.stage import DEFAULT_LR, MakeOptimizer, MakeScheduler, Stage, make_stages

Split = tuple[Any, Any]


def fit_population(
    models: Sequence[nn.Module],
    train: Any,
    objective: nn.Module | Stage | Iterable[Stage],
    *,
    splits: Sequence[Split] | None = None,
    validation: Any = None,
    seeds: Sequence[int] | None = None,
    lr: float | Iterable[float] = DEFAULT_LR,
    epochs: int = 100,
    batch_size: int | Batches = 1024,
    optimizer: MakeOptimizer | None = None,
    scheduler: MakeScheduler | None = None,
    monitor: Monitored = "loss",
    patience: int | None = None,
    checkpoint_dir: CheckpointDir | None = None,
    resume: bool = False,
    start_at_prior: bool | None = None,
    class_weight: ClassWeight | None = None,
    steps: Steps = PLAIN_STEPS,
    device: str | torch.device | None = None,
    precision: str | None = None,
    make_learner: MakeLearner | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> list[FitResult]:
    """Train several models of one architecture as one computation; each learns what ``fit`` would teach it alone.

    All members make the same number of steps per epoch, as many as the member with the most samples needs.

    Args:
        models: The members, which are trained in place.
        train: ``(X, y)`` or ``(X, y, weight)``, or a dictionary as for ``fit``, shared by all members.
        objective: A loss, or stages. Every member has its own copy, with its own multipliers and memory.
        splits: For each member its training and validation samples, as numbers into ``train``, or as masks. Without
            splits all members train on all samples.
        validation: Samples like ``train`` for all members, if there are no splits.
        seeds: The seed of each member. The default is 0, 1, 2 and so on.
        lr: One learning rate, or a list, an array or a tensor with one rate per member.
        epochs: Maximum number of epochs of each stage that does not set its own. The same holds for optimizer,
            scheduler, monitor and patience.
        batch_size: Samples per member and optimiser step, or ``Batches``.
        optimizer: As for ``fit``; called for each member.
        scheduler: As for ``fit``; called for each member.
        monitor: "loss", a metric at threshold 0.5, "best f1" for a metric at its best threshold, or a Monitor. Of a
            list, such as ``["best f1", "auroc"]``, the first decides: best weights, patience and ReduceLROnPlateau
            follow it alone. Each has a column of its name in the history.
        patience: Number of epochs without a better value after which a member stops.
        checkpoint_dir: A folder for this run alone, or ``Checkpoints``.
        resume: Whether to start in an empty folder, continue in a started one, and return the result of a finished one.
        start_at_prior: Whether to set the last biases to the log odds of the share of positives; see ``fit``.
        class_weight: "balanced", or one weight per class, as a list or as {0: 1.0, 1: 5.0}.
        steps: How optimiser steps are made, as for ``fit``.
        device: The device to train on. The default is a GPU if there is one.
        precision: "bf16-mixed" for forward passes under autocast. By default the models' own type.
        make_learner: Makes the steps of the members; ``graphs.CapturedLearner`` captures them as CUDA graphs.
        callbacks: Objects that are called during training; see Callback.
        progress: Whether to show a progress bar. By default it is shown if standard error is a terminal.

    Returns:
        One FitResult per member.

    Raises:
        ValueError: Settings, data and models do not go together. Most of these errors are raised before training.
        TypeError: An argument has a type that cannot be used; the data must be in memory.
        NotFiniteError: The loss of a member became NaN or infinite.
        FileExistsError: ``checkpoint_dir`` holds other files, or a run without ``resume=True``.

    Example:
        >>> from metricfit.losses import WeightedBCELoss
        >>> x = torch.randn(64, 3)
        >>> models = [nn.Linear(3, 1) for _ in range(4)]
        >>> results = fit_population(models, (x, x[:, 0] > 0), WeightedBCELoss(), epochs=2, progress=False)
        >>> [len(result.history) for result in results]
        [2, 2, 2, 2]
    """
    started = time.perf_counter()
    rates = _list_learning_rates(lr, len(models))
    seeds = list(range(len(models))) if seeds is None else list(seeds)
    _check_members(models, rates, seeds, splits, validation)
    defaults = {"optimizer": optimizer, "scheduler": scheduler, "monitor": monitor, "patience": patience}
    stages = make_stages(objective, epochs=epochs, **defaults)
    stage_rates = [rates if stage.lr is None else [stage.lr] * len(models) for stage in stages]
    stages = [stage.filled(lr=max(rates)) for stage in stages]
    if precision not in (None, "bf16-mixed"):
        raise InvalidValueError(f"a population's precision is None or 'bf16-mixed', got {quote(precision)}")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    runtime = MixedDevice(where, precision is not None)
    data = [
        None if part is None else part.with_dtype(get_weight_dtype(models[0])).to(runtime.device)
        for part in (_read_in_memory(train, stages, "train"), _read_in_memory(validation, stages, "validation"))
    ]
    settings = RunSettings(
        stages=stages,
        rates=stage_rates,
        seeds=seeds,
        batches=batch_size if isinstance(batch_size, Batches) else Batches(batch_size),
        class_weight=class_weight,
        steps=steps,
        checkpoints=as_checkpoints(checkpoint_dir, resume),
        resume=resume,
        start_at_prior=start_at_prior,
        callbacks=add_progress_bar(callbacks, progress),
        precision=precision,
        started=started,
    )
    samples, held_out = data
    assert samples is not None
    members: list[tuple[Source, Source | None]] = [(samples, held_out)] * len(models)
    if splits is not None:
        members = [_split(samples, split, member) for member, split in enumerate(splits)]
    return TrainingRun(models, members, settings).results(runtime, make_learner or StackedLearner)


def _read_in_memory(data: Any, stages: Sequence[Stage], name: str) -> InMemory | None:
    if data is None:
        return None
    source = with_group_numbers(as_source(data, name), stages, name)
    if not isinstance(source, InMemory):
        raise InvalidTypeError("a population trains on data in memory: (X, y) or (X, y, weight)")
    return source


def _split(samples: InMemory, split: Split, member: int) -> tuple[InMemory, InMemory]:
    """Return a member's training and validation samples, which share their inputs with other members' samples."""
    if len(split) != 2:
        raise InvalidValueError(
            f"splits needs a pair (training, validation) per member; member {member} has {len(split)} parts"
        )
    parts = [as_sample_numbers(numbers) for numbers in split]
    for name, numbers in zip(("training", "validation"), parts, strict=True):
        if not len(numbers):
            raise InvalidValueError(f"splits: member {member} has no {name} samples")
        if numbers.dim() != 1 or int(numbers.min()) < 0 or int(numbers.max()) >= len(samples):
            raise InvalidValueError(
                f"splits: member {member}'s {name} samples must be numbers from 0 to {len(samples) - 1}, got shape "
                f"{tuple(numbers.shape)} with values from {int(numbers.min())} to {int(numbers.max())}"
            )
    return samples.subset(parts[0]), samples.subset(parts[1])


def as_sample_numbers(samples: Any) -> Tensor:
    """Return the numbers of samples that are given as numbers or as a mask."""
    numbers = torch.as_tensor(samples).cpu()
    return numbers.nonzero().flatten() if numbers.dtype == torch.bool else numbers.long()


def _list_learning_rates(lr: Any, members: int) -> list[float]:
    """Return each member's learning rate, from one rate for all, or a list, an array or a tensor of rates."""
    plain = lr.tolist() if hasattr(lr, "tolist") else lr
    rates = [float(rate) for rate in plain] if isinstance(plain, Iterable) else [float(plain)] * members
    for member, rate in enumerate(rates):
        if not (math.isfinite(rate) and rate > 0):
            raise InvalidValueError(f"lr must be finite and above 0, got {rate} for member {member}")
    return rates


def _check_members(
    models: Sequence[nn.Module],
    rates: Sequence[float],
    seeds: Sequence[int],
    splits: Sequence[Any] | None,
    validation: Any,
) -> None:
    """Refuse members that are not distinct models of one architecture, and settings that are not one per member."""
    if not models:
        raise InvalidValueError("a population needs at least one model")
    if len({id(model) for model in models}) < len(models):
        raise InvalidValueError("the same model occurs several times among the members; make a new model for each")
    for name, setting in (("lr", rates), ("seeds", seeds), ("splits", splits)):
        if setting is not None and len(setting) != len(models):
            raise InvalidValueError(f"there are {len(models)} models, but {name} has {len(setting)} entries")
    if splits is not None and validation is not None:
        raise InvalidValueError(
            "with splits each member has its own validation samples; give either splits or validation"
        )
    first = _describe_architecture(models[0])
    for member, model in enumerate(models):
        for part, first_part in zip_longest(_describe_architecture(model), first, fillvalue="nothing"):
            if part != first_part:
                raise InvalidValueError(
                    f"the members must have one architecture, but member {member} has {part} where member 0 has "
                    f"{first_part}; train them one by one with fit"
                )


def _describe_architecture(model: nn.Module) -> list[str]:
    """Describe what all members must have in common: weights with shapes, which of them are frozen, and layers."""
    trainable = {name for name, weight in model.named_parameters() if weight.requires_grad}
    weights = [
        f"{name} of shape {tuple(weight.shape)}, {weight.dtype}{'' if name in trainable else ', frozen'}"
        for name, weight in model.state_dict().items()
    ]
    return [*weights, *(line.strip() for line in repr(model).splitlines())]


class MixedDevice(OneDevice):
    """One device, on which forward passes may run under autocast in bfloat16.

    Args:
        device: The device.
        mixed: Whether they do.
    """

    def __init__(self, device: torch.device, mixed: bool = False) -> None:
        super().__init__(device)
        self.mixed = mixed

    def setup(self, model: nn.Module) -> nn.Module:
        """Move the model to the device, and return what computes its logits."""
        model.to(self.device)
        return _Mixed(model, self) if self.mixed else model

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of forward passes."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.mixed else nullcontext()

    def convert(self, logits: Tensor) -> Tensor:
        """Return logits of a pass in mixed precision in the default type, as Fabric does."""
        return logits.to(torch.get_default_dtype()) if self.mixed else logits


class _Mixed(nn.Module):
    """A model whose forward passes run in mixed precision."""

    def __init__(self, model: nn.Module, runtime: MixedDevice) -> None:
        super().__init__()
        self.model, self.runtime = model, runtime

    def forward(self, x: Any) -> Tensor:
        with self.runtime.autocast():
            logits = self.model(x)
        return self.runtime.convert(logits)


class StackedLearner(Learner):
    """Members whose training passes are computed as one.

    Args:
        members: The members, on one device.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members)
        self.stack: Stack | None = None
        if len(self.members) > 1:
            models, networks = [each.model for each in members], [each.network for each in members]
            self.stack = Stack(models, networks, self.runtime)

    def forward(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Return the logits of the active members, each for its own inputs."""
        return super().forward(inputs) if self.stack is None else self.stack(self.active, inputs)


#: Convolutional networks with fewer weights run faster under vmap, because their operations are short.
FEWEST_WEIGHTS = 2**13


class Stack:
    """Computes the logits of several models, each for its own inputs, in training mode.

    The weights of the models are stacked in each pass, so autograd gives every model its own gradients. Convolutional
    networks of some size run one after the other on a CPU, where the grouped convolutions of vmap take longer. Batches
    of different lengths run one after the other too if a normalisation would see their padding.

    Args:
        models: Models of one architecture, on their device.
        networks: What computes the logits of each of them alone.
        runtime: Where they are trained.

    Example:
        >>> models = [nn.Linear(3, 1) for _ in range(4)]
        >>> stack = Stack(models, models, MixedDevice(torch.device("cpu")))
        >>> [logits.shape for logits in stack([0, 2], [torch.randn(8, 3), torch.randn(5, 3)])]
        [torch.Size([8, 1]), torch.Size([5, 1])]
    """

    def __init__(self, models: Sequence[nn.Module], networks: Sequence[nn.Module], runtime: MixedDevice) -> None:
        self.models, self.networks, self.runtime = list(models), list(networks), runtime
        first, on_cpu = self.models[0], runtime.device.type == "cpu"
        weights = sum(weight.numel() for weight in first.parameters())
        has_convolutions = any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in first.modules())
        self.is_large = has_convolutions and weights >= FEWEST_WEIGHTS
        self.one_by_one = self.is_large and on_cpu
        self.sees_padding = any(isinstance(module, Norm) and module.track_running_stats for module in first.modules())
        self.skeleton = copy.deepcopy(first).to("meta").train()
        for module in self.skeleton.modules():
            if on_cpu and type(module) is nn.Dropout:
                module.forward = partial(_drop_units, module)  # type: ignore[method-assign]
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.register_forward_pre_hook(_convert_to_buffer_dtype)
        self.first_call = True

    def __call__(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of each of these members; the first call reports models that cannot be stacked."""
        models, lengths = [self.models[member] for member in members], [len(x) for x in inputs]
        differ = min(lengths) < max(lengths)
        if self.one_by_one or len(models) == 1 or (differ and self.sees_padding):
            return [self.networks[member](x) for member, x in zip(members, inputs, strict=True)]
        stacked = pad_sequence(list(inputs), batch_first=True) if differ else torch.stack(list(inputs))
        parts = self._forward(models, stacked)
        if parts is None:
            return self(members, inputs)
        return [part[:length] for part, length in zip(parts, lengths, strict=True)] if differ else list(parts)

    def _forward(self, models: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, ...] | None:
        """Return the logits of these models; None if the first pass shows that they must run one by one."""
        weights = _stack([dict(model.named_parameters(remove_duplicate=False)) for model in models])
        own_buffers = [dict(model.named_buffers()) for model in models]
        buffers = _stack(own_buffers)
        attributes = read_attributes(self.skeleton) if self.first_call else []
        try:
            with self.runtime.autocast():
                logits: Tensor = vmap(self._forward_member, randomness="different")(weights, buffers, x)
        except RuntimeError as error:
            if not self.first_call or isinstance(error, torch.OutOfMemoryError):
                raise
            raise InvalidStateError(
                f"a {type(models[0]).__name__} cannot be trained as a member of a population, whose members run under "
                f"torch.vmap; train them one by one with fit. The reason: {error}"
            ) from error
        if self.first_call:
            self.first_call = False
            self.one_by_one = read_attributes(self.skeleton) != attributes  # vmap would not give back these values
            if self.one_by_one:
                return None
        for name, stacked in buffers.items():
            for own, buffer in zip(own_buffers, stacked.detach().unbind(), strict=True):
                own[name].copy_(buffer)
        return self.runtime.convert(logits).unbind()

    def _forward_member(self, weights: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        state = {**weights, **buffers}
        logits: Tensor = functional_call(self.skeleton, state, (x,))
        for name, buffer in buffers.items():
            if state[name] is not buffer:  # the model assigned a new tensor
                buffer.copy_(state[name].detach())
        return logits


def read_attributes(model: nn.Module) -> list[dict[str, Any]]:
    """Read values and identities of the attributes and buffers of a model's modules."""
    attributes = ({**vars(module), **module._buffers} for module in model.modules())
    return [{name: _identify(value) for name, value in named.items()} for named in attributes]


def _identify(value: Any) -> Any:
    """Return what stays the same as long as a value is only changed in place: tensors keep their memory."""
    if isinstance(value, Tensor):
        return "tensor", value.data_ptr(), value.shape
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return len(value) if isinstance(value, (list, tuple, dict, set)) else type(value).__name__


def _stack(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _convert_to_buffer_dtype(norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Convert the input of a batch norm to the type of its buffers; torch.vmap on a GPU refuses other types."""
    mean = norm.running_mean
    return (inputs[0].to(mean.dtype),) if isinstance(mean, Tensor) else inputs


def _drop_units(module: nn.Dropout, x: Tensor) -> Tensor:
    """Drop units as nn.Dropout does, by uniform numbers: on a CPU torch takes four times as long for Bernoulli's."""
    if not module.training or not 0 < module.p < 1:
        return nn.functional.dropout(x, module.p, module.training)
    kept = torch.rand_like(x, dtype=torch.float32) >= module.p
    return x * (kept.to(x.dtype) / (1 - module.p))
