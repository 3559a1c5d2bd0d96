"""Cross-entropy of exclusive classes with weights of samples, and for long tails: shifted by how rare each class is."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from metricfit.core.numerics import ratio
from metricfit.core.tasks import spread_weight, without_channel
from metricfit.core.tensor_numerics import counting_dtype
from metricfit.core.validation import (
    check_labels,
    check_shares,
    check_tensors,
    check_weight,
    looks_at_values,
    per_class,
)
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.losses.base import AdditiveLoss, check_nonnegative, check_number, check_statistics


class WeightedCrossEntropyLoss(AdditiveLoss):
    r"""Cross-entropy of exclusive classes with one weight per sample.

    .. math:: \frac{\sum_i w_i\, l_i}{\sum_i w_i}, \qquad l_i = -\log \mathrm{softmax}(x_i)_{y_i}

    ``torch.nn.CrossEntropyLoss`` accepts weights of classes, but not of samples. Logits are ``(n, classes, ...)``,
    targets are class numbers ``(n, ...)`` or ``(n, 1, ...)``, and there is one weight per sample or per label. A target
    of the logits' shape is read as shares of classes that sum to 1, as mixup makes them: l is the sum of the classes'
    losses.

    Args:
        ignore_index: Labels with this value are ignored.
        label_smoothing: The share of each label that is spread evenly over the classes, below 1.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        TypeError: If ``ignore_index`` is not an integer.
        ValueError: If ``label_smoothing`` is not in [0, 1), or (when called) the shapes of logits and target do not
            match.

    Example:
        >>> WeightedCrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor(1.3863)
    """

    def __init__(self, *, ignore_index: int = -100, label_smoothing: float = 0.0, sync: bool = False) -> None:
        super().__init__(sync=sync)
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
            raise InvalidTypeError(f"ignore_index is one class number, such as 255, got {quote(ignore_index)}")
        self.ignore_index = ignore_index
        self.label_smoothing = check_nonnegative(type(self).__name__, "label_smoothing", label_smoothing)
        if label_smoothing >= 1:
            raise InvalidValueError(f"label_smoothing must be below 1, got {label_smoothing}")

    def statistics(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the samples' losses and the sum of the weights, ``(2,)``.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``, or the shares of the classes in the shape of the logits.
            weight: One weight per sample or per label.

        Returns:
            The two sums.

        Raises:
            ValueError: If the shapes of logits and target do not match.
        """
        check_tensors(logits, target, weight)
        target = without_channel(logits, target, None)
        labels = logits.shape[:1] + logits.shape[2:]
        shared = logits.dim() > 1 and logits.shape[1] > 1 and target.shape == logits.shape
        if logits.dim() < 2 or not (shared or target.shape == labels):
            raise InvalidValueError(
                f"{type(self).__name__} is for logits (n, classes) and class numbers (n,), got "
                f"{tuple(logits.shape)} and {tuple(target.shape)}; for binary or multilabel logits use WeightedBCELoss"
            )
        if not shared and target.is_floating_point():
            raise InvalidValueError(f"class numbers must be integers, got {target.dtype}; use target.long()")
        x = logits.to(counting_dtype(logits.dtype))
        spread = None if weight is None else spread_weight(weight, tuple(labels), tuple(labels))
        if spread is not None and looks_at_values(x, None):
            check_weight(spread)
        y, counted = self._read_shares(x, target, spread) if shared else self._read_numbers(x, target)
        losses = self.label_losses(x, y)
        label_weight = counted.to(losses.dtype)
        label_weight = label_weight if spread is None else label_weight * spread
        return check_statistics(torch.stack([(label_weight * losses).sum(), label_weight.sum()]), logits)

    def _read_numbers(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return class numbers, and which of them count."""
        numbers = target.long()
        if looks_at_values(logits, None):
            check_labels(torch.where(numbers == self.ignore_index, 0, numbers), logits.shape[1])
        return numbers, numbers != self.ignore_index

    def _read_shares(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return shares of the classes, which all count."""
        shares = target.to(logits.dtype)
        if looks_at_values(logits, None):
            check_labels(shares, None)
            check_shares(shares, weight, target)
        return shares, torch.ones_like(shares[:, 0], dtype=torch.bool)

    def label_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each label; what it is for ignored labels does not matter, if it is finite.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``, or the shares of the classes.

        Returns:
            One loss per label, ``(n, ...)``.
        """
        return cross_entropy(
            logits, target, ignore_index=self.ignore_index, reduction="none", label_smoothing=self.label_smoothing
        )

    def value(self, statistics: Tensor) -> Tensor:
        """Return the weighted mean."""
        return ratio(statistics[0], statistics[1])

    def extra_repr(self) -> str:
        """Return the arguments of the constructor; the ignored label if it is not torch's default."""
        ignored = "" if self.ignore_index == -100 else f"ignore_index={self.ignore_index}"
        return ", ".join(filter(None, (super().extra_repr(), ignored)))


class _ShiftedCrossEntropy(WeightedCrossEntropyLoss):
    """Cross-entropy of shifted logits; the shifts follow from the class counts of the training set."""

    shifts: Tensor

    def __init__(self, class_counts: Sequence[float], *, ignore_index: int, sync: bool) -> None:
        super().__init__(ignore_index=ignore_index, sync=sync)
        rule = "class_counts are numbers, one per class, such as torch.bincount(target)"
        counts = per_class(class_counts, f"{type(self).__name__}: {rule}")
        if len(counts) < 2 or not all(0 < count < math.inf for count in counts):
            raise InvalidValueError(
                f"{type(self).__name__}: class_counts are the numbers of training samples of two or more classes, all "
                f"above 0, got {list(counts)}"
            )
        self.class_counts = counts

    def label_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of the shifted logits.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``.

        Returns:
            One loss per label, ``(n, ...)``.

        Raises:
            ValueError: If there are other numbers of logits than of class counts.
        """
        if logits.shape[1] != len(self.class_counts):
            raise InvalidValueError(
                f"{type(self).__name__} has counts of {len(self.class_counts)} classes, got logits "
                f"{tuple(logits.shape)}"
            )
        return super().label_losses(self.shifted(logits, target), target)

    @abstractmethod
    def shifted(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the logits whose cross-entropy is the loss.

        Args:
            logits: The outputs of the model, ``(n, classes, ...)``.
            target: The class numbers, ``(n, ...)``.

        Returns:
            Logits of the same shape.
        """

    def _along_classes(self, logits: Tensor) -> Tensor:
        return self.shifts.to(logits.dtype).reshape(-1, *[1] * (logits.dim() - 2))


class LogitAdjustedLoss(_ShiftedCrossEntropy):
    r"""Cross-entropy of logits plus the logarithms of the class shares. Menon et al. 2021, Eq. 10.

    .. math:: l = -\log \mathrm{softmax}(x + \tau \log \pi)_y

    The model learns logits for equally frequent classes, so the argmax aims at the mean recall of the classes. With
    :math:`\tau = 1` it is the balanced softmax of Ren et al. 2020.

    Args:
        class_counts: The number of training samples of each class.
        tau: How much of the shift is applied; 0 is plain cross-entropy.
        ignore_index: Labels with this value are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If the class counts are not above 0, or tau is not a finite number.

    Example:
        >>> loss = LogitAdjustedLoss(class_counts=(90, 10))
        >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]))  # -(log 0.9 + log 0.1) / 2
        tensor(1.2040)
    """

    def __init__(
        self, class_counts: Sequence[float], tau: float = 1.0, *, ignore_index: int = -100, sync: bool = False
    ) -> None:
        super().__init__(class_counts, ignore_index=ignore_index, sync=sync)
        if not math.isfinite(check_number("LogitAdjustedLoss", "tau", tau)):
            raise InvalidValueError(f"LogitAdjustedLoss needs a finite tau, got {tau}")
        self.tau = float(tau)
        shares = torch.tensor(self.class_counts, dtype=torch.float64)
        self.register_buffer("shifts", tau * (shares / shares.sum()).log(), persistent=False)

    def shifted(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return x + tau log(share)."""
        return logits + self._along_classes(logits)


class LDAMLoss(_ShiftedCrossEntropy):
    r"""Cross-entropy with a larger margin for rarer classes. Cao et al. 2019, Eq. 13.

    .. math:: l = -\log \mathrm{softmax}\big(s\,(x - \Delta_y e_y)\big)_y, \qquad \Delta_y \propto n_y^{-1/4}

    The paper's logits are cosines: a network that normalises features and weights of its last layer. For plain logits
    use ``scale=1``.

    Args:
        class_counts: The number of training samples of each class.
        max_margin: The margin of the rarest class, above 0.
        scale: The factor s, above 0.
        ignore_index: Labels with this value are ignored.
        sync: In a distributed run, take the mean over the samples of all ranks.

    Raises:
        ValueError: If the class counts, the margin or the scale are not above 0.

    Example:
        >>> loss = LDAMLoss(class_counts=(160, 10), max_margin=1.0, scale=1.0)
        >>> loss(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))  # the margin takes away the lead
        tensor(0.6931)
    """

    def __init__(
        self,
        class_counts: Sequence[float],
        max_margin: float = 0.5,
        scale: float = 30.0,
        *,
        ignore_index: int = -100,
        sync: bool = False,
    ) -> None:
        super().__init__(class_counts, ignore_index=ignore_index, sync=sync)
        self.max_margin = check_nonnegative("LDAMLoss", "max_margin", max_margin, or_zero=False)
        self.scale = check_nonnegative("LDAMLoss", "scale", scale, or_zero=False)
        margins = torch.tensor(self.class_counts, dtype=torch.float64) ** -0.25
        self.register_buffer("shifts", max_margin * margins / margins.max(), persistent=False)

    def shifted(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return s (x - margin of the true class).

        Raises:
            ValueError: If the target is shares, because each class of a label has another margin.
        """
        if target.dim() == logits.dim():
            raise InvalidValueError(
                "LDAMLoss is for class numbers (n,): a share of a class has no margin; pass one-hot targets as "
                "target.argmax(1)"
            )
        classes = torch.arange(logits.shape[1], device=logits.device).reshape(-1, *[1] * (logits.dim() - 2))
        is_true = target.unsqueeze(1) == classes
        return self.scale * (logits - self._along_classes(logits) * is_true)
