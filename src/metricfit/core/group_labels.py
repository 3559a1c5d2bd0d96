"""Groups of rows by any labels, as numbers from 0 on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metricfit.core.arrays import Integers
from metricfit.errors import InvalidTypeError, InvalidValueError, quote


class GroupLabels(NamedTuple):
    """The group number of each row, ``(n,)``, and the label of each number."""

    numbers: Integers
    names: tuple[Any, ...]


def number_groups(labels: Any, rows: int, argument: str = "group", names: Sequence[Any] | None = None) -> GroupLabels:
    """Number the groups of rows.

    Args:
        labels: One label per row: integers, texts or booleans, in a tensor, an array, a column of a table or a list.
        rows: The number of rows.
        argument: The name of ``labels`` in messages.
        names: The known labels in the order of their numbers. By default they are the labels that occur, sorted.

    Returns:
        The numbers and the labels.

    Raises:
        InvalidTypeError: The labels are not an array of integers or texts.
        InvalidValueError: There is not one label per row, a label is missing, or it is not one of ``names``.

    Example:
        >>> number_groups(["b", "a", "b"], 3)
        GroupLabels(numbers=array([1, 0, 1]), names=('a', 'b'))
    """
    values = _as_list(labels, argument)
    if len(values) != rows:
        raise InvalidValueError(f"{argument} needs one label per row, {rows}; got {len(values)}")
    for value in set(values):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise InvalidValueError(
                f"{argument} has rows without a group; give them a group of their own, or drop them"
            )
        if not isinstance(value, (int, str)) and not (isinstance(value, float) and value.is_integer()):
            raise InvalidTypeError(f"{argument} must be integers or texts, got {quote(value)}")
    known = sorted(set(values), key=lambda value: (isinstance(value, str), value)) if names is None else list(names)
    positions = {name: number for number, name in enumerate(known)}
    for value in set(values):
        if value not in positions:
            raise InvalidValueError(f"{argument} has {quote(value)}, which is not one of the groups {quote(known)}")
    return GroupLabels(np.array([positions[value] for value in values], dtype=np.int64), tuple(known))


def _as_list(labels: Any, argument: str) -> list[Any]:
    if isinstance(labels, str) or not (hasattr(labels, "tolist") or isinstance(labels, (list, tuple))):
        raise InvalidTypeError(f"{argument} must be one label per row, an array or a list; got {quote(labels)}")
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if not isinstance(values, list) or any(isinstance(value, list) for value in values):
        raise InvalidValueError(f"{argument} must be one label per row, of shape (n,)")
    return values
