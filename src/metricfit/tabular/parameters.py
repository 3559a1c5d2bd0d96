"""The estimator's parameters: checked before anything is trained, and turned into settings of training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import torch

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import AVERAGES
from metricfit.metrics.metric import Metric
from metricfit.metrics.metric_parameters import as_float
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.member_training import Settings
from metricfit.tabular.recipe import Recipe

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


def check_parameters(model: MetricClassifier) -> None:
    """Raise a TypeError or a ValueError that names the parameter and what it can be.

    The metric, the recipe, the network and the device are checked where they are looked up by name.
    """
    _check_whole("members", model.members, 2, "folds, each held out by one member")
    _check_whole("batch_size", model.batch_size, 1, "rows per step")
    if model.epochs is not None:
        _check_whole("epochs", model.epochs, 1, "epochs per stage, or None to choose by the rows and the time budget")
    if model.patience is not None:
        _check_whole("patience", model.patience, 1, "epochs without a better value, or None for a sixth of the epochs")
    _check_positive("lr", model.lr, "the learning rate")
    if model.time_budget is not None:
        _check_positive("time_budget", model.time_budget, "seconds of training, or None for no limit")
    if model.average is None or model.average not in AVERAGES:
        named = ", ".join(repr(average) for average in AVERAGES if average is not None)
        raise InvalidValueError(
            f"average is one of {named}: one value is needed to choose by; got {quote(model.average)}"
        )
    if model.subject_to is not None:
        _check_requirements(model.subject_to)


def training_settings(
    model: MetricClassifier,
    metric: Metric,
    requirements: list[Requirement],
    *,
    classes: int,
    prior: float,
    seed: int,
) -> Settings:
    """Return how the members are trained, from the model's parameters.

    Args:
        model: The estimator.
        metric: Its metric.
        requirements: Its requirements.
        classes: The number of classes.
        prior: The share of the positive class, of two.
        seed: Seed of the folds, the initial weights and the batches.

    Returns:
        The settings.
    """
    recipe = Recipe(
        model.recipe,
        metric,
        classes=classes,
        average=model.average,
        lr=model.lr,
        requirements=tuple(requirements),
        prior=prior,
    )
    return Settings(
        network=model.network,
        recipe=recipe,
        members=model.members,
        epochs=model.epochs,
        patience=model.patience,
        batch_size=model.batch_size,
        lr=model.lr,
        time_budget=model.time_budget,
        device=torch.device(model.device or ("cuda" if torch.cuda.is_available() else "cpu")),
        verbose=model.verbose,
        seed=seed,
    )


def _check_whole(name: str, value: Any, minimum: int, description: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidTypeError(f"{name} is a whole number of {description}, at least {minimum}; got {quote(value)}")
    if value < minimum:
        raise InvalidValueError(f"{name} is a whole number of {description}, at least {minimum}; got {quote(value)}")


def _check_positive(name: str, value: Any, description: str) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidTypeError(f"{name} is {description}, a number above 0; got {quote(value)}")
    if not 0 < as_float(value, name) < math.inf:
        raise InvalidValueError(f"{name} is {description}, a number above 0; got {quote(value)}")


def _check_requirements(value: Any) -> None:
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for requirement in several:
        if not isinstance(requirement, (str, Requirement)):
            raise InvalidTypeError(
                f"subject_to is a requirement such as 'recall >= 0.9', a list of them, or None; got {quote(value)}"
            )
