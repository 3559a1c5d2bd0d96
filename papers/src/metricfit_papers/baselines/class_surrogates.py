"""Surrogates of F-beta and generalised cross-entropy for exclusive classes. Lee, Yang, Yoo 2021, Section 6.

Each class k against the rest is a binary problem with the share of its samples as prior. The surrogate of its F-beta
score takes the probability of the class from the softmax, or from the sigmoid of the logit of the class:

    l_k = -[y = k] log p_k + [y != k] log(c_k + p_k),      c_k = beta² pi_k / (1 - pi_k),

and the loss is the mean of l_k over the classes, as macro F-beta is the mean of their scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

from metricfit.core.buffers import ExactBuffers
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import check_number
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.surrogate import (
    LARGEST_BETA,
    check_priors,
    check_q,
    power_log,
    surrogate_settings,
)

#: How far the sum of the shares of all classes may be from 1, for shares that were rounded.
SUM_TOLERANCE = 0.01

Probability = Literal["softmax", "sigmoid"]


class GeneralizedCrossEntropyLoss(WeightedCrossEntropyLoss):
    r"""Cross-entropy of exclusive classes that is robust to noisy labels. Zhang, Sabuncu 2018, Eq. 6.

    .. math:: l = \frac{1 - p_y^q}{q}, \qquad p = \mathrm{softmax}(x)

    Args:
        q: From 0, which is cross-entropy, to 1, which is half the mean absolute error.
        ignore_index: Labels with this value are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        TypeError: If q is not a number.
        ValueError: If q is not in [0, 1].

    Example:
        >>> GeneralizedCrossEntropyLoss(q=1.0)(torch.zeros(1, 4), torch.tensor([3]))
        tensor(0.7500)
    """

    def __init__(self, q: float = 0.7, *, ignore_index: int = -100, sync: bool = False) -> None:
        super().__init__(ignore_index=ignore_index, sync=sync)
        self.q = check_q(type(self).__name__, q)

    def label_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return (1 - p^q)/q of each label, or -log p."""
        return -power_log(-super().label_losses(logits, target), self.q)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return ", ".join(filter(None, [f"q={self.q:g}", super().extra_repr()]))


class MulticlassSurrogateLoss(ExactBuffers, WeightedCrossEntropyLoss):
    r"""The mean over classes of surrogates of their F-beta scores. Lee et al. 2021, Section 6.

    .. math:: l = \frac{1}{K} \sum_k \Big( -[y = k] \log p_k + [y \ne k] \log(c_k + p_k) \Big),
        \qquad c_k = \frac{\beta^2 \pi_k}{1-\pi_k}

    Args:
        prior: The share of each class in the training set, ``counts / counts.sum()``; they sum to 1.
        beta: Above 1 favours recall, below 1 precision; from 1e-8 to 1e8.
        q: In (0, 1] for the generalised form (Eq. 25), which is robust to noisy labels; 0 for the logarithms.
        probability: "softmax" of all logits, or "sigmoid" of the logit of each class against the rest.
        balanced: Weight the two sides of each class by 1/prior and 1/(1 - prior).
        ignore_index: Labels with this value are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        TypeError: If the prior is not a list of numbers, one per class, or beta or q is not a number.
        ValueError: If the priors, beta, q or the name of the probability are out of range, or if the priors do not sum
            to 1.

    Example:
        >>> loss = MulticlassSurrogateLoss(prior=[0.5, 0.3, 0.2])
        >>> loss(torch.zeros(2, 3), torch.tensor([0, 2])).isfinite()
        tensor(True)
    """

    _settings: Tensor

    def __init__(
        self,
        prior: Sequence[float],
        beta: float = 1.0,
        *,
        q: float = 0.0,
        probability: Probability = "softmax",
        balanced: bool = True,
        ignore_index: int = -100,
        sync: bool = False,
    ) -> None:
        super().__init__(ignore_index=ignore_index, sync=sync)
        name = type(self).__name__
        priors = check_priors(name, prior, of_classes=True)
        if not isinstance(priors, tuple) or len(priors) < 2:
            raise InvalidTypeError(f"{name} needs the shares of two or more classes, got {quote(prior)}")
        total = math.fsum(priors)
        if abs(total - 1) > SUM_TOLERANCE:
            raise InvalidValueError(
                f"{name}: prior is the share of each class in the training set, and the shares sum to 1; these "
                f"{len(priors)} sum to {total:g}. Pass the number of samples of each class divided by the number of all"
            )
        beta = check_number(name, "beta", beta)
        if not 1 / LARGEST_BETA <= beta <= LARGEST_BETA:
            raise InvalidValueError(f"{name} needs a beta from {1 / LARGEST_BETA:g} to {LARGEST_BETA:g}, got {beta}")
        if probability not in get_args(Probability):
            raise InvalidValueError(f"probability is 'softmax' or 'sigmoid', got {probability!r}")
        self.prior, self.beta, self.q = priors, beta, check_q(name, q)
        self.probability, self.balanced = probability, balanced
        settings = [surrogate_settings(beta**2, share, balanced) for share in priors]
        self.register_buffer("_settings", torch.tensor(settings, dtype=torch.float64).T, persistent=False)

    def label_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the mean over the classes, for each label.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``.

        Returns:
            One loss per label, ``(n, ...)``.

        Raises:
            ValueError: If there are other numbers of logits than of priors.
        """
        if logits.shape[1] != len(self.prior):
            raise InvalidValueError(
                f"{type(self).__name__} has priors of {len(self.prior)} classes, got logits {tuple(logits.shape)}"
            )
        log_p = log_softmax(logits, 1) if self.probability == "softmax" else logsigmoid(logits)
        along_classes = (-1, *[1] * (logits.dim() - 2))
        log_c, positive_weight, negative_weight = (part.reshape(along_classes) for part in self._settings.to(logits))
        of_positive = -positive_weight * power_log(log_p, self.q)
        of_negative = negative_weight * power_log(torch.logaddexp(log_p, log_c.expand_as(log_p)), self.q)
        numbers = torch.arange(logits.shape[1], device=logits.device).reshape(along_classes)
        return torch.where(numbers == target.unsqueeze(1), of_positive, of_negative).mean(1)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        settings = (
            f"prior={self.prior}, beta={self.beta:g}, q={self.q:g}, probability={self.probability!r}, "
            f"balanced={self.balanced}"
        )
        return ", ".join(filter(None, [settings, super().extra_repr()]))
