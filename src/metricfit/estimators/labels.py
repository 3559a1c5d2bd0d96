"""Classes: which there are, which is the positive one, what share each has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def classes_of(labels: NDArray[Any]) -> NDArray[Any]:
    """The labels that occur, sorted; at least two."""
    try:
        classes: NDArray[Any] = np.unique(labels)
    except TypeError:
        raise ValueError("the labels in y are of several types that have no order: make them all text") from None
    if len(classes) < 2:
        raise ValueError(f"all rows are of one class, {classes[0]!r}: there is nothing to tell apart")
    return classes


def order_of(classes: NDArray[Any], pos_label: Any) -> NDArray[np.int64]:
    """For each class number its place among the sorted classes; of two classes the positive is number 1.

    >>> order_of(np.array(["no", "yes"]), "no")
    array([1, 0])
    """
    order = np.arange(len(classes))
    if pos_label is None:
        return order
    if pos_label not in classes.tolist():
        raise ValueError(f"pos_label={pos_label!r} is none of the classes {classes.tolist()}")
    if len(classes) > 2:
        raise ValueError("pos_label is for two classes; of several, metrics are averaged (average=)")
    return order if pos_label == classes[1] else order[::-1].copy()


def shares_of(prevalence: float | Mapping[Any, float], classes: NDArray[Any]) -> NDArray[np.float64]:
    """The share of each class, which are in the order of their numbers: of two the positive is the second.

    >>> shares_of(0.25, np.array(["no", "yes"]))
    array([0.75, 0.25])
    """
    labels = classes.tolist()
    if isinstance(prevalence, Mapping):
        if set(prevalence) != set(labels):
            raise ValueError(f"prevalence names {sorted(map(str, prevalence))}, the classes are {labels}")
        shares = np.array([prevalence[each] for each in labels], dtype=np.float64)
    elif len(labels) > 2 or np.ndim(prevalence):
        raise ValueError(
            f"prevalence is the positive class's share, or of each class by its label: {{{labels[0]!r}: ...}}"
        )
    else:
        shares = np.array([1.0 - float(prevalence), float(prevalence)])
    if not (shares > 0).all() or not np.isclose(shares.sum(), 1.0):
        raise ValueError(f"prevalence: shares lie between 0 and 1 and sum to 1, got {prevalence}")
    return shares
