"""Training the networks of several trials as one population."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricfit.losses.gradient_watch import DeadGradientWarning
from metricfit.train import Callback, Checkpoints, FitResult
from metricfit.train.data.batches import Batches, derive_seed
from metricfit.train.data.sources import compute_class_weights
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.graphs import CapturedLearner
from metricfit_papers.models.byte_images import MeanImage
from metricfit_papers.models.construction import build_network
from metricfit_papers.populations import fit_population
from metricfit_papers.rows.job import RowJob
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import build_object
from metricfit_papers.specs.table_spec import TrainingSpec

#: Maximum number of rows in one forward pass of `compute_logits`.
ROWS_AT_ONCE = 65_536


def fit_trials(
    job: RowJob,
    trials: Sequence[Trial],
    *,
    lr: Sequence[float] | None = None,
    callbacks: Sequence[Callback] = (),
    objective: torch.nn.Module | None = None,
    models: Sequence[torch.nn.Module] | None = None,
    resumes: bool = False,
) -> list[FitResult]:
    """Train the networks of several trials as one population.

    Args:
        job: The cell.
        trials: Its trials, with inputs of the same width.
        lr: One learning rate per trial; by default the job's.
        callbacks: Callbacks of the training.
        objective: Another loss than the job's.
        models: Networks that are already trained, one per trial; by default new ones.
        resumes: Continue from the last checkpoint of the job. Only for the single training of a cell, and without
            callbacks whose state is not in the history.

    Returns:
        One result per trial.
    """
    training = job.training
    assert training is not None
    assert job.loss is not None
    class_weight = job.row.class_weight
    validation_weight = class_weight if training.monitor == "loss" else None
    x, y, offsets = _concatenate(trials, separate=validation_weight is not None)
    weights = [] if validation_weight is None else [_class_weights(validation_weight, y, trials, offsets)]
    if models is None:
        models = [build_network(training.network, x.shape[1], trial.number) for trial in trials]
        for model, trial in zip(models, trials, strict=True):
            for layer in model.modules():
                if isinstance(layer, MeanImage):
                    layer.learn(trial.x[trial.train])
    with warnings.catch_warnings():
        # Some published losses do stop learning; their numbers show it.
        warnings.simplefilter("ignore", DeadGradientWarning)
        return fit_population(
            models,
            (x, y, *weights),
            build_object(job.loss, vocabulary.LOSSES) if objective is None else objective,
            splits=[
                (trial.train + first, trial.validation + first) for trial, first in zip(trials, offsets, strict=True)
            ],
            seeds=[derive_seed("order", trial.number) for trial in trials],
            lr=training.lr if lr is None else lr,
            epochs=training.epochs,
            batch_size=Batches(
                training.batch_size or max(len(trial.train) for trial in trials), oversample=job.row.oversample
            ),
            optimizer=partial(build_optimizer, training.optimizer),
            monitor=training.monitor,
            patience=training.patience or None,
            start_at_prior=False,
            class_weight=None if weights else class_weight,
            device=job.device,
            precision=training.precision,
            make_learner=CapturedLearner if job.cuda_graphs else None,
            callbacks=callbacks,
            progress=False,
            **(
                _checkpoint_settings(job.checkpoints, training, trials)
                if resumes and job.checkpoints is not None
                else {}
            ),
        )


def _checkpoint_settings(folder: Path, training: TrainingSpec, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return settings for ten checkpoints in total, because a deep network's are large."""
    longest = max(len(trial.train) for trial in trials)
    steps = -(-longest // (training.batch_size or longest))
    interval = steps * max(1, training.epochs // 10)
    return {"checkpoint_dir": Checkpoints(folder, interval), "resume": True}


def group_by_width(trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """Yield groups of trials whose inputs have the same width and can be stacked."""
    for width in sorted({trial.x.shape[1] for trial in trials}):
        yield [trial for trial in trials if trial.x.shape[1] == width]


def _concatenate(trials: Sequence[Trial], separate: bool) -> tuple[Tensor, Tensor, list[int]]:
    """Concatenate the rows of all trials.

    Args:
        trials: The trials; those that share their tensors share their rows here.
        separate: Whether trials with different training rows must not share rows.

    Returns:
        Inputs, labels, and for each trial the number of its first row.
    """
    keys = [(id(trial.x), id(trial.train) if separate else 0) for trial in trials]
    first: dict[tuple[int, int], int] = {}
    parts: list[Trial] = []
    rows = 0
    for trial, key in zip(trials, keys, strict=True):
        if key not in first:
            first[key] = rows
            rows += len(trial.x)
            parts.append(trial)
    offsets = [first[key] for key in keys]
    if len(parts) == 1:
        return parts[0].x, parts[0].y, offsets
    return torch.cat([trial.x for trial in parts]), torch.cat([trial.y for trial in parts]), offsets


def _class_weights(class_weight: str, y: Tensor, trials: Sequence[Trial], offsets: Sequence[int]) -> Tensor:
    """Return one weight per row from the training rows of its trial, so that both losses have the same weights."""
    weight = torch.ones(len(y))
    for trial, first in zip(trials, offsets, strict=True):
        by_class = compute_class_weights(trial.y[trial.train], class_weight, classes=2)
        weight[first : first + len(trial.y)] = by_class[trial.y]
    return weight


def build_optimizer(text: str, parameters: Any, lr: float) -> Any:
    """Build the optimiser that a text names."""
    return build_object(text, vocabulary.OPTIMIZERS, params=parameters, lr=lr)


@torch.no_grad()
def compute_logits(model: torch.nn.Module, x: Tensor) -> Tensor:
    """Return the logits of a model for these inputs, on the CPU."""
    device = next(model.parameters()).device
    return torch.cat([model.eval()(part.to(device)) for part in torch.split(x, ROWS_AT_ONCE)]).cpu()
