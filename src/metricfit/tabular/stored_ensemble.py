"""What a MetricClassifier decides with, as JSON, arrays and files, and back: the ensemble and the encoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricfit._files import to_json_value
from metricfit.decide.calibration import Calibration
from metricfit.errors import ModelFileError, shorten
from metricfit.tabular.checks import check_parameters
from metricfit.tabular.encoding.encoder import TableEncoder, with_prefix
from metricfit.tabular.ensemble import Ensemble, EnsembleMember, ModelRow
from metricfit.tabular.families.family import Expected, Features, MeanOfFolds, ModelState, restore_model
from metricfit.tabular.families.user_model import FittedUserModel
from metricfit.tabular.notebook import Rows
from metricfit.tabular.storage import COUNT, NUMBER, OBJECT, OBJECTS_LISTED, POSITIVE, TEXT, Stored, check_entries

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

MEMBER = {"name": TEXT, "weight": POSITIVE, "temperature": POSITIVE, "model": OBJECT}
MODEL_ROW = dict.fromkeys(("weight", "value", "log_loss", "seconds", "fitted_rows", "table_rows"), NUMBER)
MODEL_ROW |= {"left_out": TEXT}


def write_parts(model: MetricClassifier, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
    """Return what JSON holds of a classifier beyond its decision; arrays and files are added to the dictionaries."""
    arrays |= {f"table.{name}": np.asarray(array) for name, array in model.encoder_.arrays().items()}
    return {
        "ensemble": write_ensemble(model.ensemble_, arrays, files),
        "models": [to_json_value(vars(row)) for row in model.models_],
        "table": model.encoder_.state(),
        "history": to_json_value(model.history_),
    }


def read_parts(model: MetricClassifier, stored: Stored) -> None:
    """Take over what ``write_parts`` wrote.

    Raises:
        ModelFileError: A part is damaged, or does not fit the others.
    """
    description, classes = stored.description, len(model.classes_)
    _check_description(description)
    encoder = TableEncoder.restored(description["table"], with_prefix("table.", stored.arrays))
    given = stored.user_functions
    expected = Expected(
        encoder.scaling.width, classes, stored.trusted, given.get("network"), weights=given.get("weights")
    )
    ensemble = read_ensemble(description["ensemble"], stored.arrays, stored.files, expected)
    model.encoder_, model.ensemble_ = encoder, ensemble
    model.models_ = Rows(ModelRow(**row) for row in description["models"])
    history = [row.items() for row in description["history"]]
    model.history_ = [{name: math.nan if value is None else value for name, value in row} for row in history]


def faults_of(model: MetricClassifier) -> list[str]:
    """Return wrong parameters; parts that do not fit together are refused, by a row without entries.

    Raises:
        ModelFileError: The table has another number of columns, or a model gives no finite logits.
    """
    try:
        check_parameters(model)
    except (ValueError, TypeError) as error:
        return [f"parameters: {shorten(error)}"]
    encoder = model.encoder_
    if model.n_features_in_ != encoder.features:
        raise ModelFileError(f"features: {model.n_features_in_}, of a table of {encoder.features} columns")
    row = np.full((1, encoder.features), np.nan, dtype=float if encoder.columns is None else object)
    table = pd.DataFrame(row, columns=getattr(model, "feature_names_in_", None))
    expected = Expected(encoder.scaling.width, len(model.classes_))
    check_logits(model.ensemble_, Features(encoder.transform(table), table), expected)
    return []


def _check_description(description: dict[str, Any]) -> None:
    """Refuse parts of a wrong type or out of range."""
    sections = {"ensemble": OBJECT, "models": OBJECTS_LISTED, "table": OBJECT, "history": OBJECTS_LISTED}
    check_entries(description, sections)
    check_entries(description["features"], {"number": COUNT}, "features.")
    check_entries(description["ensemble"], {"temperature": POSITIVE, "members": OBJECTS_LISTED}, "ensemble.")
    if not description["ensemble"]["members"]:
        raise ModelFileError("model.json: ensemble.members is empty")
    for place, member in enumerate(description["ensemble"]["members"]):
        check_entries(member, MEMBER, f"ensemble.members.{place}.")
    for row in description["models"]:
        check_entries(row, {"name": TEXT}, "models.")
        check_entries(row, MODEL_ROW, "models.", optional=True)
    columns = {"columns": "a list of objects or null"}
    check_entries(description["table"], columns, "table.", optional=True)
    for column in description["table"].get("columns") or ():
        if column is not None:
            check_entries(column, {"kind": TEXT}, "table.columns.")
            check_entries(
                column, {"categories": "a list of text or null", "format": TEXT}, "table.columns.", optional=True
            )


def write_ensemble(ensemble: Ensemble, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
    """Return the ensemble as JSON can hold it; arrays and files are added to the dictionaries."""
    members = []
    arrays["ensemble.bias"] = ensemble.calibration.bias
    for place, member in enumerate(ensemble.members):
        arrays[f"member.{place}.bias"] = member.calibration.bias
        members.append(
            {
                "name": member.name,
                "weight": member.weight,
                "temperature": member.calibration.temperature,
                "model": _write_state(member.model.state(), (str(place),), arrays, files),
            }
        )
    return {"temperature": ensemble.calibration.temperature, "members": members}


def read_ensemble(
    description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], files: Mapping[str, bytes], expected: Expected
) -> Ensemble:
    """Return the ensemble that `write_ensemble` described.

    Args:
        description: What it returned; its types were checked.
        arrays: The stored arrays.
        files: The stored files.
        expected: What the models have to fit.

    Raises:
        ModelFileError: A part is damaged, or does not fit the table and its classes.
    """
    members = []
    for place, member in enumerate(description["members"]):
        state = _read_state(member["model"], (str(place),), arrays, files)
        calibration = Calibration(float(member["temperature"]), _bias(f"member.{place}.bias", arrays, expected))
        members.append(
            EnsembleMember(member["name"], restore_model(state, expected), calibration, float(member["weight"]))
        )
    bias = _bias("ensemble.bias", arrays, expected)
    return Ensemble(tuple(members), Calibration(float(description["temperature"]), bias))


def check_logits(ensemble: Ensemble, features: Features, expected: Expected) -> None:
    """Predict rows with every model that takes encoded columns; models of the user that take a table may refuse them.

    Raises:
        ModelFileError: A model gives no finite logits.
    """
    for member in ensemble.members:
        models = member.model.models if isinstance(member.model, MeanOfFolds) else [member.model]
        if any(isinstance(model, FittedUserModel) and model.takes_table for model in models):
            continue
        logits = member.model.logits(features)
        if logits.shape != (len(features), expected.outputs) or not np.isfinite(logits).all():
            raise ModelFileError(f"{member.name}: the model gives no finite logits")


def _write_state(
    state: ModelState, place: tuple[str, ...], arrays: dict[str, NDArray[Any]], files: dict[str, bytes]
) -> dict[str, Any]:
    for name, array in state.arrays.items():
        arrays[f"model.{'.'.join(place)}.{name}"] = np.ascontiguousarray(array)
    for name, content in state.files.items():
        files[f"{'-'.join(('member', *place))}-{name}"] = content
    parts = [_write_state(part, (*place, str(number)), arrays, files) for number, part in enumerate(state.parts)]
    return {"kind": state.kind, "values": state.values, "parts": parts}


def _read_state(
    description: Any, place: tuple[str, ...], arrays: Mapping[str, NDArray[Any]], files: Mapping[str, bytes]
) -> ModelState:
    check_entries(
        description, {"kind": TEXT, "values": OBJECT, "parts": OBJECTS_LISTED}, f"model of member {place[0]}: "
    )
    start = f"{'-'.join(('member', *place))}-"
    parts = [
        _read_state(part, (*place, str(number)), arrays, files) for number, part in enumerate(description["parts"])
    ]
    of_model = {name.removeprefix(start): each for name, each in files.items() if name.startswith(start)}
    kind, values = description["kind"], description["values"]
    return ModelState(kind, values, with_prefix(f"model.{'.'.join(place)}.", arrays), of_model, tuple(parts))


def _bias(name: str, arrays: Mapping[str, NDArray[Any]], expected: Expected) -> NDArray[np.float64]:
    bias = arrays.get(name)
    if bias is None or bias.shape != (expected.outputs,) or not np.isfinite(bias).all():
        raise ModelFileError(f"calibration: {name} must be {expected.outputs} finite numbers")
    return np.asarray(bias, np.float64)
