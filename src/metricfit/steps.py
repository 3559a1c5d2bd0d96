"""Differentiable stand-ins for the decision "is the probability at least the threshold?"."""

from metricfit._extras import explain_missing

with explain_missing(__name__, ("torch",), "metricfit[torch]"):
    from metricfit.core.steps import (
        Annealed,
        Identity,
        Linear,
        RaisedCosine,
        Sigmoid,
        Step,
        StraightThrough,
        ThreePoint,
    )

__all__ = ["Annealed", "Identity", "Linear", "RaisedCosine", "Sigmoid", "Step", "StraightThrough", "ThreePoint"]
