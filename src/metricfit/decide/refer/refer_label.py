"""The label of rows that are referred to a person, beside the labels of the classes."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidTypeError, InvalidValueError, quote


def check_refer_label(label: Any, classes: NDArray[Any]) -> None:
    """Refuse a label that is a class, or that is neither text nor a whole number.

    Raises:
        InvalidTypeError: It is neither.
        InvalidValueError: It is a class, or would be taken for one.
    """
    if isinstance(label, bool) or not isinstance(label, (str, Integral)):
        raise InvalidTypeError(f"the label of referred rows is text or a whole number, got {quote(label)}")
    if str(label) in {str(name) for name in classes.tolist()}:
        raise InvalidValueError(f"the label of referred rows, {quote(label)}, is one of the classes: give another")


def labels_with_referred(decided: NDArray[np.int64], names: NDArray[Any], label: Any) -> NDArray[Any]:
    """Return the names of decided classes, and the label where a row is referred.

    Args:
        decided: Class numbers, -1 for rows that are referred.
        names: The name of each class number.
        label: The label of referred rows.

    Returns:
        An array of text if all names and the label are text, of integers if all are whole numbers, otherwise of
        objects.

    Example:
        >>> labels_with_referred(np.array([0, -1, 1]), np.array(["no", "yes"]), "refer")
        array(['no', 'refer', 'yes'], dtype='<U5')
        >>> labels_with_referred(np.array([0, -1, 1]), np.array([0, 1]), -9)
        array([ 0, -9,  1])
        >>> labels_with_referred(np.array([0, -1, 1]), np.array([0, 1]), "refer")
        array([0, 'refer', 1], dtype=object)
    """
    if names.dtype.kind == "U" and isinstance(label, str):
        return np.append(names, label)[decided]
    if names.dtype.kind in "iu" and not isinstance(label, str):
        return np.append(names.astype(np.int64), np.int64(label))[decided]
    values = np.empty(len(names) + 1, dtype=object)
    values[:] = [*names.tolist(), label]
    return values[decided]
