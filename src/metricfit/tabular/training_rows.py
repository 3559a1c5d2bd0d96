"""From what a user passes to ``fit`` to checked rows of numbers and the settings of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, check_random_state

from metricfit.metrics.curves import as_requirements
from metricfit.metrics.metric import get_metric
from metricfit.tabular import inputs
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.member_training import Rows, Settings
from metricfit.tabular.parameters import check_parameters, training_settings
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of, training_weights

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


def prepare_rows(
    model: MetricClassifier, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[Rows, NDArray[np.float64] | None, Settings]:
    """Check what was passed to ``fit``, and set the model's classes and encoder.

    Returns:
        The rows as numbers, the sample weights, and how to train on the rows.
    """
    check_parameters(model)
    metric, requirements = get_metric(model.metric), as_requirements(model.subject_to)
    table = inputs.checked_table(model, X, reset=True)
    labels = inputs.checked_labels(model, y)
    check_consistent_length(table, labels)
    weight, group = inputs.checked_weights(sample_weight, table), inputs.checked_groups(groups, table)
    if weight is not None and not weight.all():  # rows of weight 0 count as absent
        weighted = weight > 0
        table, labels, weight = inputs.rows(table, weighted), labels[weighted], weight[weighted]
        group = None if group is None else group[weighted]
    model.classes_ = classes_of(labels)
    model._check_requirements(requirements)
    model.pos_label_ = choose_positive_class(labels, model.pos_label)
    model._order = order_of(model.classes_, model.pos_label_)
    number = model._numbers_of(labels)
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    model.encoder_ = TableEncoder()
    rows = Rows(
        torch.from_numpy(model.encoder_.fit(table)),
        number,
        training_weights(labels, model.classes_, model.class_weight, weight),
        group,
    )
    prior = float((number == 1).double().mean())
    settings = training_settings(model, metric, requirements, classes=len(model.classes_), prior=prior, seed=seed)
    return rows, weight, settings
