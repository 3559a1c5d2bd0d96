"""How networks for tables are trained: a recipe of ``train.recipes``, or one of two baselines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from metricfit.core.types import ScalarAverage, Task
from metricfit.errors import InvalidValueError
from metricfit.losses import FocalLoss, SurrogateFBetaLoss
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement
from metricfit.models import PerMember
from metricfit.train import Stage, recipes

RecipeName = recipes.Recipe | Literal["focal", "surrogate"]
RECIPES: tuple[RecipeName, ...] = (*recipes.NAMES, "focal", "surrogate")
#: Recipes that do not use the metric.
WITHOUT_METRIC = ("bce", "focal")


@dataclass(frozen=True)
class Recipe:
    """A recipe with everything it needs to make its stages.

    Attributes:
        name: One of ``RECIPES``. "focal" and "surrogate" are baselines for two classes.
        metric: The metric to optimise.
        classes: The number of classes.
        average: The average over several classes.
        lr: The learning rate of the first stage.
        requirements: The requirements of "constrained".
        prior: The share of positives, which the surrogate needs.
    """

    name: RecipeName
    metric: Metric
    classes: int
    average: ScalarAverage
    lr: float
    requirements: tuple[Requirement, ...] = ()
    prior: float = 0.5

    def __post_init__(self) -> None:
        if self.name in ("focal", "surrogate") and self.classes > 2:
            raise InvalidValueError(f"recipe={self.name!r} is for two classes; the data have {self.classes}")

    def stages(self, parts: int = 1) -> list[Stage]:
        """Make the stages for a network of this many parts; every part has its own loss.

        Raises:
            InvalidValueError: The recipe trains networks of one part only.
        """
        if parts > 1 and not trains_parts(self.name):
            raise InvalidValueError(f"recipe={self.name!r} trains one network; use kind='embedded'")
        stages = self._stages()
        if parts == 1:
            return stages
        return [replace(stage, objective=PerMember(stage.objective, parts)) for stage in stages]

    def _stages(self) -> list[Stage]:
        task: Task = "binary" if self.classes == 2 else "multiclass"
        match self.name:
            case "bce":
                return recipes.bce(task=task)
            case "metric":
                return recipes.metric(self.metric, task=task, average=self.average)
            case "mix":
                return recipes.mix(self.metric, task=task, average=self.average)
            case "two_stage":
                lr = recipes.SECOND_STAGE_LR * self.lr
                return recipes.two_stage(self.metric, lr=lr, task=task, average=self.average)
            case "constrained":
                # Average precision needs no threshold: the estimator chooses the threshold afterwards.
                monitor = "average_precision" if self.classes == 2 else None
                return recipes.constrained(
                    self.metric, list(self.requirements), monitor=monitor, task=task, average=self.average
                )
            case "focal":
                return [Stage(FocalLoss(gamma=2.0), name="focal")]
            case "surrogate":
                return [Stage(SurrogateFBetaLoss(_beta(self.metric), prior=self.prior), name="surrogate")]


def trains_parts(recipe: RecipeName) -> bool:
    """Check whether a recipe can train a network of several parts, such as a TabM or a blend."""
    return recipe != "constrained"


def _beta(metric: Metric) -> float:
    """Return the beta of F-beta, and 1 for other metrics and for one beta per class."""
    beta = metric.parameters.get("beta", 1.0) if metric.base_name == "fbeta" else 1.0
    return float(beta) if not isinstance(beta, tuple) else 1.0
