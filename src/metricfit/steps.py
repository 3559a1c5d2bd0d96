"""Differentiable stand-ins for the decision "is the probability at least the threshold?"."""

from metricfit.core.steps import Annealed, Identity, Linear, RaisedCosine, Sigmoid, Step, StraightThrough, ThreePoint

__all__ = ["Annealed", "Identity", "Linear", "RaisedCosine", "Sigmoid", "Step", "StraightThrough", "ThreePoint"]
