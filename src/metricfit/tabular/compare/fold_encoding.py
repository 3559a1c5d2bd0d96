"""The columns of a fold as numbers, encoded once for all trainings on the fold that follow one another in a process."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.family import Features


@dataclass(frozen=True)
class EncodedFold:
    """A fold as numbers.

    Attributes:
        encoder: What was learned of the columns of the training rows.
        training: The training rows as numbers.
        test: The test rows, as numbers and as they are.
        seconds: The time that encoding the training rows took.
    """

    encoder: TableEncoder
    training: NDArray[np.float32]
    test: Features
    seconds: float


#: The fold that was encoded last.
_latest: dict[Hashable, EncodedFold] = {}


def encode_fold(key: Hashable, training: pd.DataFrame, test: pd.DataFrame) -> EncodedFold:
    """Encode a fold, or return what was encoded before if it was the last fold.

    Args:
        key: What the rows depend on: the table, its folds and the number of the fold.
        training: The columns of the training rows.
        test: The columns of the test rows.

    Returns:
        The rows as numbers.
    """
    encoded = _latest.get(key)
    if encoded is None:
        start, encoder = time.perf_counter(), TableEncoder()
        numbers = encoder.fit(training)
        seconds = time.perf_counter() - start
        encoded = EncodedFold(encoder, numbers, Features(encoder.transform(test), test), seconds)
        _latest.clear()
        _latest[key] = encoded
    return encoded


def forget_encoded_fold() -> None:
    """Free the memory of the last fold."""
    _latest.clear()
