"""Predictions for some rows at a time, in several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.tabular.families.family import Floats

#: The parts do not depend on the number of threads, so that the predictions do not either.
ROWS_PER_PART = 8192


def predict_in_parts(predict: Callable[[NDArray[np.float32]], Floats], x: NDArray[np.float32]) -> Floats:
    """Apply a function to parts of the rows, in as many threads as torch uses (``torch.set_num_threads``).

    Args:
        predict: Takes rows and returns one row of numbers for each; it runs in several threads at the same time.
        x: The rows.

    Returns:
        The results of all rows.
    """
    parts = [x[first : first + ROWS_PER_PART] for first in range(0, max(1, len(x)), ROWS_PER_PART)]
    threads = min(torch.get_num_threads(), len(parts))
    if threads == 1:
        return np.concatenate([predict(part) for part in parts])
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(predict, parts)))
