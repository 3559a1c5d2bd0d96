"""Weights of classes: what class_weight= means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import torch
from torch import Tensor

from metricfit.errors import InvalidValueError, quote

ClassWeight = str | Sequence[float] | Mapping[int, float]


def of_classes(y: Tensor, class_weight: ClassWeight, classes: int = 0) -> Tensor:
    """A weight for each class, of at least so many; "balanced" makes all classes of y weigh the same, n in all.

    Labels below 0 are ignored ones. Classes that a mapping does not name weigh 1.
    """
    labels = _labels(y)
    labels = labels[labels >= 0]
    counts = labels.bincount(minlength=classes)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InvalidValueError(f"class_weight is 'balanced' or a weight for each class, got {quote(class_weight)}")
        return len(labels) / (counts.clamp(min=1) * (counts > 0).sum()).to(torch.get_default_dtype())
    if isinstance(class_weight, Mapping):
        class_weight = _listed(class_weight, len(counts))
    given = torch.as_tensor(class_weight, dtype=torch.get_default_dtype(), device=y.device)
    if given.dim() != 1 or not bool((given.isfinite() & (given >= 0)).all()):
        raise InvalidValueError(
            f"class_weight is a finite weight of at least 0 for each class, got {quote(class_weight)}"
        )
    if len(given) < len(counts):
        raise InvalidValueError(f"class_weight has {len(given)} weights, the labels go to {len(counts) - 1}")
    return given


def weights_of(y: Tensor, weight: Tensor | None, class_weight: ClassWeight | None) -> Tensor | None:
    """The samples' weights times their classes'."""
    if class_weight is None:
        return weight
    chosen = of_labels(of_classes(y, class_weight), _labels(y))
    return chosen if weight is None else chosen * weight.reshape(-1)


def of_labels(by_class: Tensor, labels: Tensor) -> Tensor:
    """Each label's weight, 0 for ignored ones, those below 0; of several rows of labels, by the row's own weights."""
    return torch.where(labels >= 0, by_class.gather(-1, labels.clamp(min=0)), 0.0)


def _listed(given: Mapping[int, float], classes: int) -> list[float]:
    if not given or not all(isinstance(each, Integral) and each >= 0 for each in given):
        raise InvalidValueError(
            f"class_weight names classes by their numbers, as in {{0: 1.0, 1: 5.0}}; got {quote(given)}"
        )
    return [float(given.get(each, 1.0)) for each in range(max(classes, max(given) + 1))]


def _labels(y: Tensor) -> Tensor:
    if y.dim() > 1 and y.shape[1:].numel() > 1:
        raise InvalidValueError(f"class_weight needs one label a sample, these have shape {tuple(y.shape)}")
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise InvalidValueError("class_weight needs labels, these are fractions; give (X, y, weight) instead")
    return y.long().reshape(-1)
