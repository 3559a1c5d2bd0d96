"""Adversarial prediction: the loss, the zero-sum game behind it, and the solver of that game."""

from metricfit.losses.adversarial.adversarial_loss import AdversarialLoss

__all__ = ["AdversarialLoss"]
