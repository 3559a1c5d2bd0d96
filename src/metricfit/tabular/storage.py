"""Fitted estimators as folders, and back: one schema of JSON, arrays and files for all of them.

Every estimator has parameters, classes, features, held-out rows and a decision. What it decides with is its own part of
the schema: ``_write_parts`` returns it, and ``_read_parts`` takes it over. Loading builds models of classes that are
named in this package, and scikit-learn models of types that skops or the user trusts (``model_folder``). Hashes do not
tell of a folder that was edited with its manifest, so types, sizes and ranges are checked before anything is built.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricfit.decide.class_requirements import model_requirements
from metricfit.decide.costs import check_costs
from metricfit.decide.decision import restore_decision as restored_decision
from metricfit.decide.held_out import HeldOut
from metricfit.decide.refer import check_refer_label
from metricfit.decide.shift import Drift, PriorShift
from metricfit.errors import InvalidTypeError, ModelFileError, quote, shorten
from metricfit.metrics.metric import get_metric
from metricfit.metrics.metric_parameters import LARGEST_PARAMETER
from metricfit.tabular.encoding.encoder import with_prefix
from metricfit.tabular.facts import model_card
from metricfit.tabular.families.family import MissingArgumentError
from metricfit.tabular.families.in_context import InContext
from metricfit.tabular.families.network import Network
from metricfit.tabular.model_folder import model_from_bytes, model_to_bytes, read_folder, trusted_types, write_folder

if TYPE_CHECKING:
    from metricfit.tabular.deciding import DecidingClassifier

Arrays = dict[str, NDArray[Any]]

#: Before the name of a column of costs, and before what was estimated from new rows, in the names of arrays.
COLUMN, SHIFT = "held_out.column.", "prior_shift."
#: Parameters that may hold models, networks or splitters, in files.
OBJECTS = ("models", "cv", "estimator")
#: In place of the parameter ``estimator``, if it is the fitted estimator itself.
SAME = "fitted"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_list(value: Any, *kinds: type) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kinds) for entry in value)


#: What an entry of model.json can be, in the words of messages.
OBJECT, OBJECTS_LISTED, TEXT, YES_NO = "an object", "a list of objects", "text", "true or false"
NUMBER, POSITIVE, WHOLE, COUNT = (
    "a finite number",
    "a finite number above 0",
    "a whole number",
    "a whole number above 0",
)
ENTRIES: dict[str, Callable[[Any], bool]] = {
    OBJECT: lambda value: isinstance(value, dict),
    OBJECTS_LISTED: lambda value: _is_list(value, dict),
    "a list of objects or null": lambda value: _is_list(value, dict, type(None)),
    "a list of text": lambda value: _is_list(value, str),
    "a list of text or null": lambda value: _is_list(value, str, type(None)),
    "a list of text or numbers": lambda value: _is_list(value, str, int, float),
    TEXT: lambda value: isinstance(value, str),
    YES_NO: lambda value: isinstance(value, bool),
    NUMBER: _is_number,
    POSITIVE: lambda value: _is_number(value) and value > 0,
    WHOLE: lambda value: type(value) is int and 0 <= value < 2**63,
    COUNT: lambda value: type(value) is int and 1 <= value < 2**63,
}


def check_entries(description: Any, kinds: Mapping[str, str], place: str = "", *, optional: bool = False) -> None:
    """Refuse a description that lacks entries, or has entries of another kind.

    Args:
        description: A part of model.json.
        kinds: For each name what its entry is, one of ``ENTRIES``.
        place: Where the part stands, for messages.
        optional: Whether entries may be missing or null.

    Raises:
        ModelFileError: An entry is of another kind.

    Example:
        >>> check_entries({"seed": 3}, {"seed": WHOLE})
        >>> check_entries({"seed": "3"}, {"seed": WHOLE})
        Traceback (most recent call last):
        metricfit.errors.ModelFileError: model.json: seed must be a whole number, got '3'
    """
    if not isinstance(description, dict):
        raise ModelFileError(f"model.json holds {quote(description)} in place of an object")
    for name, kind in kinds.items():
        value = description.get(name)
        if not ENTRIES[kind](value) and not (optional and value is None):
            raise ModelFileError(f"model.json: {place}{name} must be {kind}, got {quote(value)}")


@dataclass(frozen=True)
class Stored:
    """What a folder holds, and what its reader allows.

    Attributes:
        description: What model.json holds.
        arrays: The arrays, by name.
        files: All files, by name.
        trusted: Names of types that the user trusts.
        user_functions: The user's own ``metric`` or ``network``, which is not in the folder.
    """

    description: dict[str, Any]
    arrays: Arrays
    files: dict[str, bytes]
    trusted: tuple[str, ...]
    user_functions: Mapping[str, Any]


def save(
    model: DecidingClassifier,
    path: str | os.PathLike[str],
    trusted: Any = None,
    *,
    data: str | None = None,
    target: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a fitted model to a new or empty folder; a failure leaves nothing behind.

    Args:
        model: The fitted model.
        path: The folder.
        trusted: Names of types of the user's own models, in addition to those that skops trusts.
        data: Name of the table, for the model card.
        target: Name of the predicted column, for the model card.
        overwrite: Whether to replace a model in the folder.

    Raises:
        UntrustedTypeError: A model of the user has other types.
        InvalidTypeError: A model, a splitter or a label cannot be saved.
    """
    arrays, files = _decision_arrays(model), dict[str, bytes]()
    parts = model._write_parts(arrays, files)
    description = {"parameters": _write_parameters(model, files), **parts, **_describe_decision(model)}
    card = model_card(model, data=data, target=target)
    write_folder(path, type(model).__name__, description, arrays, files, trusted_types(trusted), card, overwrite)


def load(
    model: DecidingClassifier, path: str | os.PathLike[str], trusted: Any, user_functions: Mapping[str, Any]
) -> None:
    """Fill an estimator from a folder.

    Args:
        model: The estimator, with its default parameters.
        path: The folder that ``save`` wrote.
        trusted: Names of types of the user's own models, in addition to those that skops trusts.
        user_functions: The user's own ``metric`` or ``network``, which is not in the folder.

    Raises:
        ModelFileError: The folder is damaged, or what it holds is no model that this version can use.
        UntrustedTypeError: A model of the user has types that nobody trusts; nothing was built.
        MissingArgumentError: A function of the user is needed.
    """
    names = trusted_types(trusted)
    if "metric" in user_functions:
        get_metric(user_functions["metric"])  # a mistake in the argument is not the folder's fault

    def restore(description: Any, arrays: Arrays, files: dict[str, bytes]) -> None:
        known = model.get_params(deep=False)
        check_description(description, known)
        stored = Stored(description, arrays, files, names, user_functions)
        for name, value in _read_parameters(stored, known).items():  # set_params would look into the estimator
            setattr(model, name, value)
        model._restore(_read_decision(stored))
        model._read_parts(stored)
        faults = decision_faults(model) or model._faults()
        if faults:
            raise ModelFileError("; ".join(faults))

    read_folder(path, type(model).__name__, names, restore)


def _write_parameters(model: Any, files: dict[str, bytes]) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON can hold them; objects of scikit-learn are added to the files."""
    parameters: dict[str, Any] = model.get_params(deep=False)
    metric, state = get_metric(model.metric), model.random_state
    parameters["metric"] = {"name": metric.name, "own": not metric.found_by_name}
    if model.subject_to is not None:
        several = [model.subject_to] if not isinstance(model.subject_to, (list, tuple)) else model.subject_to
        parameters["subject_to"] = [str(requirement) for requirement in several]
    parameters["pos_label"] = plain_label(model.pos_label)
    parameters["random_state"] = int(state) if isinstance(state, (int, np.integer)) else None
    for name, value in parameters.items():
        if name in OBJECTS:
            is_same = value is not None and value is getattr(model, "_one_estimator", None)
            parameters[name] = SAME if is_same else write_parameter(name, value, files)
        elif isinstance(value, np.generic):
            parameters[name] = value.item()
    if isinstance(parameters.get("class_weight"), dict):
        weights = parameters["class_weight"].items()
        parameters["class_weight"] = [[plain_label(key), float(value)] for key, value in weights]
    return parameters


def _read_parameters(stored: Stored, known: Iterable[str]) -> dict[str, Any]:
    """Return the parameters that ``_write_parameters`` wrote."""
    parameters = dict(stored.description["parameters"])
    metric = parameters["metric"]
    if metric["own"] and "metric" not in stored.user_functions:
        raise MissingArgumentError(
            f"the metric {quote(metric['name'])} was the user's own function: load(path, metric=...)"
        )
    parameters["metric"] = stored.user_functions.get("metric", metric["name"])
    for name in set(OBJECTS) & set(known):
        parameters[name] = read_parameter(parameters.get(name), stored)
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    return parameters


PLAIN = (str, int, float, bool, type(None))


def write_parameter(name: str, value: Any, files: dict[str, bytes]) -> Any:
    """Return a parameter as JSON can hold it.

    Args:
        name: Its name, for the names of files.
        value: Text, a number, None, a Network, an InContext, an object of scikit-learn, or a list or tuple of these.
        files: Objects of scikit-learn are added here.

    Raises:
        InvalidTypeError: There is an object that cannot be saved.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        entries = [write_parameter(f"{name}-{place}", entry, files) for place, entry in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": entries}
    if isinstance(value, Network):
        settings = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"network": settings | {"kind": None if callable(value.kind) else value.kind}}
    if isinstance(value, InContext):
        return {"in_context": {**vars(value), "weights": None, "download": False}}
    file = f"parameter-{name}.skops"
    files[file] = model_to_bytes(value)
    return {"file": file}


def read_parameter(value: Any, stored: Stored) -> Any:
    """Return the parameter that ``write_parameter`` wrote.

    Args:
        value: What it returned.
        stored: What the folder holds.

    Raises:
        ModelFileError: The value is not one that is written to model folders.
        MissingArgumentError: The user's function is needed.
    """
    if isinstance(value, PLAIN):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ModelFileError(f"parameters: {quote(value)} is no parameter")
    ((kind, content),) = value.items()
    if kind in ("list", "tuple") and isinstance(content, list):
        entries = [read_parameter(entry, stored) for entry in content]
        return tuple(entries) if kind == "tuple" else entries
    if kind == "network" and isinstance(content, dict):
        if content.get("kind") is None:
            if "network" not in stored.user_functions:
                raise MissingArgumentError("the network was the user's own function: load(path, network=...)")
            content = content | {"kind": stored.user_functions["network"]}
        return Network(**content)
    if kind == "in_context" and isinstance(content, dict):
        return InContext(**content)
    if kind == "file" and isinstance(content, str) and content in stored.files:
        return model_from_bytes(stored.files[content], stored.trusted)
    raise ModelFileError(f"parameters: {quote(value)} is no parameter")


def _describe_decision(model: Any) -> dict[str, Any]:
    """Return the classes, the features and the decision of a fitted estimator, as JSON holds them."""
    number, names = getattr(model, "n_features_in_", None), getattr(model, "feature_names_in_", None)
    estimate = model.prior_shift_
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
        "prior_shift": None if estimate is None else {"rows": estimate.rows, "drift": vars(estimate.drift)},
    }


def _decision_arrays(model: Any) -> dict[str, NDArray[Any]]:
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
    if model.prior_shift_ is not None:
        arrays |= {SHIFT + name: getattr(model.prior_shift_, name) for name in ("shares", "intervals")}
    return arrays


def _read_decision(stored: Stored) -> dict[str, Any]:
    """Return the attributes that every fitted estimator has: classes, features, held-out rows and the decision."""
    description, arrays = stored.description, stored.arrays
    labels, features = description["classes"]["labels"], description["features"]
    classes = np.array(labels, dtype=label_type(description["classes"]["dtype"], labels))
    held_out = HeldOut(
        arrays["held_out.logits"],
        arrays["held_out.y"],
        arrays.get("held_out.weight"),
        arrays.get("held_out.groups"),
        arrays["held_out.shares"],
        with_prefix(COLUMN, arrays),
    )
    two_classes = len(classes) == 2 and held_out.y.ndim == 1
    try:
        decision = restored_decision(description["decision"])
    except ValueError as error:
        raise ModelFileError(f"model.json: {shorten(error)}") from error
    if decision.referral is not None:
        check_refer_label(description.get("refer_label"), classes)
    attributes = {
        "classes_": classes,
        "_order": arrays["order"],
        "_seed": int(description["seed"]),
        "held_out_": held_out,
        "_pooled_logits": arrays.get("held_out.pooled"),
        "pos_label_": classes.tolist()[arrays["order"][1]] if two_classes else None,
        "shift_": arrays["shift"],
        "prior_shift_": read_shift(description.get("prior_shift"), arrays, len(classes)),
        "_training_share": float(description["training_share"]),
        "decision_": decision,
        "refer_label_": description.get("refer_label"),
    }
    if features["number"] is not None:
        attributes["n_features_in_"] = int(features["number"])
    if features["names"] is not None:
        attributes["feature_names_in_"] = np.array(features["names"], dtype=object)
    return attributes


def read_shift(description: Any, arrays: Mapping[str, NDArray[Any]], classes: int) -> PriorShift | None:
    """Return what was estimated from new rows without labels, their class balance and drift; None if nothing was.

    Raises:
        ModelFileError: The folder does not hold such an estimate.
    """
    if description is None:
        return None
    check_entries(description, {"rows": COUNT, "drift": OBJECT}, "prior_shift.")
    drift = description["drift"]
    check_entries(drift, {"found": YES_NO, "p_value": NUMBER, "distance": NUMBER}, "prior_shift.drift.")
    shares, intervals = arrays.get(SHIFT + "shares"), arrays.get(SHIFT + "intervals")
    if shares is None or intervals is None or shares.shape != (classes,) or intervals.shape != (classes, 2):
        raise ModelFileError(f"prior_shift: there must be one share and one interval for each of {classes} classes")
    return PriorShift(
        np.asarray(shares, np.float64),
        np.asarray(intervals, np.float64),
        Drift(drift["p_value"], drift["distance"], drift["found"]),
        description["rows"],
    )


def plain_label(label: Any) -> Any:
    """Return a label as JSON has it.

    Raises:
        InvalidTypeError: It is neither text nor a number.
    """
    value = label.item() if isinstance(label, np.generic) else label
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidTypeError(f"labels of type {type(value).__name__} cannot be saved; train on text or numbers")


def check_description(description: Any, known_parameters: Iterable[str]) -> None:
    """Refuse a description of an estimator whose parts are missing, of a wrong type or out of range.

    Args:
        description: What model.json holds.
        known_parameters: Names of the estimator's parameters.

    Raises:
        ModelFileError: Something is wrong; the message names the part.
    """
    sections = dict.fromkeys(("parameters", "classes", "features", "decision"), OBJECT)
    check_entries(description, sections | {"seed": WHOLE, "training_share": POSITIVE})
    unknown = sorted(set(description["parameters"]) - set(known_parameters))
    if unknown:
        raise ModelFileError(
            f"model.json: parameters that this version does not have: {', '.join(map(quote, unknown[:3]))}"
        )
    check_entries(description["features"], {"number": COUNT, "names": "a list of text"}, "features.", optional=True)
    check_entries(description["parameters"].get("metric"), {"name": TEXT, "own": YES_NO}, "parameters.metric.")
    check_entries(description["classes"], {"labels": "a list of text or numbers"}, "classes.")


def label_type(name: Any, labels: list[Any]) -> np.dtype[Any]:
    """Return the array type of the labels, if it is one that fits them.

    Raises:
        ModelFileError: The type is none that a model is saved with, or is wider than its labels.
    """
    try:
        dtype = np.dtype(str(name))
    except (TypeError, ValueError, SyntaxError):  # numpy parses the text
        raise ModelFileError(f"model.json: classes.dtype must be the name of a type, got {quote(name)}") from None
    if dtype.kind not in "biufUO" or dtype.shape:
        raise ModelFileError(f"model.json: labels of type {quote(name)} are none that a model is saved with")
    widest = max((len(label) for label in labels if isinstance(label, str)), default=0)
    if dtype.kind == "U" and dtype.itemsize > 4 * max(1, widest):
        raise ModelFileError(f"model.json: classes.dtype is {quote(name)}, the longest label has {widest} characters")
    return dtype


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
        ("held-out rows", held_out.logits.shape != (rows, outputs), "logits and labels of other shapes"),
        ("held-out rows", has_labels and held_out.y.shape != (rows, outputs), "logits and labels of other shapes"),
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


def _names_differ(model: Any) -> bool:
    names = getattr(model, "feature_names_in_", None)
    return names is not None and len(names) != getattr(model, "n_features_in_", None)
