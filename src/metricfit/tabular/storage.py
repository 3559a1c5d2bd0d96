"""A fitted MetricClassifier as a folder, and back.

Loading builds models of classes that are named in this package, and scikit-learn models of types that skops or the user
trusts (``model_folder``).
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit._files import to_json_value
from metricfit.metrics.metric import get_metric
from metricfit.tabular.description_checks import check_description
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import ModelRow
from metricfit.tabular.families.family import Expected, Features
from metricfit.tabular.families.skops_files import trusted_types
from metricfit.tabular.model_card import model_card
from metricfit.tabular.model_folder import read_folder, write_folder
from metricfit.tabular.storage_checks import check_consistent
from metricfit.tabular.stored_decision import (
    decision_arrays,
    describe_decision,
    plain_label,
    read_metric,
    restore_decision,
    write_parameters,
)
from metricfit.tabular.stored_ensemble import check_logits, read_ensemble, write_ensemble
from metricfit.tabular.stored_parameters import read_parameter, write_parameter

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

#: Parameters that may hold models, networks or splitters.
OBJECTS = ("models", "cv")


def save(
    model: MetricClassifier,
    path: str | os.PathLike[str],
    trusted: Any = None,
    *,
    data: str | None = None,
    target: str | None = None,
) -> None:
    """Write a fitted model to a new or empty folder; a failure leaves nothing behind.

    Args:
        model: The fitted model.
        path: The folder.
        trusted: Names of types of the user's own models, beside those that skops trusts.
        data: Name of the table, for the model card.
        target: Name of the predicted column, for the model card.

    Raises:
        UntrustedTypeError: A model of the user has other types.
        InvalidTypeError: A model, a splitter or a label cannot be saved.
    """
    arrays, files = _arrays(model), dict[str, bytes]()
    description = _description(model, arrays, files)
    card = model_card(model, data=data, target=target)
    write_folder(path, type(model).__name__, description, arrays, files, trusted_types(trusted), card)


def load(model: MetricClassifier, path: str | os.PathLike[str], trusted: Any = None, **user_functions: Any) -> None:
    """Fill an estimator from a folder.

    Args:
        model: The estimator, with its default parameters.
        path: The folder that `save` wrote.
        trusted: Names of types of the user's own models, beside those that skops trusts.
        user_functions: The user's own ``metric`` or ``network``, which is not in the folder.

    Raises:
        ModelFileError: The folder is damaged, or what it holds is no model that this version can use.
        UntrustedTypeError: A model of the user has types that nobody trusts; nothing was built.
        MissingArgumentError: A function of the user is needed.
    """
    names = trusted_types(trusted)
    if "metric" in user_functions:
        get_metric(user_functions["metric"])  # a mistake in the argument is not the folder's fault

    def restore(description: Any, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> None:
        _restore(model, description, arrays, files, names, user_functions)

    read_folder(path, type(model).__name__, names, restore)


def _description(model: MetricClassifier, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
    """Return what JSON holds; arrays and files of the ensemble are added to the dictionaries."""
    parameters = write_parameters(model)
    for name in OBJECTS:
        parameters[name] = write_parameter(name, parameters[name], files)
    if isinstance(model.class_weight, dict):
        parameters["class_weight"] = [[plain_label(key), float(value)] for key, value in model.class_weight.items()]
    return {
        "parameters": parameters,
        "ensemble": write_ensemble(model.ensemble_, arrays, files),
        "models": [to_json_value(vars(row)) for row in model.models_],
        "table": model.encoder_.state(),
        "history": to_json_value(model.history_),
        **describe_decision(model),
    }


def _arrays(model: MetricClassifier) -> dict[str, NDArray[Any]]:
    arrays = {f"table.{name}": np.asarray(array) for name, array in model.encoder_.arrays().items()}
    return arrays | decision_arrays(model)


def _restore(
    model: MetricClassifier,
    description: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    files: dict[str, bytes],
    trusted: tuple[str, ...],
    user_functions: dict[str, Any],
) -> None:
    check_description(description, model.get_params(deep=False))
    network = user_functions.get("network")
    parameters = description["parameters"]
    parameters["metric"] = read_metric(parameters["metric"], user_functions)
    for name in OBJECTS:
        parameters[name] = read_parameter(parameters.get(name), files, trusted=trusted, network=network)
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    model.set_params(**parameters)
    restore_decision(model, description, arrays)
    tables = {name.removeprefix("table."): each for name, each in arrays.items() if name.startswith("table.")}
    model.encoder_ = TableEncoder.restored(description["table"], tables)
    expected = Expected(model.encoder_.scaling.width, len(model.classes_), trusted, network)
    model.ensemble_ = read_ensemble(description["ensemble"], arrays, files, expected)
    model.models_ = [ModelRow(**row) for row in description["models"]]
    model.history_ = [
        {name: math.nan if value is None else value for name, value in row.items()} for row in description["history"]
    ]
    check_consistent(model)
    model._show_decision()
    _predict_one_row(model, expected)


def _predict_one_row(model: MetricClassifier, expected: Expected) -> None:
    """Use the model on a row without entries, which fails where its parts do not fit together."""
    row = np.full((1, model.n_features_in_), np.nan, dtype=float if model.encoder_.columns is None else object)
    table = pd.DataFrame(row, columns=getattr(model, "feature_names_in_", None))
    check_logits(model.ensemble_, Features(model.encoder_.transform(table)), expected)
