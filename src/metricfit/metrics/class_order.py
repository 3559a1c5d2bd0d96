"""The order of classes: as the user declares it with the type of the labels, and where a metric depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.metric import Metric


def declared_order(labels: Any) -> list[Any] | None:
    """Return the classes in the order that the type of the labels declares, also classes without a row.

    Args:
        labels: Labels in any form. An order is declared by an ordered Categorical of pandas, an Enum of polars, and an
            ordered dictionary of Arrow.

    Returns:
        The classes, the lowest first; None if the type declares no order.

    Example:
        >>> import pandas as pd
        >>> declared_order(pd.Categorical(["high", "low"], categories=["low", "medium", "high"], ordered=True))
        ['low', 'medium', 'high']
        >>> declared_order(["high", "low"]) is None
        True
    """
    candidates: tuple[Any, Any] = (labels, getattr(labels, "cat", None))
    for categorical in candidates:
        if getattr(categorical, "ordered", False) is True:
            return list(categorical.categories)
    dtype: Any = getattr(labels, "dtype", None)
    if type(dtype).__name__ == "Enum" and hasattr(dtype, "categories"):
        return list(dtype.categories)
    dictionary = getattr(labels, "combine_chunks", lambda: labels)()
    if getattr(getattr(dictionary, "type", None), "ordered", False) is True:
        return list(dictionary.dictionary.to_pylist())
    return None


def check_has_order(classes: Sequence[Any], declared: Sequence[Any] | None, metrics: Iterable[Metric]) -> None:
    """Refuse a metric that depends on the order of the classes, if they are words and no order is declared.

    Args:
        classes: The classes.
        declared: What ``declared_order`` returned for the labels.
        metrics: The metric, and the metrics of the requirements.

    Raises:
        InvalidValueError: The order is not known.

    Example:
        >>> from metricfit.metrics import get_metric
        >>> check_has_order(["high", "low", "medium"], None, [get_metric("f1")])
    """
    if declared is not None or len(classes) < 3 or not any(isinstance(label, str) for label in classes):
        return
    for metric in metrics:
        if metric.needs_matrix:
            listed = ", ".join(map(quote, classes[:4])) + (", ..." if len(classes) > 4 else "")
            raise InvalidValueError(
                f"{metric.base_name} depends on the order of the classes, and the labels are words: {listed}. Declare "
                "the order: y = pandas.Categorical(y, categories=[...], ordered=True) with the lowest class first; on "
                "the command line --order low,medium,high"
            )
