"""The names that a table's file may use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from metricfit import losses, models
from metricfit.core import steps
from metricfit.data import catalogue, published
from metricfit.experiments.reproduce import as_coded, image_networks
from metricfit.experiments.reproduce.anyloss_mlp import anyloss_mlp
from metricfit.experiments.reproduce.image_tasks import CifarPair, whole_cifar10, whole_fashion_mnist
from metricfit.experiments.reproduce.reading import Section
from metricfit.experiments.reproduce.small_batches import OnSmallBatches
from metricfit.experiments.reproduce.squared import SquaredErrorLoss
from metricfit.metrics import get_metric


def tenths() -> list[float]:
    """The thresholds 0.1, 0.2, ..., 0.9."""
    return list(as_coded.TENTHS)


STEPS: dict[str, Callable[..., Any]] = {
    name: getattr(steps, name) for name in ("Linear", "Sigmoid", "Identity", "RaisedCosine", "StraightThrough")
}
AS_CODED = {
    each.__name__: each
    for each in (as_coded.MetricAsCoded, as_coded.AUROCAsCoded, as_coded.WMWAsCoded, as_coded.DiceAsCoded)
}
LOSSES: dict[str, Callable[..., Any]] = {
    name: getattr(losses, name) for name in losses.__all__ if name.endswith("Loss") or name == "Mix"
}
LOSSES |= STEPS | AS_CODED | {"T": tenths, "OnSmallBatches": OnSmallBatches, "SquaredErrorLoss": SquaredErrorLoss}
NETWORKS: dict[str, Callable[..., Any]] = {
    name: getattr(models, name) for name in ("mlp", "btg_mlp", "multiclass_mlp", "study_mlp", "perceptron")
}
NETWORKS |= {"anyloss_mlp": anyloss_mlp, **image_networks.NETWORKS}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    name: getattr(torch.optim, name) for name in ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")
}
DATASETS: dict[str, Callable[..., Any]] = {
    "two_blobs": published.two_blobs,
    "breast_cancer": published.breast_cancer,
    "cifar10_pair": CifarPair,
    "cifar10": whole_cifar10,
    "fashion_mnist": whole_fashion_mnist,
}

#: Columns that are no metric of decisions.
RANKINGS = ("auroc", "average_precision")
SECONDS = "seconds an epoch"
TIMES_BCE = "seconds, times BCE"
#: Columns of ensembles, on the test images or on all there are of both classes.
FPR_AT = {"fpr at tpr 1": 1.0, "fpr at tpr 0.95": 0.95, "fpr at tpr 0.9": 0.9}
AUROC_OF_ONE = "auroc of one"
DELONG = "p of DeLong's test"
ON_ALL = ", all test images"
OF_ENSEMBLES = tuple(
    metric + where
    for metric in ("auroc", *FPR_AT, AUROC_OF_ONE, DELONG)
    for where in ("", ON_ALL)
    if metric + where != "auroc"
)
#: Columns of paths.
PEARSON = "r of loss and metric"
BEST_WATCHED = "best watched value"
OF_PATHS = (PEARSON, BEST_WATCHED)
OTHERS = (*RANKINGS, SECONDS, TIMES_BCE, *OF_ENSEMBLES, *OF_PATHS)
#: Columns of several classes: of one of them, and the mean over all.
OF_CLASS = r"(.+) of class (\d+)"
MACRO = "macro "


def measures(kind: str, metric: str) -> bool:
    """Whether rows of a kind have such a column.

    >>> measures("network", "f1"), measures("network", "recall of class 5"), measures("classes", "f1")
    (True, False, False)
    """
    if metric == SECONDS:
        return True
    of_classes = metric.startswith(MACRO) or re.fullmatch(OF_CLASS, metric) is not None
    if kind == "ensemble":
        return metric == "auroc" or metric in OF_ENSEMBLES
    if kind == "classes":
        return of_classes
    return not of_classes and metric not in OF_ENSEMBLES and (kind == "paths" or metric not in OF_PATHS)


def check_column(metric: str) -> None:
    """Refuse what is neither a metric nor one of the other columns."""
    if metric in OTHERS:
        return
    of_class = re.fullmatch(OF_CLASS, metric)
    try:
        get_metric(of_class[1] if of_class else metric.removeprefix(MACRO))
    except ValueError as error:
        raise ValueError(f"{error}. A column, but no metric of decisions, are {', '.join(OTHERS)}") from None


def check_dataset(section: Section, name: str) -> None:
    """Refuse a dataset that metricfit.data does not know."""
    if name not in catalogue.CATALOGUE:
        there = ", ".join(catalogue.names())
        raise section.error(
            "file", f"no dataset is called {name!r}: give its file, target and positive, or one of {there}"
        )
