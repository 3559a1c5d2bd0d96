"""Constraints on training, and the augmented Lagrangian that trains under them."""

from metricfit.constraints.augmented_lagrangian import AugmentedLagrangian
from metricfit.constraints.constraint import Constraint, MeasuredConstraint
from metricfit.constraints.function import FunctionConstraint
from metricfit.constraints.ranking_constraint import RankingConstraint
from metricfit.constraints.requirement import RequirementConstraint
from metricfit.constraints.setting_search import Searched, Tried, search
from metricfit.constraints.terms import augmented_term, equality_term, next_multiplier

__all__ = [
    "AugmentedLagrangian",
    "Constraint",
    "FunctionConstraint",
    "MeasuredConstraint",
    "RankingConstraint",
    "RequirementConstraint",
    "Searched",
    "Tried",
    "augmented_term",
    "equality_term",
    "next_multiplier",
    "search",
]
