"""The recipes of networks for tables are those of train.recipes, and say which networks they can train."""

import pytest

from metricfit import metrics
from metricfit.losses import MetricLoss
from metricfit.models import PerMember
from metricfit.tabular.families.network import RECIPES, trains_parts
from metricfit.tabular.families.network_training import Recipe
from metricfit.train import recipes


def recipe(name, **settings):
    return Recipe(name, **{"metric": metrics.f1, "classes": 2, "average": "macro", "lr": 1e-3, **settings})


def test_two_stage_at_the_default_rate_is_the_recipe_of_train():
    expected = recipes.two_stage("f1", task="binary")
    stages = recipe("two_stage").stages()
    assert [(stage.name, stage.lr) for stage in stages] == [(stage.name, stage.lr) for stage in expected]
    assert recipe("two_stage", lr=0.01).stages()[1].lr == pytest.approx(recipes.SECOND_STAGE_LR * 0.01)


def test_the_average_reaches_the_metrics_loss():
    (stage,) = recipe("metric", classes=3, average="micro").stages()
    assert isinstance(stage.objective, MetricLoss)
    assert (stage.objective.average, stage.objective.task) == ("micro", "multiclass")


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "constrained"])
def test_each_part_of_a_network_has_a_loss(name):
    made = recipe(name)
    assert trains_parts(name)
    assert all(isinstance(stage.objective, PerMember) for stage in made.stages(parts=2))


def test_constrained_trains_networks_of_one_part():
    made = recipe("constrained", requirements=(metrics.recall >= 0.9,))
    assert not trains_parts("constrained")
    assert [stage.name for stage in made.stages()] == ["bce", "constrained"]
    with pytest.raises(ValueError, match="trains one network"):
        made.stages(parts=2)
