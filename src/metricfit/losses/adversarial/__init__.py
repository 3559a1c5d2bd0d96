"""Adversarial prediction: the loss, the zero-sum game that defines it, and the solver of this game."""

from metricfit.losses.adversarial.adversarial_loss import AdversarialLoss

__all__ = ["AdversarialLoss"]
