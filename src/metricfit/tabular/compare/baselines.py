"""Decisions that need no model: what every method has to beat."""

from __future__ import annotations

import numpy as np
import torch

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.tabular.families.family import Floats, Integers

#: The baselines by name, and what each of them does.
BASELINES = {
    "all positive": "calling every row positive",
    "none positive": "calling no row positive",
    "largest class": "always deciding for the largest class",
    "at random": "deciding at random, by the shares of the classes",
}


def baseline_shares(train_y: Integers, classes: int) -> dict[str, Floats]:
    """Return with which probability each baseline decides every row for each class.

    "at random" decides for each class with its share among the training rows.

    Args:
        train_y: Class numbers of the training rows.
        classes: The number of classes; of two, 1 is the positive one.

    Returns:
        The probability of each class, by the name of the baseline.

    Example:
        >>> baseline_shares(np.array([0, 0, 0, 1]), 2)["at random"]
        array([0.75, 0.25])
    """
    shares = np.bincount(train_y, minlength=classes) / len(train_y)
    if classes > 2:
        return {"largest class": np.eye(classes)[int(shares.argmax())], "at random": shares}
    return {"all positive": np.array([0.0, 1.0]), "none positive": np.array([1.0, 0.0]), "at random": shares}


def expected_counts(y: Integers, shares: Floats) -> Counts:
    """Return the expected counts if every row is decided for each class with this probability.

    They do not depend on a seed.

    Args:
        y: Class numbers.
        shares: The probability of each class; for two classes, the second is the positive one.

    Returns:
        Counts of the positive class of two, or of every class.

    Example:
        >>> expected_counts(np.array([0, 0, 1, 1]), np.array([0.75, 0.25])).tp
        tensor([0.5000], dtype=torch.float64)
    """
    matrix = np.outer(np.bincount(y, minlength=len(shares)), shares)
    if len(shares) == 2:
        (tn, fp), (fn, tp) = matrix.tolist()
        return Counts(tp, fp, fn, tn)
    return ConfusionMatrix(torch.from_numpy(matrix))
