"""The classes of a model: which ones there are, which one is positive, their numbers and their shares."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit._schema import Labels
from metricfit.core.arrays import Integers
from metricfit.decide.class_requirements import class_requirements
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.requirements import Requirement

log = logging.getLogger("metricfit.tabular")


def classes_of(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the labels that occur, sorted; there must be at least two."""
    try:
        classes: NDArray[Any] = np.unique(labels)
    except TypeError:
        raise InvalidValueError("the labels in y are of several types that have no order: make them all text") from None
    if not len(labels):
        raise InvalidValueError("y has no rows")
    if len(classes) < 2:
        raise InvalidValueError(f"all rows are of one class, {quote(classes.tolist()[0])}: nothing to tell apart")
    return classes


def choose_positive_class(labels: NDArray[Any], pos_label: Any = None) -> Any:
    """Choose which of two classes is the positive one. This is the only place that holds the rule.

    1. ``pos_label``, if it is given.
    2. 1 of the labels 0 and 1 or of -1 and 1; True of booleans.
    3. Otherwise the class with fewer rows; if both have equally many, the later of the two in sorted order, as in
       scikit-learn. A choice by this step is logged.

    Args:
        labels: The labels, one per row. Rows are counted; weights play no part.
        pos_label: The label that the user named, or None.

    Returns:
        The positive label; None if there are more than two classes, because metrics are then averaged over classes.

    Raises:
        ValueError: If ``pos_label`` is not among the labels, or is given for more than two classes, or if there are
            fewer than two classes.

    Example:
        >>> choose_positive_class(np.array([0, 1, 1, 1]))
        1
        >>> choose_positive_class(np.array(["stays", "leaves", "stays"]))
        'leaves'
        >>> choose_positive_class(np.array(["stays", "leaves"]))
        'stays'
    """
    classes = classes_of(labels)
    names = classes.tolist()
    if pos_label is not None:
        if pos_label not in names:
            raise InvalidValueError(f"pos_label={pos_label!r} is none of the classes {names}")
        if len(names) > 2:
            raise InvalidValueError("pos_label is for two classes; of several, metrics are averaged (average=)")
        return names[names.index(pos_label)]
    if len(names) > 2:
        return None
    if names in ([0, 1], [-1, 1]):  # also 0.0 and 1.0, and False and True, which Python calls equal to 0 and 1
        return names[1]
    first, second = (int(np.count_nonzero(labels == label)) for label in classes)
    chosen, other = (names[0], names[1]) if first < second else (names[1], names[0])
    reason = (
        f"both classes have {first} rows and it is the later in sorted order"
        if first == second
        else f"it has {min(first, second)} rows and {other!r} has {max(first, second)}"
    )
    log.info("The positive class is %r, because %s; pos_label= chooses another.", chosen, reason)
    return chosen


def order_of(classes: NDArray[Any], positive: Any, declared: Sequence[Any] | None = None) -> NDArray[np.int64]:
    """Return, for each class number, its index in the sorted classes; the positive class of two has number 1.

    Args:
        classes: The classes, sorted.
        positive: The positive class of two; None for several classes.
        declared: Several classes in the order that their type declares (``metrics.class_order``).

    Example:
        >>> order_of(np.array(["no", "yes"]), "no")
        array([1, 0])
        >>> order_of(np.array(["high", "low", "medium"]), None, ["low", "medium", "high"])
        array([1, 2, 0])
    """
    order = np.arange(len(classes))
    if declared is not None and len(classes) > 2:
        place = {label: number for number, label in enumerate(declared)}
        return np.array(sorted(order, key=lambda index: place[classes.tolist()[index]]), dtype=np.int64)
    return order if positive is None or positive == classes.tolist()[1] else order[::-1].copy()


def shares_of(prevalence: float | Mapping[Any, float], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the share of each class, in the order of the class numbers; the positive class of two is second.

    >>> shares_of(0.25, np.array(["no", "yes"]))
    array([0.75, 0.25])
    """
    labels = classes.tolist()
    if isinstance(prevalence, Mapping):
        if set(prevalence) != set(labels):
            raise InvalidValueError(f"prevalence names {sorted(map(str, prevalence))}, the classes are {labels}")
        shares = np.array([prevalence[label] for label in labels], dtype=np.float64)
    elif len(labels) > 2 or np.ndim(prevalence):
        raise InvalidValueError(
            f"prevalence is the positive class's share, or of each class by its label: {{{labels[0]!r}: ...}}"
        )
    else:
        shares = np.array([1.0 - float(prevalence), float(prevalence)])
    if not (shares > 0).all() or not np.isclose(shares.sum(), 1.0):
        raise InvalidValueError(f"prevalence: shares lie between 0 and 1 and sum to 1, got {prevalence}")
    return shares


@dataclass(frozen=True)
class ClassNames:
    """The names of the classes or labels of a model, and their numbers.

    Attributes:
        classes: The labels, sorted; of several labels per row, the numbers of their columns.
        order: For each class number its place in ``classes``; the positive class of two has number 1.
        has_labels: Whether rows have several independent labels, and not one of several classes.

    Example:
        >>> names = ClassNames.of(np.array(["no", "yes", "no", "no"]))
        >>> names.positive, names.numbers_of(np.array(["yes", "no"]))
        ('yes', array([1, 0]))
    """

    classes: Labels
    order: Integers
    has_labels: bool = False

    def __post_init__(self) -> None:
        classes = len(self.classes)
        if classes < 2 or sorted(self.order.tolist()) != list(range(classes)):
            raise InvalidValueError(f"classes: {classes} of at least 2, and their order is of {len(self.order)}")

    @classmethod
    def of(
        cls, target: NDArray[Any], pos_label: Any = None, declared: Sequence[Any] | None = None, counted: Any = None
    ) -> ClassNames:
        """Return the classes of a target.

        Args:
            target: One label per row, or for several labels 0 and 1 ``(n, c)``.
            pos_label: The label that the user named as the positive one, or None.
            declared: The classes in the order that their type declares, or None.
            counted: The labels that are counted to choose the positive class; None for ``target``.
        """
        if target.ndim == 2:
            numbers = np.arange(target.shape[1])
            return cls(numbers, numbers, True)
        classes = classes_of(target)
        positive = choose_positive_class(target if counted is None else counted, pos_label)
        return cls(classes, order_of(classes, positive, declared))

    @property
    def in_order(self) -> NDArray[Any]:
        """The names in the order of their numbers."""
        names: NDArray[Any] = self.classes[self.order]
        return names

    @property
    def positive(self) -> Any:
        """The positive class of two; None for others."""
        return self.in_order.tolist()[1] if len(self.order) == 2 and not self.has_labels else None

    @property
    def outputs(self) -> int:
        """The number of logits per row."""
        return 1 if self.positive is not None else len(self.order)

    @property
    def places(self) -> Integers:
        """The number of each of ``classes``."""
        return np.argsort(self.order)

    @property
    def number(self) -> int:
        """The number of classes; 0 for several labels."""
        return 0 if self.has_labels else len(self.order)

    def numbers_of(self, labels: NDArray[Any]) -> Integers:
        """Return class numbers of labels, which are all among the classes."""
        return np.asarray(self.places[np.searchsorted(self.classes, labels)])

    def checked_numbers_of(self, labels: NDArray[Any]) -> Integers:
        """Return class numbers of labels that a user passes.

        Raises:
            InvalidValueError: There are other labels than the classes.
        """
        unknown = np.setdiff1d(labels, self.classes)
        if len(unknown):
            listed = ", ".join(quote(label) for label in unknown[:5].tolist())
            raise InvalidValueError(f"y has labels that were not there in fit: {listed}")
        return self.numbers_of(labels)

    def requirements(self, subject_to: Requirements | None) -> list[Requirement]:
        """Return requirements by class numbers, one for each class or label that they are about.

        Raises:
            InvalidValueError: A requirement is on a class that there is not.
        """
        names = None if self.has_labels else self.in_order.tolist()
        return class_requirements(as_requirements(subject_to), len(self.order), has_labels=self.has_labels, names=names)

    def by_label(self, values: Sequence[Any]) -> Any:
        """Return the value of the positive class of two, or of each class by its label."""
        labels = self.in_order.tolist()
        return values[1] if len(labels) == 2 else dict(zip(labels, values, strict=True))
