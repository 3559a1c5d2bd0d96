"""A fitted MetricClassifier as a folder: model.json, arrays.safetensors and a manifest with their hashes.

Loading reads numbers and text, and builds networks that are named in this package. The hashes tell a folder that was
cut short or changed by accident, or by someone who did not write a new manifest; they are no signature.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load as arrays_from
from safetensors.torch import save as bytes_of
from torch import Tensor

from metricfit._files import hash_bytes, new_folder, to_json_value
from metricfit._version import __version__
from metricfit.decide.calibration import Calibration
from metricfit.decide.decisions import Decision, HeldOut
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote, shorten
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import get_metric
from metricfit.tabular.description_checks import check_description, check_network_size, label_type
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.networks import Network
from metricfit.tabular.storage_checks import check_consistent

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

FORMAT = 1
MODEL, ARRAYS, MANIFEST = "model.json", "arrays.safetensors", "manifest.json"


class MissingArgumentError(InvalidValueError):
    """The folder does not hold the user's own function, which `load` needs as an argument."""


def save(model: MetricClassifier, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a new or empty folder; a failure leaves nothing behind."""
    contents = {
        MODEL: json.dumps(_description(model), allow_nan=False, indent=1).encode(),
        ARRAYS: bytes_of({name: given.contiguous() for name, given in _arrays(model).items()}),
    }
    hashes = {name: hash_bytes(content, length=64) for name, content in contents.items()}
    manifest = {"format": FORMAT, "metricfit": __version__, "sha256": hashes}
    contents[MANIFEST] = json.dumps(manifest, indent=1).encode()
    with new_folder(path) as unfinished:
        for name, content in contents.items():
            (unfinished / name).write_bytes(content)


def load(model: MetricClassifier, path: str | os.PathLike[str], **own: Any) -> None:
    """Fill an estimator from a folder.

    Args:
        model: The estimator, with its default parameters.
        path: The folder that `save` wrote.
        own: The user's own ``metric`` or ``network``, which is not in the folder.

    Raises:
        ModelFileError: The folder is damaged, or what it holds is no model that this version can use.
    """
    folder = Path(path)
    contents = _checked_contents(folder)
    if "metric" in own:
        get_metric(own["metric"])  # a mistake in the argument is not the folder's fault
    try:
        _restore(model, json.loads(contents[MODEL]), arrays_from(contents[ARRAYS]), own)
    except ModelFileError as error:
        raise ModelFileError(
            f"{folder} holds no whole model ({error}): save it again from the fitted one, or load it with the version "
            "of metricfit that saved it"
        ) from error
    except (ImportError, MissingArgumentError):  # what the user can add
        raise
    except Exception as error:  # whatever else fails while it reads the folder is the folder's fault
        raise ModelFileError(
            f"{folder} holds no model of this version: {type(error).__name__}: {shorten(error)}"
        ) from error


def _checked_contents(folder: Path) -> dict[str, bytes]:
    if not (folder / MANIFEST).is_file():
        raise ModelFileError(f"{folder} has no {MANIFEST}: it is no saved model, or one whose saving was cut short")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        format_of, hashes = manifest["format"], manifest["sha256"]
        expected = {name: str(hashes[name]) for name in (MODEL, ARRAYS)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: {shorten(error)}") from error
    if format_of != FORMAT:
        raise ModelFileError(
            f"{folder} is of format {quote(format_of)}, this version reads {FORMAT}: use the metricfit it names"
        )
    contents = {}
    for name, wanted in expected.items():
        if not (folder / name).is_file():
            raise ModelFileError(f"{folder} lacks {name}; copy the folder again")
        contents[name] = (folder / name).read_bytes()
        if hash_bytes(contents[name], length=64) != wanted:
            raise ModelFileError(f"{folder / name} is not what was saved: cut short or changed. Copy the folder again")
    return contents


def _description(model: MetricClassifier) -> dict[str, Any]:
    parameters = model.get_params(deep=False)
    metric = get_metric(model.metric)
    parameters["metric"] = {"name": metric.name, "own": metric.user_defined}
    if model.subject_to is not None:
        several = [model.subject_to] if not isinstance(model.subject_to, (list, tuple)) else model.subject_to
        parameters["subject_to"] = [str(each) for each in several]
    parameters["network"] = None if callable(model.network) else model.network
    if isinstance(model.class_weight, dict):
        parameters["class_weight"] = [[_plain(key), float(value)] for key, value in model.class_weight.items()]
    parameters["pos_label"] = _plain(model.pos_label)
    state = model.random_state
    parameters["random_state"] = int(state) if isinstance(state, (int, np.integer)) else None
    decision = model.decision_
    names = getattr(model, "feature_names_in_", None)
    return {
        "parameters": parameters,
        "classes": {"dtype": model.classes_.dtype.str, "labels": [_plain(each) for each in model.classes_.tolist()]},
        "features": {"number": int(model.n_features_in_), "names": None if names is None else list(names)},
        "network": model.network_.state(),
        "members": len(model.members_),
        "table": model.encoder_.state(),
        "temperature": model.calibration_.temperature,
        "decision": {
            "value": decision.value,
            "threshold": decision.threshold,
            "interval": _ends(decision.interval),
            "value_interval": _ends(decision.value_interval),
            "requirements": to_json_value(decision.requirements),
            "not_reachable": decision.not_reachable,
        },
        "seed": model._seed,
        "history": to_json_value(model.history_),
    }


def _arrays(model: MetricClassifier) -> dict[str, Tensor]:
    found = {f"table.{name}": torch.as_tensor(array) for name, array in model.encoder_.arrays().items()}
    for at, member in enumerate(model.members_):
        # Trained in single precision, so that nothing is lost.
        state = {name: given.float() if given.is_floating_point() else given for name, given in _state(member).items()}
        found |= {f"member.{at}.{name}": given for name, given in state.items()}
    held_out = model.held_out_
    found |= {"bias": model.calibration_.bias, "shift": model.shift_, "order": torch.from_numpy(model._order)}
    found |= {"held_out.logits": held_out.logits, "held_out.y": held_out.y, "held_out.shares": held_out.shares}
    if held_out.weight is not None:
        found["held_out.weight"] = held_out.weight
    if held_out.groups is not None:
        found["held_out.groups"] = torch.from_numpy(np.unique(held_out.groups, return_inverse=True)[1])
    if model.decision_.offsets is not None:
        found["offsets"] = model.decision_.offsets
    return found


def _restore(model: MetricClassifier, found: dict[str, Any], arrays: dict[str, Tensor], own: dict[str, Any]) -> None:
    check_description(found, model.get_params(deep=False))
    parameters = found["parameters"]
    metric = parameters["metric"]
    if metric["own"] and "metric" not in own:
        raise MissingArgumentError(
            f"the metric {quote(metric['name'])} was the user's own function: load(path, metric=...)"
        )
    parameters["metric"] = own.get("metric", metric["name"])
    if parameters["network"] is None and "network" not in own:
        raise MissingArgumentError("the network was the user's own function: load(path, network=...)")
    parameters["network"] = own.get("network", parameters["network"])
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    model.set_params(**parameters)
    labels = found["classes"]["labels"]
    model.classes_ = np.array(labels, dtype=label_type(found["classes"]["dtype"], labels))
    model.n_features_in_ = int(found["features"]["number"])
    if found["features"]["names"] is not None:
        model.feature_names_in_ = np.array(found["features"]["names"], dtype=object)
    model._order, model._seed = arrays["order"].numpy(), int(found["seed"])
    model.pos_label_ = model.classes_.tolist()[model._order[1]] if len(model.classes_) == 2 else None
    model.network_ = Network(**found["network"])
    tables = {name.removeprefix("table."): each.numpy() for name, each in arrays.items() if name.startswith("table.")}
    model.encoder_ = TableEncoder.restored(found["table"], tables)
    model.members_ = []
    for at in range(int(found["members"])):
        prefix = f"member.{at}."
        state = {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}
        if not state:
            raise KeyError(f"the weights of member {at}")
        outputs = 1 if len(labels) == 2 else len(labels)
        check_network_size(model.network_, model.encoder_.scaling.width, outputs, state.values())
        edges = next((each for name, each in state.items() if name.endswith("edges")), None)
        member = model.network_.build(edges, model.network if callable(model.network) else None)
        member.load_state_dict(state)
        model.members_.append(member.double().eval())
    model.calibration_ = Calibration(float(found["temperature"]), arrays["bias"])
    groups = arrays.get("held_out.groups")
    model.held_out_ = HeldOut(
        arrays["held_out.logits"],
        arrays["held_out.y"],
        arrays.get("held_out.weight"),
        None if groups is None else groups.numpy(),
        arrays["held_out.shares"],
    )
    model.shift_ = arrays["shift"]
    decision = found["decision"]
    model.decision_ = Decision(
        decision["value"],
        decision["threshold"],
        _restored_ends(decision["interval"]),
        _restored_ends(decision["value_interval"]),
        arrays.get("offsets"),
        {text: RequirementValue(*result) for text, result in decision.get("requirements", {}).items()},
        decision.get("not_reachable"),
    )
    model.history_ = [
        {name: math.nan if value is None else value for name, value in row.items()} for row in found["history"]
    ]
    check_consistent(model, arrays)
    model._show_decision()
    _predict_one_row(model)


def _predict_one_row(model: MetricClassifier) -> None:
    """Use the model on a row without entries, which fails where its parts do not fit together."""
    row = np.full((1, model.n_features_in_), np.nan, dtype=float if model.encoder_.columns is None else object)
    model.predict_proba(pd.DataFrame(row, columns=getattr(model, "feature_names_in_", None)))


def _state(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: given.detach().cpu().clone() for name, given in module.state_dict().items()}


def _plain(label: Any) -> Any:
    """A label as JSON has it."""
    value = label.item() if isinstance(label, np.generic) else label
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidTypeError(f"labels of type {type(value).__name__} cannot be saved; train on text or numbers")


def _ends(interval: tuple[float, float] | None) -> list[float | str] | None:
    return None if interval is None else [str(each) if math.isinf(each) else each for each in interval]


def _restored_ends(ends: list[Any] | None) -> tuple[float, float] | None:
    return None if ends is None else (float(ends[0]), float(ends[1]))
