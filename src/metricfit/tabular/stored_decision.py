"""What every estimator that decides has, as JSON and arrays: parameters, classes, held-out rows and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.decide.decision import Decision
from metricfit.decide.decision import restore_decision as restored_decision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.refer import check_refer_label
from metricfit.errors import InvalidTypeError, ModelFileError, quote, shorten
from metricfit.metrics.metric import get_metric
from metricfit.tabular.description_checks import check_positive_number, label_type
from metricfit.tabular.families.family import MissingArgumentError
from metricfit.tabular.stored_shift import describe_shift, restore_shift, shift_arrays

#: Before the name of a column of costs, in the names of arrays.
COLUMN = "held_out.column."


def write_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of an estimator, those of the decision as JSON can hold them."""
    parameters: dict[str, Any] = model.get_params(deep=False)
    metric = get_metric(model.metric)
    parameters["metric"] = {"name": metric.name, "own": not metric.found_by_name}
    if model.subject_to is not None:
        several = [model.subject_to] if not isinstance(model.subject_to, (list, tuple)) else model.subject_to
        parameters["subject_to"] = [str(requirement) for requirement in several]
    parameters["pos_label"] = plain_label(model.pos_label)
    state = model.random_state
    parameters["random_state"] = int(state) if isinstance(state, (int, np.integer)) else None
    return parameters


def read_metric(metric: Mapping[str, Any], user_functions: Mapping[str, Any]) -> Any:
    """Return the stored metric, or the user's own function in its place.

    Raises:
        MissingArgumentError: The metric was a function of the user, which is not in the folder.
    """
    if metric["own"] and "metric" not in user_functions:
        raise MissingArgumentError(
            f"the metric {quote(metric['name'])} was the user's own function: load(path, metric=...)"
        )
    return user_functions.get("metric", metric["name"])


def describe_decision(model: Any) -> dict[str, Any]:
    """Return the classes, the features and the decision of a fitted estimator, as JSON holds them."""
    number, names = getattr(model, "n_features_in_", None), getattr(model, "feature_names_in_", None)
    return {
        "classes": {
            "dtype": model.classes_.dtype.str,
            "labels": [plain_label(label) for label in model.classes_.tolist()],
        },
        "features": {
            "number": None if number is None else int(number),
            "names": None if names is None else list(names),
        },
        "decision": model.decision_.state(),
        "refer_label": plain_label(model.refer_label_),
        "seed": model._seed,
        "training_share": model._training_share,
        "prior_shift": describe_shift(model),
    }


def decision_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """Return the held-out rows and the arrays of the decision of a fitted estimator."""
    held_out = model.held_out_
    arrays = {"shift": model.shift_, "order": model._order}
    arrays |= {"held_out.logits": held_out.logits, "held_out.y": held_out.y, "held_out.shares": held_out.shares}
    if model._pooled_logits is not None:
        arrays["held_out.pooled"] = model._pooled_logits
    if held_out.weight is not None:
        arrays["held_out.weight"] = held_out.weight
    if held_out.groups is not None:
        arrays["held_out.groups"] = np.unique(held_out.groups, return_inverse=True)[1]
    arrays |= {COLUMN + name: np.asarray(values) for name, values in held_out.columns.items()}
    return arrays | shift_arrays(model)


def restore_decision(model: Any, description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Set the classes, the features, the held-out rows and the decision of an estimator."""
    labels = description["classes"]["labels"]
    model.classes_ = np.array(labels, dtype=label_type(description["classes"]["dtype"], labels))
    if description["features"]["number"] is not None:
        model.n_features_in_ = int(description["features"]["number"])
    if description["features"]["names"] is not None:
        model.feature_names_in_ = np.array(description["features"]["names"], dtype=object)
    model._order, model._seed = arrays["order"], int(description["seed"])
    groups = arrays.get("held_out.groups")
    model.held_out_ = HeldOut(
        arrays["held_out.logits"],
        arrays["held_out.y"],
        arrays.get("held_out.weight"),
        None if groups is None else groups,
        arrays["held_out.shares"],
        {name.removeprefix(COLUMN): values for name, values in arrays.items() if name.startswith(COLUMN)},
    )
    model._pooled_logits = arrays.get("held_out.pooled")
    two_classes = len(model.classes_) == 2 and model.held_out_.y.ndim == 1
    model.pos_label_ = model.classes_.tolist()[model._order[1]] if two_classes else None
    model.shift_ = arrays["shift"]
    restore_shift(model, description.get("prior_shift"), arrays)
    model._training_share = _training_share(model, description)
    model.decision_ = _restored(description["decision"])
    model.refer_label_ = description.get("refer_label")
    if model.decision_.referral is not None:
        check_refer_label(model.refer_label_, model.classes_)


def _training_share(model: Any, description: Mapping[str, Any]) -> float:
    """Return the share of the rows that a fold trained on; folders that do not have it know the number of folds."""
    folds = getattr(model, "cv", None)
    share = description.get("training_share", 1 - 1 / folds if isinstance(folds, int) and folds > 1 else 1.0)
    check_positive_number("training_share", share)
    return float(share)


def plain_label(label: Any) -> Any:
    """Return a label as JSON has it.

    Raises:
        InvalidTypeError: It is neither text nor a number.
    """
    value = label.item() if isinstance(label, np.generic) else label
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidTypeError(f"labels of type {type(value).__name__} cannot be saved; train on text or numbers")


def _restored(state: Any) -> Decision:
    try:
        decision: Decision = restored_decision(state)
    except ValueError as error:
        raise ModelFileError(f"model.json: {shorten(error)}") from error
    return decision
