"""Requirements of the classes or labels at hand: class names become numbers, and "recall >= 0.9" is of every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.matrix import MatrixMetric
from metricfit.metrics.metric import Metric
from metricfit.metrics.requirements import Requirement

#: The metric of the negative class of two, in terms of the positive one.
OF_THE_NEGATIVE_CLASS = {
    "recall": "specificity",
    "specificity": "recall",
    "precision": "npv",
    "npv": "precision",
    "fpr": "fnr",
    "fnr": "fpr",
}


def class_requirements(
    requirements: Sequence[Requirement],
    classes: int,
    *,
    has_labels: bool = False,
    names: Sequence[Any] | None = None,
) -> list[Requirement]:
    """Return requirements on classes by their numbers, one for each class or label that they are about.

    A requirement without a class, such as ``recall >= 0.9``, is one on every class or label, as in
    ``AugmentedLagrangian``. Metrics of the whole confusion matrix, such as accuracy, have one value for several classes
    and one per label. Of two classes, requirements are about the positive one.

    Args:
        requirements: The requirements.
        classes: The number of classes or labels.
        has_labels: Whether rows have several labels, each of them there or not, and not one of several classes.
        names: The labels of the classes in the order of their numbers, if they are known; of two classes, the second
            is the positive one.

    Returns:
        The requirements, each of one class that has a number, or of the whole confusion matrix. Names of classes stay
        in their texts.

    Raises:
        InvalidValueError: There is no such class, a number could mean two classes, or a requirement is on costs in
            columns.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> floors = [parse_requirement("recall >= 0.8"), parse_requirement("precision[gold] >= 0.9")]
        >>> [str(each) for each in class_requirements(floors, 3, names=["bronze", "gold", "none"])]
        ["recall['bronze'] >= 0.8", "recall['gold'] >= 0.8", "recall['none'] >= 0.8", "precision['gold'] >= 0.9"]
    """
    found: dict[str, Requirement] = {}
    for requirement in requirements:
        metric = requirement.metric
        if metric.columns:
            raise InvalidValueError(f"{requirement}: a requirement has costs that are numbers, not columns")
        if metric.class_index is not None and metric.class_name is not None:
            several = [metric]  # its class is known already
        elif classes == 2 and not has_labels:
            several = [_of_two_classes(metric, names)]
        elif metric.of_one_class:
            several = [_of_class(metric, _class_number(metric, classes, names), names)]
        elif metric.whole_matrix and not has_labels:
            several = [metric]
        elif isinstance(metric, MatrixMetric):
            raise InvalidValueError(f"{requirement} is of classes; labels have no confusion matrix of all of them")
        else:
            several = [_of_class(metric, number, names) for number in range(classes)]
        for each in several:
            if not has_labels:
                check_class_index(classes, each)
            of_class = replace(requirement, metric=each)
            found[str(of_class)] = of_class
    return list(found.values())


def check_class_index(classes: int, metric: Metric) -> None:
    """Raise an error if a metric is of one class that there is not, as ``recall[2]``, or has costs of other classes.

    Raises:
        InvalidValueError: There is no such class; two classes have the counts of the positive one. Or the parameters
            of a metric of the whole confusion matrix are for another number of classes, or it is a gap between groups.
    """
    if isinstance(metric, GroupGap):
        raise InvalidValueError(
            f"{metric.name} is between groups, and one decision is made for all rows: name the metric to be best in, "
            f"and limit the gap with decide.best_group_thresholds(..., subject_to={f'{metric.name} <= 0.05'!r})"
        )
    if isinstance(metric, MatrixMetric):
        metric(ConfusionMatrix(np.ones((max(2, classes), max(2, classes)))))
    elif metric.of_one_class:
        ones = np.ones(1 if classes == 2 else classes)
        metric(Counts(ones, ones, ones, ones))


def _of_class(metric: Metric, number: int, names: Sequence[Any] | None) -> Metric:
    return metric.of_class(number, None if names is None else str(names[number]))


def _of_two_classes(metric: Metric, names: Sequence[Any] | None) -> Metric:
    """Return the metric of the positive class, which is the only one that two classes have counts of."""
    if metric.class_name is None:
        return metric
    if names is None:
        raise InvalidValueError(f"{metric.name}: two classes have the counts of the positive one; leave the class out")
    negative, positive = map(str, names)
    if metric.class_name == positive:
        return metric.of_class(0, positive)
    if metric.class_name != negative:
        raise InvalidValueError(f"{metric.name}: there is no such class; the classes are {_listed(names)}")
    same = OF_THE_NEGATIVE_CLASS.get(metric.base_name)
    hint = f" {metric.name} is {same}" if same is not None else f" pos_label={negative!r} makes it the positive one"
    raise InvalidValueError(
        f"{metric.name}: of two classes, requirements are about the positive one, here {positive!r}.{hint}"
    )


def _class_number(metric: Metric, classes: int, names: Sequence[Any] | None) -> int:
    """Return the number of the class that a metric is of.

    Raises:
        InvalidValueError: There is no such class, or a number could mean two.
    """
    texts, index = [str(name) for name in names or ()], metric.class_index
    if index is not None:
        if index >= classes:
            known = f"; the classes are {_listed(texts)}" if texts else ""
            raise InvalidValueError(f"{metric.name}: there are {classes} classes, 0 to {classes - 1}{known}")
        if texts and str(index) in texts and texts[index] != str(index):
            raise InvalidValueError(
                f"{metric.name} could be the class {index} or class number {index}, which is {texts[index]}: name the "
                f"class, as in {metric.of_class(None, str(index)).name} or {metric.of_class(None, texts[index]).name}"
            )
        return index
    if names is None:
        raise InvalidValueError(
            f"{metric.name} names a class, and classes have numbers here: write [k] with k from 0 to {classes - 1}"
        )
    if metric.class_name not in texts:
        raise InvalidValueError(f"{metric.name}: there is no such class; the classes are {_listed(texts)}")
    return texts.index(str(metric.class_name))


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(quote(str(name)) for name in names[:10]) + (", ..." if len(names) > 10 else "")
