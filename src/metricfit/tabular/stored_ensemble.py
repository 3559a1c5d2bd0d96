"""The ensemble as JSON, arrays and files, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.decide.calibration import Calibration
from metricfit.errors import ModelFileError
from metricfit.tabular.ensemble import Ensemble, EnsembleMember
from metricfit.tabular.families.family import Expected, Features, FittedModel, MeanOfFolds, ModelState, restore_model
from metricfit.tabular.families.user_model import FittedUserModel


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
