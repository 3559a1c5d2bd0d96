"""Fitted estimators as folders, and back.

A folder holds the parameters of an estimator, the names of its columns, and its fitted parts (``stored_parts``), which
are dataclasses (``metricfit._schema``). Loading builds only classes that this package lists, and scikit-learn models of
types that skops or the user trusts. Hashes do not tell of a folder that was edited with its manifest, so types, sizes
and ranges are checked before a model is used.

A folder has model.json, arrays.safetensors, files of skops, a manifest of hashes and a model card. The hashes show that
a file was cut short or changed, unless the manifest was changed too; they are no signature.
``native_memory`` checks what native code of scikit-learn follows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED

import numpy as np
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as bytes_of

from metricfit._files import hash_bytes, new_folder, parse_json
from metricfit._schema import Content, plain_label, read, write
from metricfit._version import __version__
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote, shorten
from metricfit.metrics.metric import get_metric
from metricfit.tabular.facts import model_card
from metricfit.tabular.families.family import MissingArgumentError
from metricfit.tabular.families.in_context import InContext
from metricfit.tabular.families.network import Network

if TYPE_CHECKING:
    from metricfit.tabular.deciding import DecidingClassifier


FORMAT = 2
MODEL, ARRAYS, MANIFEST = "model.json", "arrays.safetensors", "manifest.json"
CARD = "model_card.md"  # for people; nothing reads it
SKOPS_FILE = re.compile(r"[a-z0-9._-]{1,200}\.skops")
#: The estimator of manifests that name none.
FIRST = "MetricClassifier"


@dataclass
class Folder(Content):
    """What a folder holds, and what its reader allows.

    Attributes:
        trusted: Names of types that the user trusts.
        user_functions: The user's own ``metric`` or ``network``, and the file of ``weights``, which are not in it.
        columns: The number of encoded columns of the table.
        classes: The number of classes.
    """

    trusted: tuple[str, ...] = ()
    user_functions: Mapping[str, Any] = field(default_factory=dict)
    columns: int = 0
    classes: int = 0

    @property
    def outputs(self) -> int:
        """The number of logits per row."""
        return 1 if self.classes == 2 else self.classes

    def add_model(self, place: str, model: Any) -> str:
        """Write a scikit-learn model to a file."""
        name = f"{place}.skops"
        self.files[name] = model_to_bytes(model)
        return name

    def read_model(self, name: str) -> Any:
        """Read the scikit-learn model of a file."""
        return model_from_bytes(self.files[name], self.trusted)


#: Builds a model from what model.json holds.
Restore = Callable[[Any, Folder], None]


def write_folder(
    path: str | os.PathLike[str],
    estimator: str,
    description: Mapping[str, Any],
    content: Folder,
    card: str,
    overwrite: bool = False,
) -> None:
    """Write a model to a new or empty folder; a failure leaves nothing behind.

    Args:
        path: The folder.
        estimator: The name of the model's class.
        description: What JSON holds.
        content: The arrays, and the files of skops.
        card: The model card. The manifest does not name it, so that people may edit it.
        overwrite: Whether to replace a model in the folder. Other folders with files are never replaced.

    Raises:
        UntrustedTypeError: A file has types that nobody trusts.
    """
    for file in content.files.values():
        check_trusted(file, content.trusted, "save")
    text = json.dumps(description, allow_nan=False, indent=1)
    contents = {MODEL: text.encode(), ARRAYS: bytes_of(content.arrays), **content.files}
    hashes = {name: hash_bytes(file, length=64) for name, file in contents.items()}
    manifest = {"format": FORMAT, "metricfit": __version__, "estimator": estimator, "sha256": hashes}
    contents[MANIFEST], contents[CARD] = json.dumps(manifest, indent=1).encode(), card.encode()
    with new_folder(path, overwrite=overwrite and (Path(path) / MANIFEST).is_file()) as unfinished:
        for name, file in contents.items():
            (unfinished / name).write_bytes(file)


def read_folder(path: str | os.PathLike[str], estimator: str, content: Folder, restore: Restore) -> None:
    """Build a model from a folder.

    Args:
        path: The folder that `write_folder` wrote.
        estimator: The name of the class that is expected.
        content: What the reader allows.
        restore: Builds the model.

    Raises:
        ModelFileError: The folder is damaged, or what it holds is no model that this version can use.
        UntrustedTypeError: A model of the user has types that nobody trusts; nothing was built.
        MissingArgumentError: A function of the user is needed.
    """
    folder = Path(path)
    contents = _checked_contents(folder, estimator)
    try:
        description = parse_json(contents.pop(MODEL))
        content.arrays, content.files = arrays_from(contents.pop(ARRAYS)), contents
        for file in contents.values():
            check_trusted(file, content.trusted, "load")
        restore(description, content)
    except (ImportError, MissingArgumentError, UntrustedTypeError):  # what the user can add
        raise
    except (ModelFileError, InvalidValueError) as error:
        raise ModelFileError(
            f"{folder} holds no whole model ({error}): save it again from the fitted one, or load it with the version "
            "of metricfit that saved it"
        ) from error
    except Exception as error:  # whatever else fails while it reads the folder is the folder's fault
        raise ModelFileError(
            f"{folder} holds no model of this version: {type(error).__name__}: {shorten(error)}"
        ) from error


def name_of_estimator(path: str | os.PathLike[str]) -> str | None:
    """Return the name of the class whose model a folder holds; None if its manifest does not say."""
    try:
        return str(parse_json((Path(path) / MANIFEST).read_bytes()).get("estimator", FIRST))
    except (OSError, ValueError, AttributeError):
        return None


def _checked_contents(folder: Path, estimator: str) -> dict[str, bytes]:
    """Return the contents of the files that the manifest names, if they have the hashes that it states."""
    if not (folder / MANIFEST).is_file():
        raise ModelFileError(f"{folder} has no {MANIFEST}: it is no saved model, or one whose saving was cut short")
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes())
        format_of, hashes = manifest["format"], manifest["sha256"]
        saved = manifest.get("estimator", FIRST)
        expected = {name: str(hashes[name]) for name in dict.fromkeys((MODEL, ARRAYS, *hashes))}
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{folder / MANIFEST} cannot be read: {shorten(error)}") from error
    if format_of != FORMAT:
        raise ModelFileError(f"{folder} is of format {quote(format_of)}, this version reads {FORMAT}")
    if saved != estimator:
        raise ModelFileError(f"{folder} holds a {quote(saved)}, not a {estimator}: load it with metricfit.{saved}.load")
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


#: Types that skops does not trust yet, and that hold nothing but values: plain classes, and numpy's types, which skops
#: reads from an empty array.
PLAIN_TYPES = (
    "collections.OrderedDict",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.utils._bunch.Bunch",
    *(
        f"sklearn.model_selection._split.{splitter}"
        for splitter in (
            "GroupKFold",
            "GroupShuffleSplit",
            "KFold",
            "PredefinedSplit",
            "ShuffleSplit",
            "StratifiedGroupKFold",
            "StratifiedKFold",
            "StratifiedShuffleSplit",
            "TimeSeriesSplit",
        )
    ),
)


class UntrustedTypeError(InvalidValueError):
    """A model of the user has types that are only saved and loaded if the user names them."""


def model_to_bytes(model: Any) -> bytes:
    """Write a scikit-learn model.

    Raises:
        InvalidTypeError: skops cannot write it.
    """
    try:
        content: bytes = _skops().dumps(model, compression=ZIP_DEFLATED)
    except Exception as error:  # whatever the model's own classes raise
        raise InvalidTypeError(
            f"{type(model).__name__} cannot be saved without pickle: {shorten(error)}. Use another model, or leave it "
            "out of models"
        ) from error
    return content


def model_from_bytes(content: bytes, trusted: Sequence[str]) -> Any:
    """Read a scikit-learn model, and check what native code follows in it.

    Args:
        content: What `model_to_bytes` returned.
        trusted: Names of types that the user trusts, in addition to the types that skops trusts.

    Raises:
        UntrustedTypeError: It has other types; nothing was built.
        ModelFileError: It cannot be read, or a part of it does not fit the others.
    """
    from metricfit.tabular.native_memory import check_model  # scikit-learn's trees, which no other model needs

    check_trusted(content, trusted, "load")
    try:
        model = _skops().loads(content, trusted=[*trusted, *PLAIN_TYPES])
    except Exception as error:  # a damaged file may fail anywhere
        raise ModelFileError(f"user_model: cannot be read: {type(error).__name__}: {shorten(error)}") from error
    check_model(model)
    return model


def check_trusted(content: bytes, trusted: Sequence[str], method: str) -> None:
    """Refuse a file with types that neither skops nor the user trusts.

    Args:
        content: What `model_to_bytes` returned.
        trusted: Names of types that the user trusts.
        method: "save" or "load", for the message.

    Raises:
        UntrustedTypeError: There are such types; the message names them.
        ModelFileError: The file cannot be read.
    """
    try:
        untrusted = [str(name) for name in _skops().get_untrusted_types(data=content)]
    except Exception as error:  # a damaged file may fail anywhere
        raise ModelFileError(f"user_model: cannot be read: {type(error).__name__}: {shorten(error)}") from error
    missing = sorted(set(untrusted) - {*trusted, *PLAIN_TYPES})
    if missing:
        names = ", ".join(map(quote, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise UntrustedTypeError(
            f"a model of the user has types that could run code or crash: {names}. If you trust them, name them: "
            f"{method}(path, trusted=[...])"
        )


def trusted_types(trusted: Any) -> tuple[str, ...]:
    """Return the names of the types that the user trusts.

    Raises:
        InvalidTypeError: It is no list of names.
    """
    if trusted is None:
        return ()
    if isinstance(trusted, str) or not all(isinstance(name, str) for name in trusted):
        raise InvalidTypeError(f"trusted is a list of names of types; got {quote(trusted)}")
    return tuple(trusted)


def _skops() -> Any:
    """Load skops, which imports all of scikit-learn, only for those who have such models."""
    import skops.io

    return skops.io


#: Parameters that may hold models, networks or splitters, in files.
OBJECTS = ("models", "cv", "estimator")
#: In place of the parameter ``estimator``, if it is the fitted estimator itself.
SAME = "fitted"


@dataclass(frozen=True)
class Features:
    """The columns of the table that an estimator was fitted on, as scikit-learn names them."""

    number: int | None
    names: list[str] | None


@dataclass(frozen=True)
class StoredMetric:
    """The name of a metric, and whether it was the user's own function."""

    name: str
    own: bool


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
    folder = Folder(trusted=trusted_types(trusted))
    description = {"parameters": _write_parameters(model, folder)}
    names = getattr(model, "feature_names_in_", None)
    features = Features(getattr(model, "n_features_in_", None), None if names is None else list(names))
    description["features"] = write(Features, features, "features", folder)
    for name, hint in model.stored_parts.items():
        place = name.removesuffix("_")
        description[place] = write(hint, getattr(model, name), place, folder)
    card = model_card(model, data=data, target=target)
    write_folder(path, type(model).__name__, description, folder, card, overwrite)


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
    content = Folder(trusted=trusted_types(trusted), user_functions=user_functions)
    if "metric" in user_functions:
        get_metric(user_functions["metric"])  # a mistake in the argument is not the folder's fault

    def restore(description: Any, folder: Folder) -> None:
        if not isinstance(description, dict):
            raise ModelFileError(f"model.json holds {quote(description)} in place of an object")
        parameters = _read_parameters(description.get("parameters"), folder, model.get_params(deep=False))
        features: Features = read(Features, description.get("features"), "features", folder)
        parts: dict[str, Any] = {}
        for name, hint in model.stored_parts.items():
            place = name.removesuffix("_")
            parts[name] = read(hint, description.get(place), place, folder)
            if name == "chosen_":
                folder.classes = len(parts[name].names.classes)
            if name == "encoder_":
                folder.columns = parts[name].scaling.width
        if isinstance(parameters.get("estimator"), str) and parameters["estimator"] == SAME:
            parameters["estimator"] = parts["scorer_"].one
        if features.names is not None and len(features.names) != features.number:
            raise ModelFileError("features: their names are more or fewer than their number")
        named = {"n_features_in_": features.number, "feature_names_in_": features.names}
        parts |= {name: value for name, value in named.items() if value is not None}
        if features.names is not None:
            parts["feature_names_in_"] = np.array(features.names, dtype=object)
        model._take_over(parameters, parts)
        faults = model.chosen_.faults(get_metric(model.metric), model.subject_to)
        if faults:
            raise ModelFileError("; ".join(faults))
        model._check_parts()

    read_folder(path, type(model).__name__, content, restore)


def _write_parameters(model: Any, folder: Folder) -> dict[str, Any]:
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
            is_same = value is not None and value is getattr(getattr(model, "scorer_", None), "one", None)
            parameters[name] = SAME if is_same else write_parameter(name, value, folder)
        elif isinstance(value, np.generic):
            parameters[name] = value.item()
    if isinstance(parameters.get("class_weight"), dict):
        weights = parameters["class_weight"].items()
        parameters["class_weight"] = [[plain_label(key), float(value)] for key, value in weights]
    return parameters


def _read_parameters(description: Any, folder: Folder, known: Iterable[str]) -> dict[str, Any]:
    """Return the parameters that ``_write_parameters`` wrote."""
    if not isinstance(description, dict):
        raise ModelFileError(f"parameters must be an object, got {quote(description)}")
    unknown = sorted(set(description) - set(known))
    if unknown:
        listed = ", ".join(map(quote, unknown[:3]))
        raise ModelFileError(f"model.json: parameters that this version does not have: {listed}")
    parameters, functions = dict(description), folder.user_functions
    metric: StoredMetric = read(StoredMetric, parameters.get("metric"), "parameters.metric", folder)
    if metric.own and "metric" not in functions:
        raise MissingArgumentError(
            f"the metric {quote(metric.name)} was the user's own function: load(path, metric=...)"
        )
    parameters["metric"] = functions.get("metric", metric.name)
    try:
        get_metric(parameters["metric"])
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"parameters: {shorten(error)}") from error
    for name in set(OBJECTS) & set(known):
        parameters[name] = read_parameter(parameters.get(name), folder)
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    return parameters


PLAIN = (str, int, float, bool, type(None))


def write_parameter(name: str, value: Any, folder: Folder) -> Any:
    """Return a parameter as JSON can hold it.

    Args:
        name: Its name, for the names of files.
        value: Text, a number, None, a Network, an InContext, an object of scikit-learn, or a list or tuple of these.
        folder: Objects of scikit-learn are added here.

    Raises:
        InvalidTypeError: There is an object that cannot be saved.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        entries = [write_parameter(f"{name}-{place}", entry, folder) for place, entry in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": entries}
    if isinstance(value, Network):
        settings = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"network": settings | {"kind": None if callable(value.kind) else value.kind}}
    if isinstance(value, InContext):
        return {"in_context": {**vars(value), "weights": None, "download": False}}
    return {"file": folder.add_model(f"parameter-{name}", value)}


def read_parameter(value: Any, folder: Folder) -> Any:
    """Return the parameter that ``write_parameter`` wrote.

    Args:
        value: What it returned.
        folder: What the folder holds.

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
        entries = [read_parameter(entry, folder) for entry in content]
        return tuple(entries) if kind == "tuple" else entries
    if kind == "network" and isinstance(content, dict):
        if content.get("kind") is None:
            if "network" not in folder.user_functions:
                raise MissingArgumentError("the network was the user's own function: load(path, network=...)")
            content = content | {"kind": folder.user_functions["network"]}
        return Network(**content)
    if kind == "in_context" and isinstance(content, dict):
        return InContext(**content)
    if kind == "file" and isinstance(content, str) and content in folder.files:
        return folder.read_model(content)
    raise ModelFileError(f"parameters: {quote(value)} is no parameter")
