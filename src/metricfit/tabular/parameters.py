"""The estimator's parameters: what a user can set wrongly, said before anything is trained, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import torch

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import AVERAGES
from metricfit.metrics.metric import Metric
from metricfit.metrics.parameters import as_float
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.member_training import Settings
from metricfit.tabular.objectives import Recipe

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


def check_parameters(model: MetricClassifier) -> None:
    """Raise a TypeError or a ValueError that names the parameter and what it can be.

    The metric, the recipe, the network and the device are looked up by name where they are used, which says as much.
    """
    _whole("members", model.members, 2, "folds, each held out by one member")
    _whole("batch_size", model.batch_size, 1, "rows a step")
    if model.epochs is not None:
        _whole("epochs", model.epochs, 1, "epochs a stage at most, or None to choose by the rows and the time")
    if model.patience is not None:
        _whole("patience", model.patience, 1, "epochs without a better value, or None for a sixth of the epochs")
    _positive("lr", model.lr, "the learning rate")
    if model.time_budget is not None:
        _positive("time_budget", model.time_budget, "seconds of training, or None for no limit")
    if model.average is None or model.average not in AVERAGES:
        named = ", ".join(repr(each) for each in AVERAGES if each is not None)
        raise InvalidValueError(
            f"average is one of {named}: one value is needed to choose by; got {quote(model.average)}"
        )
    if model.subject_to is not None:
        _requirements(model.subject_to)


def training_settings(
    model: MetricClassifier,
    metric: Metric,
    requirements: list[Requirement],
    *,
    classes: int,
    prior: float,
    seed: int,
) -> Settings:
    """How the members are trained, from the model's parameters.

    Args:
        model: The estimator.
        metric: Its metric.
        requirements: Its requirements.
        classes: The number of classes.
        prior: The share of the positive class, of two.
        seed: Seed of folds, first weights and batches.
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


def _whole(name: str, given: Any, least: int, what: str) -> None:
    if not isinstance(given, Integral) or isinstance(given, bool):
        raise InvalidTypeError(f"{name} is a whole number of {what}, at least {least}; got {quote(given)}")
    if given < least:
        raise InvalidValueError(f"{name} is a whole number of {what}, at least {least}; got {quote(given)}")


def _positive(name: str, given: Any, what: str) -> None:
    if not isinstance(given, Real) or isinstance(given, bool):
        raise InvalidTypeError(f"{name} is {what}, a number above 0; got {quote(given)}")
    if not 0 < as_float(given, name) < math.inf:
        raise InvalidValueError(f"{name} is {what}, a number above 0; got {quote(given)}")


def _requirements(given: Any) -> None:
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for each in several:
        if not isinstance(each, (str, Requirement)):
            raise InvalidTypeError(
                f"subject_to is a requirement such as 'recall >= 0.9', a list of them, or None; got {quote(given)}"
            )
