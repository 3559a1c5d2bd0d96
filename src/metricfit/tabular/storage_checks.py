"""Whether what a folder holds is one model: hashes do not tell of a folder that was edited with its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metricfit.decide.class_requirements import model_requirements
from metricfit.decide.costs import check_costs
from metricfit.errors import ModelFileError, shorten
from metricfit.metrics.metric import get_metric
from metricfit.metrics.metric_parameters import LARGEST_PARAMETER
from metricfit.tabular.parameters import check_parameters

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier


def check_consistent(model: MetricClassifier) -> None:
    """Refuse a restored model whose parts do not fit together, with a reason: it would fail, or be wrong, later."""
    columns = model.encoder_.features
    faults = decision_faults(model)
    if model.n_features_in_ != columns:
        faults.append(f"features: {model.n_features_in_}, of a table of {columns} columns")
    try:
        check_parameters(model)
    except (ValueError, TypeError) as error:
        faults.append(f"parameters: {shorten(error)}")
    raise_faults(faults)


def decision_faults(model: Any) -> list[str]:
    """Return what is wrong with the classes, the held-out rows and the decision of a restored estimator."""
    held_out, decision = model.held_out_, model.decision_
    columns, pooled = held_out.columns, model._pooled_rows().logits
    classes, has_labels, rows = len(model.classes_), held_out.y.ndim == 2, len(held_out.y)
    outputs = 1 if classes == 2 and not has_labels else classes
    places, most = sorted(model._order.tolist()), 2 if has_labels else classes
    found = [
        ("classes", classes < 2, f"{classes} of at least 2"),
        ("classes", len(np.unique(model.classes_)) != classes, "a label stands there twice"),
        ("classes", places != list(range(classes)), f"their order is of {len(places)}, there are {classes}"),
        ("features", _names_differ(model), "their names are more or fewer than their number"),
        ("class balance", len(model.shift_) != outputs, "another number of shifts than of outputs"),
        ("held-out rows", tuple(held_out.logits.shape) != (rows, outputs), "logits and labels of other shapes"),
        (
            "held-out rows",
            has_labels and held_out.y.shape != held_out.logits.shape,
            "logits and labels of other shapes",
        ),
        ("held-out rows", pooled.shape != held_out.logits.shape, "pooled logits of another shape"),
        ("held-out rows", len(held_out.shares) != classes, "another number of shares than of classes"),
        ("held-out rows", not bool(((held_out.y >= 0) & (held_out.y < most)).all()), "labels of other classes"),
    ]
    task = "multilabel" if has_labels else "binary" if outputs == 1 else "multiclass"
    of = f"it is {decision.task}, for {decision.outputs} logits per row, and the rows are {task}, with {outputs}"
    found.append(("decision", (decision.task, decision.outputs) != (task, outputs), of))
    found.append(("decision", decision.of_row_costs != bool(columns), "costs of rows need columns"))
    for name, values in columns.items():
        wrong = values.shape != (rows,) or not bool(((values >= 0) & (values <= LARGEST_PARAMETER)).all())
        found.append(("held-out rows", wrong, f"the column {name} does not hold one cost per row"))
    faults = [f"{part}: {reason}" for part, wrong, reason in found if wrong]
    if faults:  # requirements are on classes, which must be right first
        return faults
    try:
        requirements = model_requirements(model)
        check_costs(get_metric(model.metric), columns, 0 if has_labels else classes, requirements)
    except (ValueError, TypeError) as error:
        faults.append(f"parameters: {shorten(error)}")
    return faults


def raise_faults(faults: list[str]) -> None:
    """Raise an error that names all faults, if there are any.

    Raises:
        ModelFileError: There are some.
    """
    if faults:
        raise ModelFileError("; ".join(faults))


def _names_differ(model: Any) -> bool:
    names = getattr(model, "feature_names_in_", None)
    return names is not None and len(names) != getattr(model, "n_features_in_", None)
