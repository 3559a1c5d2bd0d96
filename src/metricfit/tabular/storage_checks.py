"""Whether what a folder holds is one model: hashes do not tell of a folder that was edited with its manifest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from metricfit.errors import ModelFileError, shorten
from metricfit.metrics.curves import as_requirements
from metricfit.metrics.metric import get_metric
from metricfit.tabular.parameters import check_parameters

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


def check_consistent(model: MetricClassifier) -> None:
    """Refuse a restored model whose parts do not fit together, with a reason: it would fail, or be wrong, later."""
    faults = _faults(model)
    if faults:
        raise ModelFileError("; ".join(faults))


def _faults(model: MetricClassifier) -> list[str]:
    classes = len(model.classes_)
    outputs = 1 if classes == 2 else classes
    places = sorted(model._order.tolist())
    columns = model.encoder_.features
    held_out, decision = model.held_out_, model.decision_
    rows = len(held_out.y)
    found = [
        ("classes", classes < 2, f"{classes} of at least 2"),
        ("classes", len(np.unique(model.classes_)) != classes, "a label stands there twice"),
        ("classes", places != list(range(classes)), f"their order is of {len(places)}, there are {classes}"),
        ("features", model.n_features_in_ != columns, f"{model.n_features_in_}, of a table of {columns} columns"),
        ("features", _names_differ(model), "their names are more or fewer than their number"),
        ("class balance", len(model.shift_) != outputs, "another number of shifts than of outputs"),
        ("held-out rows", tuple(held_out.logits.shape) != (rows, outputs), "logits and labels of other shapes"),
        ("held-out rows", len(held_out.shares) != classes, "another number of shares than of classes"),
        ("held-out rows", not bool(((held_out.y >= 0) & (held_out.y < classes)).all()), "labels of other classes"),
    ]
    if classes == 2:
        threshold = decision.threshold
        found.append(("decision", threshold is None or not math.isfinite(threshold), f"threshold {threshold}"))
    else:
        offsets = decision.offsets
        found.append(("decision", offsets is None or len(offsets) != classes, "another number of offsets than classes"))
    faults = [f"{part}: {reason}" for part, wrong, reason in found if wrong]
    try:
        get_metric(model.metric)
        as_requirements(model.subject_to)
        check_parameters(model)
    except (ValueError, TypeError) as error:
        faults.append(f"parameters: {shorten(error)}")
    return faults


def _names_differ(model: MetricClassifier) -> bool:
    names = getattr(model, "feature_names_in_", None)
    return names is not None and len(names) != model.n_features_in_
