"""Weights of samples from the weights of their classes (class_weight=)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import torch
from torch import Tensor

from metricfit.errors import InvalidValueError, quote

ClassWeight = str | Sequence[float] | Mapping[int, float]


def compute_class_weights(y: Tensor, class_weight: ClassWeight, classes: int = 0) -> Tensor:
    """Compute one weight per class.

    Args:
        y: The labels; labels below 0 are ignored.
        class_weight: Weights by class; classes that a mapping does not name have weight 1. "balanced" gives all classes
            the same total weight, with a sum of n over all samples.
        classes: Minimum number of classes.

    Returns:
        The weights in the order of the classes.
    """
    labels = _as_class_numbers(y)
    labels = labels[labels >= 0]
    counts = labels.bincount(minlength=classes)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InvalidValueError(
                f"class_weight must be 'balanced' or one weight per class, got {quote(class_weight)}"
            )
        return len(labels) / (counts.clamp(min=1) * (counts > 0).sum()).to(torch.get_default_dtype())
    if isinstance(class_weight, Mapping):
        class_weight = _list_weights(class_weight, len(counts))
    weights = torch.as_tensor(class_weight, dtype=torch.get_default_dtype(), device=y.device)
    if weights.dim() != 1 or not bool((weights.isfinite() & (weights >= 0)).all()):
        raise InvalidValueError(
            f"class_weight must be one finite weight of at least 0 per class, got {quote(class_weight)}"
        )
    if len(weights) < len(counts):
        raise InvalidValueError(f"class_weight has {len(weights)} weights, but the labels go up to {len(counts) - 1}")
    return weights


def weigh_samples(y: Tensor, weight: Tensor | None, class_weight: ClassWeight | None) -> Tensor | None:
    """Multiply the weights of the samples by those of their classes."""
    if class_weight is None:
        return weight
    by_class = look_up_weights(compute_class_weights(y, class_weight), _as_class_numbers(y))
    return by_class if weight is None else by_class * weight.reshape(-1)


def look_up_weights(class_weights: Tensor, labels: Tensor) -> Tensor:
    """Return the weight of each label, and 0 for ignored labels (below 0).

    Args:
        class_weights: One weight per class, or one row of them per row of labels.
        labels: Class numbers.
    """
    return torch.where(labels >= 0, class_weights.gather(-1, labels.clamp(min=0)), 0.0)


def _list_weights(weights: Mapping[int, float], classes: int) -> list[float]:
    if not weights or not all(isinstance(label, Integral) and label >= 0 for label in weights):
        raise InvalidValueError(
            f"class_weight must name classes by their numbers, as in {{0: 1.0, 1: 5.0}}; got {quote(weights)}"
        )
    return [float(weights.get(label, 1.0)) for label in range(max(classes, max(weights) + 1))]


def _as_class_numbers(y: Tensor) -> Tensor:
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise InvalidValueError(f"class_weight needs one label per sample, but the labels have shape {tuple(y.shape)}")
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InvalidValueError(
            "class_weight needs integer labels, but these are fractions; pass (X, y, weight) instead"
        )
    return y.long().reshape(-1)
