"""What the members minimise: the recipes of training, for two classes or several, with weights."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from metricfit.errors import InvalidValueError, quote
from metricfit.losses import FocalLoss, MetricLoss, Mix, SurrogateFBetaLoss, WeightedBCELoss, WeightedCrossEntropyLoss
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.models import PerMember
from metricfit.train import Stage, recipes

RECIPES = (*recipes.NAMES, "focal", "surrogate")
SECOND_STAGE = 0.3  # of the learning rate, as in the study of recipes


def stages_for(
    recipe: str,
    metric: Metric,
    *,
    classes: int,
    average: str,
    lr: float,
    subject_to: list[Requirement],
    prior: float = 0.5,
    parts: int = 1,
) -> list[Stage]:
    """The stages of a recipe, each part of a TabM or a blend with a loss of its own.

    A mix is the cross-entropy plus half the metric's loss; the second stage of "two_stage" is slower. "focal" and
    "surrogate" are baselines for two classes; the surrogate is that of F-beta with the metric's beta, 1 if it has none.
    """
    if recipe not in RECIPES:
        raise InvalidValueError(f"recipe is one of {', '.join(map(repr, RECIPES))}, got {quote(recipe)}")
    if recipe in ("focal", "surrogate") and classes > 2:
        raise InvalidValueError(f"recipe={quote(recipe)} is for two classes, there are {classes}")
    likelihood: nn.Module = WeightedBCELoss() if classes == 2 else WeightedCrossEntropyLoss()
    metric_loss = MetricLoss(metric, task=None if classes == 2 else "multiclass", average=average)
    if recipe == "constrained":
        if not subject_to:
            raise InvalidValueError("recipe='constrained' needs requirements: subject_to=['recall >= 0.9']")
        if parts > 1:
            raise InvalidValueError("recipe='constrained' trains one network; take network='embedded'")
        monitor = "average_precision" if classes == 2 else None  # the threshold is chosen afterwards
        return recipes.constrained(metric, list(subject_to), monitor=monitor)
    if recipe == "surrogate":  # made only where it is asked for, since it needs a finite beta above 0
        stages = [Stage(SurrogateFBetaLoss(_beta(metric), prior=prior), name="surrogate")]
        return _for_parts(stages, parts)
    stages = {
        "bce": [Stage(likelihood, name="bce")],
        "metric": [Stage(metric_loss, name="metric")],
        "focal": [Stage(FocalLoss(gamma=2.0), name="focal")],
        "mix": [Stage(Mix((likelihood, 1.0), (metric_loss, 0.5)), name="mix")],
        "two_stage": [Stage(likelihood, name="bce"), Stage(metric_loss, lr=SECOND_STAGE * lr, name="metric")],
    }[recipe]
    return _for_parts(stages, parts)


def _for_parts(stages: list[Stage], parts: int) -> list[Stage]:
    """Give each part of a network that has several a loss of its own."""
    if parts == 1:
        return stages
    return [replace(stage, objective=PerMember(stage.objective, parts)) for stage in stages]


def _beta(metric: Metric) -> float:
    beta = metric.parameters.get("beta", 1.0) if metric.base_name == "fbeta" else 1.0
    return float(beta) if not isinstance(beta, tuple) else 1.0
