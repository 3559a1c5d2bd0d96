"""The requirements of an estimator, by the names of its classes."""

from __future__ import annotations

from typing import Any

from metricfit.decide.class_requirements import class_requirements
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.requirements import Requirement


def model_requirements(
    model: Any, subject_to: Requirements | None = "of the model", *, has_labels: bool | None = None
) -> list[Requirement]:
    """Return requirements with the classes of an estimator: ``recall['gold'] >= 0.9`` for each class they are about.

    Args:
        model: An estimator whose classes are known.
        subject_to: The requirements; by default those of the estimator.
        has_labels: Whether rows have several labels; by default as in the rows that the estimator was fitted on.

    Returns:
        The requirements, by class numbers, with the names of the classes in their texts. Of two classes they are about
        the positive one; of several labels they have the number of the label.

    Raises:
        InvalidValueError: A requirement is on a class that there is not.
    """
    several = as_requirements(model.subject_to if subject_to == "of the model" else subject_to)
    labels = model.classes_[model._order].tolist()
    if has_labels if has_labels is not None else model._has_labels:
        return class_requirements(several, len(labels), has_labels=True)
    return class_requirements(several, len(labels), names=labels)
