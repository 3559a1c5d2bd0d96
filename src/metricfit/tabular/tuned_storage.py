"""A fitted TunedDecisionClassifier as a folder, and back: JSON, arrays, and the estimator as a file of skops."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricfit.decide.calibration import Calibration
from metricfit.errors import ModelFileError, quote, shorten
from metricfit.metrics.metric import get_metric
from metricfit.tabular.description_checks import check_decision_description, check_positive_number
from metricfit.tabular.estimator_scores import check_has_scores
from metricfit.tabular.families.skops_files import model_from_bytes, model_to_bytes, trusted_types
from metricfit.tabular.model_card import model_card
from metricfit.tabular.model_folder import read_folder, write_folder
from metricfit.tabular.storage_checks import decision_faults, raise_faults
from metricfit.tabular.stored_decision import (
    decision_arrays,
    describe_decision,
    read_metric,
    restore_decision,
    write_parameters,
)
from metricfit.tabular.stored_parameters import read_parameter, write_parameter

if TYPE_CHECKING:
    from metricfit.tabular.tuned import TunedDecisionClassifier

FITTED, FOLD = "estimator.skops", "fold-{}.skops"
#: In place of the parameter ``estimator``, if it is the fitted estimator itself.
SAME = "fitted"


def save(model: TunedDecisionClassifier, path: str | os.PathLike[str], trusted: Any) -> None:
    """Write a fitted model to a new or empty folder; a failure leaves nothing behind.

    Args:
        model: The fitted model.
        path: The folder.
        trusted: Names of types of the estimator, beside those that skops trusts.

    Raises:
        UntrustedTypeError: The estimator has other types.
        InvalidTypeError: The estimator, a splitter or a label cannot be saved.
    """
    files = {FOLD.format(fold): model_to_bytes(each) for fold, each in enumerate(model.estimators_)}
    if model._one_estimator is not None:
        files[FITTED] = model_to_bytes(model._one_estimator)
    parameters = write_parameters(model)
    is_same = model.estimator is model._one_estimator
    parameters["estimator"] = SAME if is_same else write_parameter("estimator", model.estimator, files)
    parameters["cv"] = write_parameter("cv", model.cv, files)
    parameters["ensemble"] = bool(model.ensemble)
    arrays = decision_arrays(model) | {
        "calibration.temperature": np.asarray(model.calibration_.temperature, np.float64).reshape(-1),
        "calibration.bias": model.calibration_.bias,
    }
    description = {
        "parameters": parameters,
        "smallest_probability": model.smallest_probability_,
        "folds": len(model.estimators_),
        "mean_of_folds": model._one_estimator is None,
        **describe_decision(model),
    }
    write_folder(path, type(model).__name__, description, arrays, files, trusted_types(trusted), model_card(model))


def load(model: TunedDecisionClassifier, path: str | os.PathLike[str], trusted: Any, user_functions: Any) -> None:
    """Fill an estimator from a folder.

    Args:
        model: The estimator, with its default parameters.
        path: The folder that `save` wrote.
        trusted: Names of types of the estimator, beside those that skops trusts.
        user_functions: The user's own ``metric``, which is not in the folder.

    Raises:
        ModelFileError: The folder is damaged, or what it holds is no model that this version can use.
        UntrustedTypeError: The estimator has types that nobody trusts; nothing was built.
        MissingArgumentError: A function of the user is needed.
    """
    names = trusted_types(trusted)
    if "metric" in user_functions:
        get_metric(user_functions["metric"])  # a mistake in the argument is not the folder's fault

    def restore(description: Any, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> None:
        check_decision_description(description, model.get_params(deep=False))
        check_positive_number("smallest_probability", description.get("smallest_probability"))
        _read_estimators(model, description, files, names)
        parameters = description["parameters"]
        parameters["metric"] = read_metric(parameters["metric"], user_functions)
        parameters["cv"] = read_parameter(parameters.get("cv"), files, trusted=names)
        stored = parameters.get("estimator")
        is_same = isinstance(stored, str) and stored == SAME
        parameters["estimator"] = model._one_estimator if is_same else read_parameter(stored, files, trusted=names)
        for name, value in parameters.items():  # set_params would look into the estimator
            setattr(model, name, value)
        restore_decision(model, description, arrays)
        model.smallest_probability_ = float(description["smallest_probability"])
        model.calibration_ = _calibration(model, arrays)
        raise_faults([*decision_faults(model), *_estimator_faults(model)])
        model._show_decision()

    read_folder(path, type(model).__name__, names, restore)


def _read_estimators(
    model: TunedDecisionClassifier, description: Any, files: dict[str, bytes], names: Sequence[str]
) -> None:
    """Set the estimators of the folds, and the one estimator that decides in their place, if there is one."""
    folds, mean_of_folds = description.get("folds"), description.get("mean_of_folds")
    if not isinstance(mean_of_folds, bool):
        raise ModelFileError(f"mean_of_folds must be true or false, not {quote(mean_of_folds)}")
    if type(folds) is not int or not int(mean_of_folds) <= folds <= len(files):
        raise ModelFileError(f"folds: {quote(folds)} is no number of estimators in this folder")

    def read(name: str) -> Any:
        if name not in files:
            raise ModelFileError(f"{name} is missing")
        return model_from_bytes(files[name], names)

    model.estimators_ = [read(FOLD.format(fold)) for fold in range(folds)]
    model._one_estimator = None if mean_of_folds else read(FITTED)


def _calibration(model: TunedDecisionClassifier, arrays: dict[str, NDArray[Any]]) -> Calibration:
    outputs, has_labels = model.held_out_.logits.shape[1], model.held_out_.y.ndim == 2
    temperature, bias = arrays["calibration.temperature"], arrays["calibration.bias"]
    fits = temperature.shape == (outputs if has_labels else 1,) and bias.shape == (outputs,)
    if not fits or not ((temperature > 0).all() and np.isfinite(temperature).all() and np.isfinite(bias).all()):
        raise ModelFileError(f"calibration: there must be finite numbers for {outputs} outputs")
    return Calibration(temperature if has_labels else float(temperature[0]), bias)


def _estimator_faults(model: TunedDecisionClassifier) -> list[str]:
    estimators = [*model.estimators_, *model._deciding_estimators]
    try:
        for estimator in (model.estimator, *estimators):
            check_has_scores(estimator)
        model._check_parameters()
    except (ValueError, TypeError) as error:
        return [f"parameters: {shorten(error)}"]
    if model.held_out_.y.ndim == 2:
        return []
    for estimator in estimators:
        known = np.asarray(getattr(estimator, "classes_", []))
        if known.ndim != 1 or not len(known) or not np.isin(known, model.classes_).all():
            return [f"estimator: a {type(estimator).__name__} that knows no class of this model"]
    return []
