"""Training: how a model starts."""

from metricfit.train.start import start_at_prior

__all__ = ["start_at_prior"]
