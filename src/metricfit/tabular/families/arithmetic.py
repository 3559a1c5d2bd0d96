"""Arithmetic that families share: logits, losses, rows set apart, predictions in parts, checks of stored arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Floats, Integers
from metricfit.core.threads import thread_count
from metricfit.errors import ModelFileError


def to_logits(probabilities: Floats, classes: int) -> Floats:
    """Convert probabilities ``(n, c)`` above 0 to logits: ``(n, 1)`` for two classes, log-probabilities for several.

    >>> to_logits(np.array([[0.25, 0.75]]), 2).round(2)
    array([[1.1]])
    """
    logs = np.log(probabilities)
    return np.asarray(logs[:, 1:] - logs[:, :1] if classes == 2 else logs)


def log_losses(logits: Floats, y: Integers) -> Floats:
    """Return the cross-entropy of each row of logits ``(..., n, 1)`` of two classes or ``(..., n, c)`` of several.

    >>> log_losses(np.array([[0.0], [2.0]]), np.array([0, 1])).round(3)
    array([0.693, 0.127])
    """
    if logits.shape[-1] == 1:
        return np.logaddexp(0.0, np.where(y == 1, -logits[..., 0], logits[..., 0]))
    return np.asarray(np.logaddexp.reduce(logits, axis=-1) - logits[..., np.arange(len(y)), y])


def cross_entropy(logits: Floats, y: Integers, weight: Floats | None) -> float:
    """Return the summed cross-entropy of logits ``(n, 1)`` or ``(n, c)``."""
    losses = log_losses(logits, y)
    return float(losses.sum() if weight is None else losses @ weight)


#: The largest share and number of the training rows that are set apart to choose settings on.
APART_SHARE, MOST_APART = 1 / 8, 50_000


def set_apart(train: Integers, y: Integers, seed: int = 0) -> tuple[Integers, Integers]:
    """Set training rows apart to choose settings on, where there are no other folds to choose them.

    Args:
        train: The numbers of the training rows.
        y: The class numbers of all rows.
        seed: Seed of the draw.

    Returns:
        The rows that stay, among them a row of each class, and the rows apart: an eighth of each class that has several
        rows, but at least one, and at most 50,000 rows in all.

    Example:
        >>> stay, apart = set_apart(np.arange(32), np.repeat([0, 1], [24, 8]))
        >>> len(stay), len(apart)
        (28, 4)
    """
    generator = np.random.default_rng(seed)
    share = min(APART_SHARE, MOST_APART / len(train))
    labels, drawn = y[train], []
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        number = max(1, round(share * len(of_class))) if len(of_class) > 1 else 0
        drawn.append(generator.choice(of_class, number, replace=False, shuffle=False))
    is_apart = np.zeros(len(train), dtype=bool)
    is_apart[np.concatenate(drawn)] = True
    return train[~is_apart], train[is_apart]


def check_shape(name: str, array: NDArray[Any], shape: Sequence[int | None]) -> None:
    """Refuse an array of a folder that has another shape; None allows any size.

    Raises:
        ModelFileError: It has another shape.
    """
    if array.ndim != len(shape) or any(
        size not in (None, actual) for size, actual in zip(shape, array.shape, strict=False)
    ):
        expected = " x ".join("any" if size is None else str(size) for size in shape)
        raise ModelFileError(f"{name} has the shape {array.shape}, expected {expected}")


def check_indices(name: str, array: Integers, size: int | None, least: int, end: int) -> None:
    """Refuse numbers of a folder that are no list of this size, or not all from ``least`` to below ``end``.

    Raises:
        ModelFileError: It is something else.
    """
    check_shape(name, array, (size,))
    if array.size and not (least <= int(array.min()) and int(array.max()) < end):
        raise ModelFileError(f"{name} has numbers outside of {least} to {end - 1}")


#: Rows that a thread predicts at a time. The parts do not depend on the number of threads, so that the predictions do
#: not either.
ROWS_PER_PART = 8192


def predict_in_parts(predict: Callable[[NDArray[np.float32]], Floats], x: NDArray[np.float32]) -> Floats:
    """Apply a function to parts of the rows, in as many threads as torch would use.

    Args:
        predict: Takes rows and returns one row of numbers for each; it runs in several threads at the same time.
        x: The rows.

    Returns:
        The results of all rows.
    """
    parts = [x[first : first + ROWS_PER_PART] for first in range(0, max(1, len(x)), ROWS_PER_PART)]
    threads = min(thread_count(), len(parts))
    if threads == 1:
        return np.concatenate([predict(part) for part in parts])
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(predict, parts)))
