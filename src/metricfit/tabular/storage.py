"""A fitted MetricClassifier as a folder: model.json, arrays.safetensors, files of skops and a manifest of hashes.

Loading reads numbers and text, and builds models of classes that are named in this package. The user's own
scikit-learn models are read by skops, which builds only types that it or the user trusts. The hashes show that a file
was cut short or changed, unless the manifest was changed too; they are no signature, so everything is checked as well.
"""

from __future__ import annotations

import json
import math
import os
import re
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
from metricfit.decide.decision import Decision
from metricfit.decide.held_out import HeldOut
from metricfit.errors import InvalidTypeError, ModelFileError, quote, shorten
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import get_metric
from metricfit.tabular.description_checks import check_description, label_type
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import ModelRow
from metricfit.tabular.families.family import Features
from metricfit.tabular.families.model_state import Expected, MissingArgumentError
from metricfit.tabular.families.scikit_learn_files import UntrustedTypeError, check_trusted, trusted_types
from metricfit.tabular.storage_checks import check_consistent
from metricfit.tabular.stored_ensemble import check_logits, read_ensemble, write_ensemble
from metricfit.tabular.stored_parameters import read_parameter, write_parameter

if TYPE_CHECKING:
    from metricfit.tabular.classifier import MetricClassifier

FORMAT = 2
MODEL, ARRAYS, MANIFEST = "model.json", "arrays.safetensors", "manifest.json"
SKOPS_FILE = re.compile(r"[a-z0-9._-]{1,200}\.skops")
#: Parameters that may hold models, networks or splitters.
OBJECTS = ("models", "cv")


def save(model: MetricClassifier, path: str | os.PathLike[str], trusted: Any = None) -> None:
    """Write a fitted model to a new or empty folder; a failure leaves nothing behind.

    Args:
        model: The fitted model.
        path: The folder.
        trusted: Names of types of the user's own models, beside those that skops trusts.

    Raises:
        UntrustedTypeError: A model of the user has other types.
        InvalidTypeError: A model, a splitter or a label cannot be saved.
    """
    names = trusted_types(trusted)
    arrays, files = _arrays(model), dict[str, bytes]()
    description = _description(model, arrays, files)
    for content in files.values():
        check_trusted(content, names, "save")
    contents = {
        MODEL: json.dumps(description, allow_nan=False, indent=1).encode(),
        ARRAYS: bytes_of({name: array.contiguous() for name, array in arrays.items()}),
        **files,
    }
    hashes = {name: hash_bytes(content, length=64) for name, content in contents.items()}
    manifest = {"format": FORMAT, "metricfit": __version__, "sha256": hashes}
    contents[MANIFEST] = json.dumps(manifest, indent=1).encode()
    with new_folder(path) as unfinished:
        for name, content in contents.items():
            (unfinished / name).write_bytes(content)


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
    folder, names = Path(path), trusted_types(trusted)
    contents = _checked_contents(folder)
    if "metric" in user_functions:
        get_metric(user_functions["metric"])  # a mistake in the argument is not the folder's fault
    try:
        for name, content in contents.items():
            if name not in (MODEL, ARRAYS):
                check_trusted(content, names, "load")
        description, arrays = json.loads(contents[MODEL]), arrays_from(contents[ARRAYS])
        _restore(model, description, arrays, contents, names, user_functions)
    except ModelFileError as error:
        raise ModelFileError(
            f"{folder} holds no whole model ({error}): save it again from the fitted one, or load it with the version "
            "of metricfit that saved it"
        ) from error
    except (ImportError, MissingArgumentError, UntrustedTypeError):  # what the user can add
        raise
    except Exception as error:  # whatever else fails while it reads the folder is the folder's fault
        raise ModelFileError(
            f"{folder} holds no model of this version: {type(error).__name__}: {shorten(error)}"
        ) from error


def _checked_contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files that the manifest names, if they have the hashes that it states."""
    if not (folder / MANIFEST).is_file():
        raise ModelFileError(f"{folder} has no {MANIFEST}: it is no saved model, or one whose saving was cut short")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        format_of, hashes = manifest["format"], manifest["sha256"]
        expected = {name: str(hashes[name]) for name in dict.fromkeys((MODEL, ARRAYS, *hashes))}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: {shorten(error)}") from error
    if format_of == 1:
        raise ModelFileError(
            f"{folder} is a model of metricfit 0.1, which this version does not read: fit the model again, or load it "
            "with metricfit 0.1"
        )
    if format_of != FORMAT:
        raise ModelFileError(
            f"{folder} is of format {quote(format_of)}, this version reads {FORMAT}: use the metricfit it names"
        )
    contents = {}
    for name, wanted in expected.items():
        if name not in (MODEL, ARRAYS) and not SKOPS_FILE.fullmatch(name):
            raise ModelFileError(f"{folder / MANIFEST} names a file that is no part of a model: {quote(name)}")
        if not (folder / name).is_file():
            raise ModelFileError(f"{folder} lacks {name}; copy the folder again")
        contents[name] = (folder / name).read_bytes()
        if hash_bytes(contents[name], length=64) != wanted:
            raise ModelFileError(f"{folder / name} is not what was saved: cut short or changed. Copy the folder again")
    return contents


def _description(model: MetricClassifier, arrays: dict[str, Tensor], files: dict[str, bytes]) -> dict[str, Any]:
    """Return what JSON holds; arrays and files of the ensemble are added to the dictionaries."""
    parameters = model.get_params(deep=False)
    metric = get_metric(model.metric)
    parameters["metric"] = {"name": metric.name, "own": metric.user_defined}
    if model.subject_to is not None:
        several = [model.subject_to] if not isinstance(model.subject_to, (list, tuple)) else model.subject_to
        parameters["subject_to"] = [str(requirement) for requirement in several]
    for name in OBJECTS:
        parameters[name] = write_parameter(name, parameters[name], files)
    if isinstance(model.class_weight, dict):
        parameters["class_weight"] = [[_plain(key), float(value)] for key, value in model.class_weight.items()]
    parameters["pos_label"] = _plain(model.pos_label)
    state = model.random_state
    parameters["random_state"] = int(state) if isinstance(state, (int, np.integer)) else None
    decision = model.decision_
    names = getattr(model, "feature_names_in_", None)
    return {
        "parameters": parameters,
        "classes": {"dtype": model.classes_.dtype.str, "labels": [_plain(label) for label in model.classes_.tolist()]},
        "features": {"number": int(model.n_features_in_), "names": None if names is None else list(names)},
        "ensemble": write_ensemble(model.ensemble_, arrays, files),
        "models": [to_json_value(vars(row)) for row in model.models_],
        "table": model.encoder_.state(),
        "decision": {
            "value": decision.value,
            "corrected_value": decision.corrected_value,
            "threshold": decision.threshold,
            "interval": _ends(decision.interval),
            "value_interval": _ends(decision.value_interval),
            "corrected_interval": _ends(decision.corrected_interval),
            "requirements": to_json_value(decision.requirements),
            "not_reachable": decision.not_reachable,
            "confidence": decision.confidence,
        },
        "seed": model._seed,
        "history": to_json_value(model.history_),
    }


def _arrays(model: MetricClassifier) -> dict[str, Tensor]:
    arrays = {f"table.{name}": torch.as_tensor(array) for name, array in model.encoder_.arrays().items()}
    held_out = model.held_out_
    arrays |= {"shift": model.shift_, "order": torch.from_numpy(model._order)}
    arrays |= {"held_out.logits": held_out.logits, "held_out.y": held_out.y, "held_out.shares": held_out.shares}
    if held_out.weight is not None:
        arrays["held_out.weight"] = held_out.weight
    if held_out.groups is not None:
        arrays["held_out.groups"] = torch.from_numpy(np.unique(held_out.groups, return_inverse=True)[1])
    if model.decision_.offsets is not None:
        arrays["offsets"] = model.decision_.offsets
    return arrays


def _restore(
    model: MetricClassifier,
    description: dict[str, Any],
    arrays: dict[str, Tensor],
    files: dict[str, bytes],
    trusted: tuple[str, ...],
    user_functions: dict[str, Any],
) -> None:
    check_description(description, model.get_params(deep=False))
    network = user_functions.get("network")
    parameters = description["parameters"]
    metric = parameters["metric"]
    if metric["own"] and "metric" not in user_functions:
        raise MissingArgumentError(
            f"the metric {quote(metric['name'])} was the user's own function: load(path, metric=...)"
        )
    parameters["metric"] = user_functions.get("metric", metric["name"])
    for name in OBJECTS:
        parameters[name] = read_parameter(parameters.get(name), files, trusted=trusted, network=network)
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    model.set_params(**parameters)
    labels = description["classes"]["labels"]
    model.classes_ = np.array(labels, dtype=label_type(description["classes"]["dtype"], labels))
    model.n_features_in_ = int(description["features"]["number"])
    if description["features"]["names"] is not None:
        model.feature_names_in_ = np.array(description["features"]["names"], dtype=object)
    model._order, model._seed = arrays["order"].numpy(), int(description["seed"])
    model.pos_label_ = model.classes_.tolist()[model._order[1]] if len(model.classes_) == 2 else None
    tables = {name.removeprefix("table."): each.numpy() for name, each in arrays.items() if name.startswith("table.")}
    model.encoder_ = TableEncoder.restored(description["table"], tables)
    expected = Expected(model.encoder_.scaling.width, len(labels), trusted, network)
    model.ensemble_ = read_ensemble(description["ensemble"], arrays, files, expected)
    model.models_ = [ModelRow(**row) for row in description["models"]]
    groups = arrays.get("held_out.groups")
    model.held_out_ = HeldOut(
        arrays["held_out.logits"],
        arrays["held_out.y"],
        arrays.get("held_out.weight"),
        None if groups is None else groups.numpy(),
        arrays["held_out.shares"],
    )
    model.shift_ = arrays["shift"]
    model.decision_ = _restored_decision(description["decision"], arrays.get("offsets"))
    model.history_ = [
        {name: math.nan if value is None else value for name, value in row.items()} for row in description["history"]
    ]
    check_consistent(model)
    model._show_decision()
    _predict_one_row(model, expected)


def _restored_decision(decision: dict[str, Any], offsets: Tensor | None) -> Decision:
    if (decision["threshold"] is None) == (offsets is None):
        raise ModelFileError(
            f"decision: threshold {decision['threshold']} and {'no' if offsets is None else 'also'} offsets"
        )
    return Decision(
        decision["value"],
        decision["threshold"],
        _restored_ends(decision["interval"]),
        _restored_ends(decision["value_interval"]),
        offsets,
        {text: RequirementValue(*result) for text, result in decision.get("requirements", {}).items()},
        decision.get("not_reachable"),
        decision["corrected_value"],
        _restored_ends(decision["corrected_interval"]),
        confidence=decision.get("confidence"),
    )


def _predict_one_row(model: MetricClassifier, expected: Expected) -> None:
    """Use the model on a row without entries, which fails where its parts do not fit together."""
    row = np.full((1, model.n_features_in_), np.nan, dtype=float if model.encoder_.columns is None else object)
    table = pd.DataFrame(row, columns=getattr(model, "feature_names_in_", None))
    check_logits(model.ensemble_, Features(model.encoder_.transform(table)), expected)


def _plain(label: Any) -> Any:
    """Return a label as JSON has it."""
    value = label.item() if isinstance(label, np.generic) else label
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidTypeError(f"labels of type {type(value).__name__} cannot be saved; train on text or numbers")


def _ends(interval: tuple[float, float] | None) -> list[float | str] | None:
    return None if interval is None else [str(each) if math.isinf(each) else each for each in interval]


def _restored_ends(ends: list[Any] | None) -> tuple[float, float] | None:
    return None if ends is None else (float(ends[0]), float(ends[1]))
