"""The columns that a table may have: any metric of decisions by its name, and the other columns listed here."""

from __future__ import annotations

import re

from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric

#: Columns that are not a metric of decisions.
RANKINGS = ("auroc", "average_precision")
SECONDS = "seconds an epoch"
TIMES_BCE = "seconds, times BCE"
#: Columns of ensembles, on the test images or on all images of both classes.
FPR_AT = {"fpr at tpr 1": 1.0, "fpr at tpr 0.95": 0.95, "fpr at tpr 0.9": 0.9}
AUROC_OF_ONE = "auroc of one"
DELONG = "p of DeLong's test"
#: Against the base networks that were trained further without the constraint.
DELONG_CONTROL = f"{DELONG} against training on"
ON_ALL = ", all test images"
OF_ENSEMBLES = tuple(
    metric + images
    for metric in ("auroc", *FPR_AT, AUROC_OF_ONE, DELONG, DELONG_CONTROL)
    for images in ("", ON_ALL)
    if metric + images != "auroc"
)
#: Columns of paths.
PEARSON = "r of loss and metric"
BEST_WATCHED = "best watched value"
OF_PATHS = (PEARSON, BEST_WATCHED)
OTHERS = (*RANKINGS, SECONDS, TIMES_BCE, *OF_ENSEMBLES, *OF_PATHS)
#: Columns of several classes: the metric of one class, and the mean over all.
OF_CLASS = r"(.+) of class (\d+)"
MACRO = "macro "


def measures(kind: str, metric: str) -> bool:
    """Return whether rows of a kind have such a column.

    >>> measures("network", "f1"), measures("network", "recall of class 5"), measures("classes", "f1")
    (True, False, False)
    """
    if metric == SECONDS:
        return True
    of_classes = metric.startswith(MACRO) or re.fullmatch(OF_CLASS, metric) is not None
    if kind == "ensemble":
        return metric == "auroc" or metric in OF_ENSEMBLES
    if kind in ("classes", "searched classes"):
        return of_classes
    return not of_classes and metric not in OF_ENSEMBLES and (kind == "paths" or metric not in OF_PATHS)


def check_column(metric: str) -> None:
    """Raise an error if the text is neither a metric nor one of the other columns."""
    if metric in OTHERS:
        return
    of_class = re.fullmatch(OF_CLASS, metric)
    try:
        get_metric(of_class[1] if of_class else metric.removeprefix(MACRO))
    except ValueError as error:
        raise InvalidValueError(f"{error}. Other columns are {', '.join(OTHERS)}") from None
