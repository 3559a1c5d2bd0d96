"""Surrogates of F-beta and Tversky scores that are plain means over samples. Lee, Yang, Yoo 2021.

With q0 the mean of 1 - p over positives, q1 the mean of p over negatives and pi the share of positives, the soft
Tversky score is an increasing function of one ratio,

    T = 1 / ((1 - beta) + alpha (1-pi)/pi / r),      r = (1 - q0) / (c + q1),      c = beta pi / (alpha (1-pi)),

so -log r = -log(1 - q0) + log(c + q1) has the same minimisers as -log T, and its per-sample form, with the logarithms
inside the means, needs no batch statistics. F_b is Tversky with alpha = 1/(1+b²), beta = b²/(1+b²): c = b² pi/(1-pi).
This derivation is an idea of its own, and so is the module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from metricfit.core.buffers import ExactBuffers
from metricfit.core.kernels.pointwise import PointwiseForm
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import check_number, is_number
from metricfit.losses.pointwise import PointwiseLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from metricfit.losses.base import ColumnOptions

#: Maximum beta of a surrogate. The gradient of negatives is of the order of 1/beta², which float32 cannot resolve.
LARGEST_BETA = 1e8


class SurrogateTverskyLoss(ExactBuffers, PointwiseLoss):
    r"""A mean over samples with the same minimisers as the soft Tversky score has maximisers. Lee et al. 2021.

    .. math:: l = -y \log p + (1-y) \log(c + p), \qquad c = \frac{\beta\pi}{\alpha(1-\pi)}

    with p = sigmoid(x) and :math:`\pi` the prior. Jaccard, Tversky(1, 1), has the same c as F1 and so the same
    surrogate.

    Args:
        alpha: The weight of false positives, above 0.
        beta: The weight of false negatives, above 0.
        prior: The share of positives in the training set, not in the batch; for several labels one share each.
        q: In (0, 1] for the generalised form (Eq. 25), which is robust to noisy labels; 0 for the logarithms.
        balanced: Weight the classes by 1/prior and 1/(1 - prior), then take the mean over samples.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        TypeError: If alpha, beta or q is not a number, or prior is neither a number nor a list of numbers.
        ValueError: If alpha, beta, prior or q is out of range, or if there are several priors and the task is "binary".

    Example:
        >>> SurrogateTverskyLoss(0.5, 0.5, prior=0.5)(torch.tensor([0.0]), torch.tensor([1]))
        tensor(1.3863)
    """

    _per_label: Tensor | None
    _for_classes = "MetricLoss('fbeta(beta=2)')"

    def __init__(
        self,
        alpha: float,
        beta: float,
        *,
        prior: float | Sequence[float],
        q: float = 0.0,
        balanced: bool = True,
        **options: Unpack[ColumnOptions],
    ) -> None:
        super().__init__(**options)
        name = type(self).__name__
        self.prior = check_priors(name, prior)
        if self.task == "binary" and isinstance(self.prior, tuple) and len(self.prior) > 1:
            raise InvalidValueError(
                f"{name} has priors of {len(self.prior)} labels, but task='binary' has a single prior; pass one "
                "number, or task='multilabel'"
            )
        alpha, beta = check_number(name, "alpha", alpha), check_number(name, "beta", beta)
        if not (0.0 < alpha < math.inf and 0.0 < beta < math.inf):
            raise InvalidValueError(f"SurrogateTverskyLoss needs finite alpha > 0 and beta > 0, got {alpha} and {beta}")
        if not 1 / LARGEST_BETA**2 <= beta / alpha <= LARGEST_BETA**2:
            raise InvalidValueError(
                f"SurrogateTverskyLoss needs alpha and beta that differ by a factor of at most {LARGEST_BETA**2:g}, "
                f"got {alpha} and {beta}"
            )
        self.alpha, self.beta, self.balanced = alpha, beta, balanced
        self.q = check_q(name, q)
        priors = self.prior if isinstance(self.prior, tuple) else (self.prior,)
        settings = [surrogate_settings(beta / alpha, share, balanced) for share in priors]
        self.log_c, self.positive_weight, self.negative_weight = settings[0]
        per_label = torch.tensor(settings, dtype=torch.float64).T[..., None] if isinstance(self.prior, tuple) else None
        self.register_buffer("_per_label", per_label, persistent=False)

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the samples' losses and the sum of the weights, ``(2,)``.

        Args:
            logits: The outputs of the model.
            target: The labels.
            weight: One weight per sample.

        Returns:
            The two sums.

        Raises:
            ValueError: If there are other numbers of labels than of priors.
        """
        labels = logits.shape[1] if isinstance(logits, Tensor) and logits.dim() > 1 else 1
        if isinstance(self.prior, tuple) and labels != len(self.prior):
            raise InvalidValueError(
                f"{type(self).__name__} has priors of {len(self.prior)} labels, got logits {tuple(logits.shape)}"
            )
        return super().statistics(logits, target, weight)

    def of_positive(self, logits: Tensor) -> Tensor:
        """Return -log p, or (1 - p^q)/q."""
        _, positive_weight, _ = self._settings(logits)
        return -positive_weight * power_log(logsigmoid(logits), self.q)

    def of_negative(self, logits: Tensor) -> Tensor:
        """Return log(c + p), or ((c + p)^q - 1)/q."""
        log_c, _, negative_weight = self._settings(logits)
        return negative_weight * power_log(torch.logaddexp(logsigmoid(logits), log_c), self.q)

    def _settings(self, logits: Tensor) -> tuple[Tensor, Tensor | float, Tensor | float]:
        """Return log c and the weights of both classes: one number, or one per label of logits ``(labels, n)``."""
        if self._per_label is None:
            return torch.full_like(logits, self.log_c), self.positive_weight, self.negative_weight
        log_c, positive_weight, negative_weight = self._per_label.to(logits)
        return log_c.expand_as(logits), positive_weight, negative_weight

    def closed_form(self) -> PointwiseForm | None:
        """Return the surrogate with log c and q; None for one prior per label."""
        if self._per_label is not None:
            return None
        return PointwiseForm("surrogate", self.positive_weight, self.negative_weight, self.log_c, self.q)


class SurrogateFBetaLoss(SurrogateTverskyLoss):
    r"""A mean over samples in place of the F-beta score, which is not one. Lee et al. 2021, Eq. 20 and 25.

    .. math:: l = -y \log p + (1-y) \log(c + p), \qquad c = \frac{\beta^2\pi}{1-\pi}

    with p = sigmoid(x) and :math:`\pi` the prior.

    Args:
        beta: Above 1 favours recall, below 1 precision; from 1e-8 to 1e8.
        prior: The share of positives in the training set, not in the batch; for several labels one share each.
        q: In (0, 1] for the generalised form (Eq. 25), which is robust to noisy labels; 0 for the logarithms (Eq. 20).
        balanced: Weight the classes by 1/prior and 1/(1 - prior), then take the mean over samples.
        task: "binary" or "multilabel", if the shapes do not determine it.
        ignore_index: Samples with this target are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        TypeError: If beta or q is not a number, or prior is neither a number nor a list of numbers.
        ValueError: If beta, prior or q is out of range, or if there are several priors and the task is "binary".

    Example:
        >>> SurrogateFBetaLoss(beta=1.0, prior=0.5, q=1.0, balanced=False)(torch.tensor([0.0]), torch.tensor([1]))
        tensor(0.5000)
    """

    def __init__(
        self,
        beta: float = 1.0,
        *,
        prior: float | Sequence[float],
        q: float = 0.0,
        balanced: bool = True,
        **options: Unpack[ColumnOptions],
    ) -> None:
        beta = check_number("SurrogateFBetaLoss", "beta", beta)
        if not 1 / LARGEST_BETA <= beta <= LARGEST_BETA:
            raise InvalidValueError(
                f"SurrogateFBetaLoss needs a beta from {1 / LARGEST_BETA:g} to {LARGEST_BETA:g}, got {beta}; beyond "
                "that its gradient for one of the classes vanishes. For recall, which is beta = inf, use "
                "MetricLoss('recall'); for precision, beta = 0, use MetricLoss('precision')"
            )
        super().__init__(
            1 / (1 + beta**2),
            beta**2 / (1 + beta**2),
            prior=prior,
            q=q,
            balanced=balanced,
            **options,
        )
        self.beta = beta


def surrogate_settings(ratio: float, prior: float, balanced: bool) -> tuple[float, float, float]:
    """Return log c and the weights of positives and negatives; the ratio is beta/alpha of Tversky, or beta² of F."""
    positive_weight, negative_weight = (1 / prior, 1 / (1 - prior)) if balanced else (1.0, 1.0)
    return math.log(ratio) + math.log(prior / (1 - prior)), positive_weight, negative_weight


def check_q(owner: str, q: float) -> float:
    """Return q; raise an error if it is not a number in [0, 1]."""
    number = check_number(owner, "q", q)
    if not 0.0 <= number <= 1.0:
        raise InvalidValueError(f"{owner} needs q in [0, 1], got {q}")
    return number


def check_priors(owner: str, prior: Any, *, of_classes: bool = False) -> float | tuple[float, ...]:
    """Return one prior as a number and several as a tuple.

    Args:
        owner: The name of the loss, for messages.
        prior: What the user passed.
        of_classes: Whether they are the shares of exclusive classes, for messages.

    Returns:
        A number, or one number per label or class.

    Raises:
        TypeError: If the prior is neither a number nor a list of numbers.
        ValueError: If a prior is not strictly between 0 and 1.
    """
    values = prior.tolist() if hasattr(prior, "tolist") else prior
    single = is_number(values)
    try:
        numbers = [values] if single else [] if isinstance(values, (str, Mapping, Set)) else list(values)
    except TypeError:
        numbers = []
    if not numbers or not all(map(is_number, numbers)):
        wanted = "a list with the share of each class" if of_classes else "a number, or one number per label"
        raise InvalidTypeError(f"{owner}: prior is {wanted}; got {quote(prior)}")
    for number in numbers:
        if not 0.0 < number < 1.0:
            share = "the share of each class" if of_classes else "the share of positives"
            raise InvalidValueError(
                f"{owner}: prior is {share} in the training set, strictly between 0 and 1, got {number}"
            )
    return float(numbers[0]) if single else tuple(map(float, numbers))


def power_log(log_value: Tensor, q: float) -> Tensor:
    """Return (v^q - 1)/q from log v, and its limit log v at q = 0; stable for every q in [0, 1]."""
    return log_value if q == 0.0 else torch.expm1(q * log_value) / q
