"""Confusion counts: the one thing every metric is a formula over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from metricfit.core.batch import ROUNDING, Thresholds, at_thresholds, full_precision
from metricfit.core.numerics import exact_dtype
from metricfit.core.steps import Step
from metricfit.core.task import canonical, check_finite, check_nan_logits, looks_at_values


@dataclass(frozen=True, eq=False)
class Counts:
    """True positives, false positives, false negatives and true negatives, each of shape ``(..., c)``.

    The last axis is the class axis; a binary problem has one class, its positive one. Counts add: the counts of two
    batches are the sum of theirs.

    >>> Counts(tp=3, fp=1, fn=2, tn=4).positives
    tensor([5.], dtype=torch.float64)
    """

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor
    #: Whether the classes exclude each other, as opposed to several yes-or-no questions of one sample.
    exclusive: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if all(isinstance(given, Tensor) for given in self):
            shapes = {tuple(given.shape) for given in self}
            if len(shapes) > 1:
                raise ValueError(f"tp, fp, fn and tn must have one shape, got {', '.join(map(str, sorted(shapes)))}")
            return
        for name in ("tp", "fp", "fn", "tn"):
            given = torch.as_tensor(getattr(self, name), dtype=torch.float64)
            object.__setattr__(self, name, given.reshape(1) if given.dim() == 0 else given)
        self.__post_init__()

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.tp, self.fp, self.fn, self.tn))

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        if self.tp.shape != other.tp.shape:
            raise ValueError(f"counts of shapes {tuple(self.tp.shape)} and {tuple(other.tp.shape)} do not add")
        sums = (mine + theirs for mine, theirs in zip(self, other, strict=True))
        return Counts(*sums, exclusive=self.exclusive and other.exclusive)

    def __radd__(self, other: int) -> Counts:
        return self if other == 0 else NotImplemented  # what sum() starts from

    def map(self, function: Callable[[Tensor], Tensor]) -> Counts:
        """Apply a function to each of the four, as in ``counts.map(torch.detach)``."""
        return Counts(*(function(given) for given in self), exclusive=self.exclusive)

    @property
    def positives(self) -> Tensor:
        """How many samples are of the class: tp + fn."""
        return self.tp + self.fn

    @property
    def negatives(self) -> Tensor:
        """How many samples are not of the class: fp + tn."""
        return self.fp + self.tn

    @property
    def predicted(self) -> Tensor:
        """How many samples are given to the class: tp + fp."""
        return self.tp + self.fp

    @property
    def n(self) -> Tensor:
        """How many samples there are."""
        return self.tp + self.fp + self.fn + self.tn

    @classmethod
    def soft(
        cls,
        logits: Tensor,
        target: Tensor,
        *,
        task: str | None = None,
        step: Step | None = None,
        threshold: Thresholds = None,
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        per_image: bool = False,
        group: Tensor | None = None,
        groups: int | None = None,
        validate: bool | None = None,
    ) -> Counts:
        """Differentiable counts: a sample counts for a class by ``step(probability, threshold)``.

        Binary and multilabel probabilities are sigmoids, the usual threshold 0.5 and the usual step Linear(0.1).
        Multiclass ones are a softmax, the usual threshold "dynamic" (the mean of a sample's two largest probabilities),
        the step Linear(0.2), and each sample's decisions are divided by their sum.

        Several thresholds give counts with a leading axis, ``(k, c)``; ``per_image=True`` one of images, ``(n, c)``;
        ``group``, a number from 0 to ``groups - 1`` for each row of the batch, one of groups, ``(groups, c)``.
        ``target`` may be soft: a sample of 0.3 is three tenths of a positive and seven of a negative.

        >>> Counts.soft(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).tp
        tensor([0.9523])
        """
        stacked, exclusive = soft_stack(
            logits,
            target,
            step,
            threshold,
            task=task,
            weight=weight,
            ignore_index=ignore_index,
            per_image=per_image,
            group=group,
            groups=groups,
            validate=validate,
        )
        return cls(*stacked, exclusive=exclusive)

    @classmethod
    def hard(
        cls,
        logits: Tensor,
        target: Tensor,
        *,
        task: str | None = None,
        threshold: Thresholds = None,
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        per_image: bool = False,
        group: Tensor | None = None,
        groups: int | None = None,
        validate: bool | None = None,
    ) -> Counts:
        """Counts of decisions, exact and without gradient; the arguments are those of ``soft``.

        Binary and multilabel decisions are ``sigmoid(logit) >= threshold``, compared in float32 for a threshold that
        float32 can hold and in float64 for any other, so that a threshold chosen by ``curves.best_threshold`` on
        ``logits.sigmoid()``, of any floating type, gives the value that it was chosen for. A multiclass decision is the
        argmax, the first on ties, whatever the threshold.

        >>> Counts.hard(torch.tensor([2.0, -2.0]), torch.tensor([1, 0])).tn
        tensor([1.], dtype=torch.float64)
        """
        batch = canonical(
            logits.detach() if isinstance(logits, Tensor) else logits,
            target,
            task=task,
            weight=weight,
            ignore_index=ignore_index,
            per_image=per_image,
            group=group,
            groups=groups,
            validate=validate,
        )
        if looks_at_values(batch.logits, validate):
            check_nan_logits(batch.logits)
        with full_precision(batch.logits.device):
            stacked = at_thresholds(batch.hard, threshold, batch, soft=False)
        return cls(*stacked, exclusive=batch.exclusive)

    @classmethod
    def from_labels(
        cls,
        predicted: Tensor,
        target: Tensor,
        *,
        num_classes: int | None = None,
        weight: Tensor | None = None,
    ) -> Counts:
        """Counts of labels against labels: 0/1 labels give the positive class alone, ``num_classes`` one entry a class.

        >>> Counts.from_labels(torch.tensor([1, 1, 0]), torch.tensor([1, 0, 0])).fp
        tensor([1.], dtype=torch.float64)
        >>> Counts.from_labels(torch.tensor([2, 1, 0]), torch.tensor([2, 0, 0]), num_classes=3).tp
        tensor([1., 0., 1.], dtype=torch.float64)
        """
        predicted, target = torch.as_tensor(predicted), torch.as_tensor(target)
        if predicted.dim() > 1 and predicted.shape[1:].numel() != 1:
            raise ValueError(
                f"labels must have shape (n,) or (n, 1), got {tuple(predicted.shape)}; flatten pixels first"
            )
        predicted, target = predicted.reshape(-1), target.reshape(-1)
        if predicted.shape != target.shape:
            raise ValueError(f"{len(predicted)} predicted labels for {len(target)} targets")
        exact = exact_dtype(target.device)
        weights = (
            torch.ones_like(target, dtype=exact) if weight is None else torch.as_tensor(weight).reshape(-1).to(exact)
        )
        if weights.shape != target.shape:
            raise ValueError(f"{len(weights)} weights for {len(target)} targets")
        if not bool(((weights >= 0) & weights.isfinite()).all()):
            raise ValueError("weights must be finite and at least 0")
        classes = 2 if num_classes is None else num_classes
        _check_range(predicted, "predicted", classes, num_classes is None)
        _check_range(target, "target", classes, num_classes is None)
        predicted, target = predicted.long(), target.long()
        right = predicted == target
        tp, fn, fp = (
            torch.zeros(classes, dtype=exact, device=target.device).index_add_(0, index, weights * chosen)
            for index, chosen in ((target, right), (target, ~right), (predicted, ~right))
        )
        rest = weights.sum() - tp - fn - fp
        counts = cls(tp, fp, fn, torch.where(rest > ROUNDING * weights.sum(), rest, 0.0))
        return counts.map(lambda given: given[1:]) if num_classes is None else counts


def soft_stack(
    logits: Tensor, target: Tensor, step: Step | None, threshold: Thresholds, *, validate: bool | None, **settings: Any
) -> tuple[Tensor, bool]:
    """The soft counts as one tensor, ``(4, ..., c)``, and whether their classes exclude each other."""
    batch = canonical(logits, target, validate=validate, **settings)
    chosen = batch.default_step if step is None else step
    with full_precision(batch.logits.device):
        stacked = at_thresholds(lambda t: batch.soft(chosen, t), threshold, batch)
    if looks_at_values(batch.logits, validate):
        check_finite(stacked.detach(), batch.logits)
    return stacked, batch.exclusive


def _check_range(labels: Tensor, name: str, classes: int, binary: bool) -> None:
    if labels.is_floating_point() and bool((labels != labels.round()).any()):
        raise ValueError(f"{name} must hold labels, got fractions; threshold scores first, or use Counts.hard")
    if labels.numel() and bool((labels.min() < 0) | (labels.max() >= classes)):
        low, high = float(labels.min()), float(labels.max())
        hint = "; give num_classes= for more than two classes" if binary else ""
        raise ValueError(f"{name} labels must lie in 0..{classes - 1}, got {low:g} to {high:g}{hint}")
