"""Where boosting starts: the logits of the classes' shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.boosting.library_rows import check_labels, check_weights
from metricfit.errors import InvalidValueError

#: A class without rows starts as if it had this share.
SMALLEST_SHARE = 1e-6


def prior_logits(
    y: Any, sample_weight: Any = None, *, classes: int | None = None, rows: int | None = None
) -> NDArray[np.float64]:
    """Return the logits of the classes' shares, where boosting for a metric should start.

    The counts of a metric say little while all probabilities are 0.5, which is about where libraries start beside an
    objective that is a function. With ``rows``, the result is the ``init_score`` of LightGBM and the ``base_margin`` of
    XGBoost.

    Args:
        y: Class numbers from 0, of the training rows.
        sample_weight: One weight per row, at least 0; by default all are 1.
        classes: The number of classes; by default the largest class number plus one, and at least 2.
        rows: Repeat the logits for this many rows.

    Returns:
        The log-odds of class 1, ``(1,)``, for two classes; the logarithms of the shares, ``(c,)``, for several. With
        ``rows``, the same for each row: ``(rows,)`` or ``(rows, c)``.

    Raises:
        InvalidValueError: If there are no rows, the labels are not class numbers, or the weights cannot be used.

    Example:
        >>> prior_logits([0, 0, 0, 1]).round(2)
        array([-1.1])
        >>> prior_logits([0, 0, 0, 1], rows=2).round(2)
        array([-1.1, -1.1])
    """
    labels = np.asarray(y)
    if classes is not None and classes < 2:
        raise InvalidValueError(f"there are at least 2 classes; got classes={classes}")
    if labels.size == 0:
        raise InvalidValueError("y is empty: there are no rows to take the shares of")
    label = check_labels(labels, classes)
    number = max(2, int(label.max()) + 1) if classes is None else classes
    shares = np.bincount(label, weights=check_weights(sample_weight, len(label)), minlength=number)
    if not shares.sum() > 0:
        raise InvalidValueError("all weights are 0")
    shares = np.maximum(shares / shares.sum(), SMALLEST_SHARE)
    logits = np.asarray([np.log(shares[1] / shares[0])] if number == 2 else np.log(shares))
    if rows is None:
        return logits
    return np.full(rows, logits[0]) if number == 2 else np.tile(logits, (rows, 1))
