"""Decisions that need no model: what every method has to beat."""

from __future__ import annotations

import numpy as np
import torch

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.tabular.families.family import Integers

#: The baselines by name, and what each of them does.
BASELINES = {
    "all positive": "calling every row positive",
    "none positive": "calling no row positive",
    "largest class": "always deciding for the largest class",
    "at random": "deciding at random, by the shares of the classes",
}


def baseline_counts(train_y: Integers, test_y: Integers, classes: int) -> dict[str, Counts]:
    """Count the decisions of each baseline on the test rows.

    "at random" decides for each class with its share among the training rows. Its counts are the expected ones, so its
    value does not depend on a seed.

    Args:
        train_y: Class numbers of the training rows.
        test_y: Class numbers of the test rows.
        classes: The number of classes; of two, 1 is the positive one.

    Returns:
        The counts by the name of the baseline.

    Example:
        >>> counts = baseline_counts(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), 2)
        >>> counts["all positive"].fp, counts["at random"].tp
        (tensor([2.], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    shares = np.bincount(train_y, minlength=classes) / len(train_y)
    if classes > 2:
        return {
            "largest class": expected_counts(test_y, np.eye(classes)[int(shares.argmax())]),
            "at random": expected_counts(test_y, shares),
        }
    return {
        "all positive": expected_counts(test_y, np.array([0.0, 1.0])),
        "none positive": expected_counts(test_y, np.array([1.0, 0.0])),
        "at random": expected_counts(test_y, shares),
    }


def expected_counts(y: Integers, shares: np.typing.NDArray[np.float64]) -> Counts:
    """Return the expected counts if every row is decided for each class with this probability.

    Args:
        y: Class numbers.
        shares: The probability of each class; for two classes, the second is the positive one.

    Returns:
        Counts of the positive class of two, or of every class.
    """
    matrix = np.outer(np.bincount(y, minlength=len(shares)), shares)
    if len(shares) == 2:
        (tn, fp), (fn, tp) = matrix.tolist()
        return Counts(tp, fp, fn, tn)
    return ConfusionMatrix(torch.from_numpy(matrix))
