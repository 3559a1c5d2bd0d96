"""The names that the expressions of a table's file may use, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from metricfit import losses, metrics
from metricfit.core import steps
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.ranking import PartialAUCLoss
from metricfit.losses.surrogate import SurrogateTverskyLoss
from metricfit.models import mlp
from metricfit_papers.baselines import as_coded
from metricfit_papers.baselines.adversarial_loss import AdversarialLoss
from metricfit_papers.baselines.class_surrogates import GeneralizedCrossEntropyLoss, MulticlassSurrogateLoss
from metricfit_papers.baselines.small_batch_validation import OnSmallBatches
from metricfit_papers.baselines.squared_error import SquaredErrorLoss
from metricfit_papers.datasets import catalogue as datasets
from metricfit_papers.datasets import published_sets
from metricfit_papers.images.image_tasks import LOADERS, CifarPair, WholeSet
from metricfit_papers.models import byte_images, paper_mlps
from metricfit_papers.specs.toml_section import Section


def tenths() -> list[float]:
    """Return the thresholds 0.1, 0.2, ..., 0.9."""
    return list(as_coded.TENTHS)


def one_of(classes: int, position: int, value: float) -> list[float]:
    """Return a number per class: 1, but another value for one class.

    >>> one_of(4, 2, 0.25)
    [1.0, 1.0, 0.25, 1.0]
    """
    return [value if number == position else 1.0 for number in range(classes)]


STEPS: dict[str, Callable[..., Any]] = {
    name: getattr(steps, name)
    for name in ("Linear", "Sigmoid", "Identity", "RaisedCosine", "StraightThrough", "ThreePoint")
}
AS_CODED = {
    loss.__name__: loss
    for loss in (as_coded.MetricAsCoded, as_coded.AUROCAsCoded, as_coded.WMWAsCoded, as_coded.DiceAsCoded)
}
BASELINES: tuple[Callable[..., Any], ...] = (
    AdversarialLoss,
    GeneralizedCrossEntropyLoss,
    MulticlassSurrogateLoss,
    OnSmallBatches,
    PartialAUCLoss,
    SquaredErrorLoss,
    SurrogateTverskyLoss,
    WeightedCrossEntropyLoss,
)
LOSSES: dict[str, Callable[..., Any]] = {
    name: getattr(losses, name) for name in losses.__all__ if name.endswith("Loss") or name == "Mix"
}
LOSSES |= (
    STEPS
    | AS_CODED
    | {"T": tenths, "one_of": one_of, "fbeta": metrics.fbeta}
    | {loss.__name__: loss for loss in BASELINES}
)
NETWORKS: dict[str, Callable[..., Any]] = {
    name: getattr(paper_mlps, name) for name in ("btg_mlp", "multiclass_mlp", "study_mlp", "perceptron", "anyloss_mlp")
}
NETWORKS |= {"mlp": mlp, **byte_images.NETWORKS}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    name: getattr(torch.optim, name) for name in ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")
}
DATASETS: dict[str, Callable[..., Any]] = {
    "two_blobs": published_sets.two_blobs,
    "breast_cancer": published_sets.breast_cancer,
    "cifar10_pair": CifarPair,
    **{name: partial(WholeSet, name) for name in LOADERS},
}


def check_dataset(section: Section, name: str) -> None:
    """Raise an error for a dataset that the catalogue does not know."""
    if name not in datasets.CATALOGUE:
        names = ", ".join(datasets.names())
        raise section.error(
            "file", f"no dataset is called {name!r}: give its file, target and positive, or one of {names}"
        )
