"""Constraints on training, and the augmented Lagrangian that trains under them."""

from metricfit._extras import explain_missing

with explain_missing(__name__, ("torch",), "metricfit[torch]"):
    from metricfit.constraints.constraint import (
        Constraint,
        FunctionConstraint,
        MeasuredConstraint,
        augmented_term,
        equality_term,
        next_multiplier,
    )
    from metricfit.constraints.lagrangian import AugmentedLagrangian
    from metricfit.constraints.ranking import RankingConstraint
    from metricfit.constraints.requirement import RequirementConstraint

__all__ = [
    "AugmentedLagrangian",
    "Constraint",
    "FunctionConstraint",
    "MeasuredConstraint",
    "RankingConstraint",
    "RequirementConstraint",
    "augmented_term",
    "equality_term",
    "next_multiplier",
]
