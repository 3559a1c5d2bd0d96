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
from metricfit.errors import ModelFileError, quote
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import Ensemble, EnsembleMember, ModelRow
from metricfit.tabular.families.family import Expected, Features, FittedModel, MeanOfFolds, ModelState, restore_model
from metricfit.tabular.families.user_model import FittedUserModel
from metricfit.tabular.notebook import Rows
from metricfit.tabular.storage import Stored, check_positive_number, check_sections, check_whole_number

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

#: Parts of model.json that no other estimator has.
SECTIONS: dict[str, type] = {"ensemble": dict, "models": list, "table": dict, "history": list}


def write_parts(model: MetricClassifier, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
    """Return what JSON holds of a classifier beyond its decision; arrays and files are added to the dictionaries."""
    arrays |= {f"table.{name}": np.asarray(array) for name, array in model.encoder_.arrays().items()}
    return {
        "ensemble": write_ensemble(model.ensemble_, arrays, files),
        "models": [to_json_value(vars(row)) for row in model.models_],
        "table": model.encoder_.state(),
        "history": to_json_value(model.history_),
    }


def read_parts(stored: Stored, classes: int) -> dict[str, Any]:
    """Return the attributes that ``write_parts`` wrote, for this number of classes.

    Raises:
        ModelFileError: A part is damaged, or does not fit the others.
    """
    description = stored.description
    _check_description(description)
    tables = {name.removeprefix("table."): each for name, each in stored.arrays.items() if name.startswith("table.")}
    encoder = TableEncoder.restored(description["table"], tables)
    given = stored.user_functions
    expected = Expected(
        encoder.scaling.width, classes, stored.trusted, given.get("network"), weights=given.get("weights")
    )
    ensemble = read_ensemble(description["ensemble"], stored.arrays, stored.files, expected)
    return {
        "encoder_": encoder,
        "ensemble_": ensemble,
        "models_": Rows(ModelRow(**row) for row in description["models"]),
        "history_": [
            {name: math.nan if value is None else value for name, value in row.items()}
            for row in description["history"]
        ],
    }


def check_parts(model: MetricClassifier) -> None:
    """Refuse parts that do not fit together, by a row without entries.

    Raises:
        ModelFileError: The table has another number of columns, or a model gives no finite logits.
    """
    encoder = model.encoder_
    if model.n_features_in_ != encoder.features:
        raise ModelFileError(f"features: {model.n_features_in_}, of a table of {encoder.features} columns")
    row = np.full((1, encoder.features), np.nan, dtype=float if encoder.columns is None else object)
    table = pd.DataFrame(row, columns=getattr(model, "feature_names_in_", None))
    expected = Expected(encoder.scaling.width, len(model.classes_))
    check_logits(model.ensemble_, Features(encoder.transform(table), table), expected)


def _check_description(description: dict[str, Any]) -> None:
    """Refuse parts of a wrong type or out of range."""
    check_sections(description, SECTIONS)
    check_whole_number("features.number", description["features"].get("number"), 1)
    _check_ensemble(description["ensemble"])
    if not all(map(_is_model_row, description["models"])):
        raise ModelFileError(f"model.json: models must describe families, got {quote(description['models'])}")
    columns = description["table"].get("columns")
    if columns is not None and not (isinstance(columns, list) and all(map(_is_column, columns))):
        raise ModelFileError(f"model.json: table.columns must describe columns, got {quote(columns)}")


def _check_ensemble(ensemble: dict[str, Any]) -> None:
    """Refuse an ensemble whose members have no names, weights and temperatures."""
    check_positive_number("ensemble.temperature", ensemble.get("temperature"))
    members = ensemble.get("members")
    if not isinstance(members, list) or not members or not all(isinstance(member, dict) for member in members):
        raise ModelFileError(f"model.json: ensemble.members must describe models, got {quote(members)}")
    for place, member in enumerate(members):
        if not isinstance(member.get("name"), str):
            raise ModelFileError(f"model.json: member {place} has no name, got {quote(member.get('name'))}")
        for name in ("weight", "temperature"):
            check_positive_number(f"{name} of member {place}", member.get(name))


def _is_model_row(row: Any) -> bool:
    """Whether this tells what became of a family."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return False
    numbers = [row.get(name) for name in ("weight", "value", "log_loss", "seconds", "fitted_rows", "table_rows")]
    return all(number is None or isinstance(number, (int, float)) for number in numbers) and (
        row.get("left_out") is None or isinstance(row["left_out"], str)
    )


def _is_column(column: Any) -> bool:
    """Whether this describes a column: its kind, and what was learned of it; None for a column without entries."""
    if column is None:
        return True
    if not isinstance(column, dict) or not isinstance(column.get("kind"), str):
        return False
    categories, date_format = column.get("categories", []), column.get("format")
    return (
        isinstance(categories, list)
        and all(category is None or isinstance(category, str) for category in categories)
        and (date_format is None or isinstance(date_format, str))
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
    """Predict rows with every model that takes encoded columns.

    Raises:
        ModelFileError: A model gives no finite logits.
    """
    for member in ensemble.members:
        if _takes_table(member.model):
            continue
        logits = member.model.logits(features)
        if logits.shape != (len(features), expected.outputs) or not np.isfinite(logits).all():
            raise ModelFileError(f"{member.name}: the model gives no finite logits")


def _takes_table(model: FittedModel) -> bool:
    """Whether a model of the user encodes the table itself; such a model may refuse rows without entries."""
    if isinstance(model, MeanOfFolds):
        return any(map(_takes_table, model.models))
    return isinstance(model, FittedUserModel) and model.takes_table


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
    fits = isinstance(description, dict) and all(
        isinstance(description.get(name), kind) for name, kind in (("kind", str), ("values", dict), ("parts", list))
    )
    if not fits:
        raise ModelFileError(f"members: the model of member {place[0]} is not described by kind, values and parts")
    prefix, file_prefix = f"model.{'.'.join(place)}.", f"{'-'.join(('member', *place))}-"
    return ModelState(
        description["kind"],
        description["values"],
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)},
        {name.removeprefix(file_prefix): content for name, content in files.items() if name.startswith(file_prefix)},
        tuple(
            _read_state(part, (*place, str(number)), arrays, files) for number, part in enumerate(description["parts"])
        ),
    )


def _bias(name: str, arrays: Mapping[str, NDArray[Any]], expected: Expected) -> NDArray[np.float64]:
    bias = arrays.get(name)
    if bias is None or bias.shape != (expected.outputs,) or not np.isfinite(bias).all():
        raise ModelFileError(f"calibration: {name} must be {expected.outputs} finite numbers")
    return np.asarray(bias, np.float64)
