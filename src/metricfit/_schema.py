"""Dataclasses as JSON, arrays and files, and back with checks: one schema for decisions and saved models.

The type hints of a dataclass are its schema. ``float``, ``int``, ``bool``, ``str``, ``X | None``, lists, tuples,
mappings from text, dataclasses and named tuples are JSON. ``Any`` is a number, or an array as nested lists. A typed
``NDArray`` goes to the arrays and a ``StoredModel`` to the files, under the name of its place. What has several kinds
derives from ``HasKinds``; only the classes that it lists are ever built. Fields with the metadata ``stored=False`` are
left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NewType, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote

if TYPE_CHECKING:
    StoredModel: TypeAlias = Any
    Label: TypeAlias = Any
    Labels: TypeAlias = NDArray[Any]
else:
    #: The hint of a model of the user, which becomes a file.
    StoredModel = NewType("StoredModel", object)
    #: The hint of a label: text, a number, true, false or null.
    Label = NewType("Label", object)
    #: The hint of an array of labels.
    Labels = NewType("Labels", object)


@dataclass
class Content:
    """The arrays and files beside the JSON.

    Attributes:
        arrays: The arrays, by the names of their places.
        files: The files, by name.
    """

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def add_model(self, place: str, model: Any) -> str:
        """Write a model of the user to a file, and return the name of the file."""
        raise NotImplementedError

    def read_model(self, name: str) -> Any:
        """Read the model of the user that a file holds."""
        raise NotImplementedError


class HasKinds:
    """A base class whose subclasses are stored with the name of their kind.

    Attributes:
        kinds: The class of each kind by its name, or its place as "module:class", which is imported when it is read.
    """

    kinds: ClassVar[Mapping[str, Any]]

    def stored(self) -> Any:
        """Return the dataclass that is stored in place of the object.

        Returns:
            By default the object itself.
        """
        return self

    def restored(self, content: Any) -> Any:
        """Return the object that a dataclass stands for, or refuse a dataclass that is damaged.

        Args:
            content: The arrays and files of the folder, and what its reader allows.

        Returns:
            By default the dataclass itself.
        """
        return self


_hints = cache(get_type_hints)
#: ``NDArray`` stands for an ndarray, and from NumPy 2.5 on, with Python 3.12, for itself.
_ARRAYS = (np.ndarray, get_origin(NDArray[Any]))


def _stored_fields(kind: Any) -> dict[str, Any]:
    hints = _hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.metadata.get("stored", True)}


def write(hint: Any, value: Any, place: str, content: Content) -> Any:
    """Return a value as JSON holds it; arrays and files are added to the content.

    Args:
        hint: The type of the value.
        value: The value.
        place: Where it stands, which names its arrays and files.
        content: The arrays and files.

    Example:
        >>> write(float, math.inf, "threshold", Content()), write(Any, np.arange(2.0), "offsets", Content())
        ('inf', [0.0, 1.0])
    """
    inner = get_args(hint)
    if value is None or NoneType in inner:
        return None if value is None else write(inner[0], value, place, content)
    if hint is StoredModel:
        return {"file": content.add_model(place, value)}
    if hint is Labels:
        return {"dtype": value.dtype.str, "labels": [plain_label(label) for label in value.tolist()]}
    if hint is Label:
        label = plain_label(value)
        return None if isinstance(label, float) and not math.isfinite(label) else label
    if get_origin(hint) in _ARRAYS:
        numbers = value if value.dtype.kind in "biuf" else np.unique(value, return_inverse=True)[1]
        content.arrays[place] = np.ascontiguousarray(numbers)
        return list(value.shape)
    if isinstance(hint, type) and issubclass(hint, HasKinds):
        value = value.stored()
        name = next(name for name, kind in hint.kinds.items() if kind is type(value) or kind == _place_of(type(value)))
        return {"kind": name} | _write_fields(value, place, content)
    if is_dataclass(value):
        return _write_fields(value, place, content)
    if isinstance(value, Mapping):
        return {str(name): write(inner[1], each, f"{place}.{name}", content) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        several = inner or tuple(get_type_hints(hint).values())
        return [
            write(several[0 if of_any_length(hint) else at], each, f"{place}.{at}", content)
            for at, each in enumerate(value)
        ]
    return _plain(value)


def _write_fields(value: Any, place: str, content: Content) -> dict[str, Any]:
    parts = _stored_fields(type(value)).items()
    return {name: write(of, getattr(value, name), f"{place}.{name}", content) for name, of in parts}


def of_any_length(hint: Any) -> bool:
    """Return whether a list or tuple has any number of entries of one type."""
    return get_origin(hint) is list or get_args(hint)[1:] == (...,)


def _place_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _plain(value: Any) -> Any:
    """Return numbers and arrays as JSON holds them; infinity as text."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(each) for each in value]
    value = value.item() if isinstance(value, np.generic) else value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


#: The types that JSON holds text and lists for, and what messages call them.
_FORMS: dict[Any, tuple[Any, str]] = {bool: (bool, "true or false"), str: (str, "text"), int: (int, "a whole number")}


def read(hint: Any, value: Any, place: str, content: Content) -> Any:
    """Return what ``write`` wrote.

    Args:
        hint: The type of the value.
        value: What JSON holds.
        place: Where it stands, for messages and the names of arrays.
        content: The arrays and files.

    Raises:
        InvalidValueError: It is of another type, or a class refuses its parts; the message names the place.

    Example:
        >>> read(tuple[float, float], [0.5, "inf"], "ends", Content())
        (0.5, inf)
    """
    inner, origin = get_args(hint), get_origin(hint)
    if NoneType in inner:
        return None if value is None else read(inner[0], value, place, content)
    if hint in (float, Any):
        return _read_numbers(place, value, in_lists=hint is Any)
    if origin in _ARRAYS:
        return _read_array(inner, place, content)
    if origin is Literal:
        if value not in inner:
            raise InvalidValueError(f"{place} must be one of {', '.join(map(quote, inner))}, got {quote(value)}")
        return value
    if hint is StoredModel:
        return _read_model(value, place, content)
    if hint in (Label, Labels):
        return _read_label(value, place) if hint is Label else _read_labels(value, place)
    if hint in _FORMS:
        form, words = _FORMS[hint]
        if type(value) is not form or (form is int and not 0 <= value < 2**63):
            raise InvalidValueError(f"{place} must be {words}, got {quote(value)}")
        return value
    if origin in (list, tuple) or (isinstance(hint, type) and issubclass(hint, tuple)):
        return _read_list(hint, value, place, content)
    if not isinstance(value, Mapping):
        raise InvalidValueError(f"{place} must be an object, got {quote(value)}")
    if origin is not None:
        return {name: read(inner[1], each, f"{place}.{quote(name)[1:-1]}", content) for name, each in value.items()}
    return _read_object(hint, value, place, content)


def _read_object(hint: Any, value: Mapping[str, Any], place: str, content: Content) -> Any:
    """Return a dataclass, of the kind that the object names if there are several."""
    kind = hint
    if issubclass(hint, HasKinds):
        name = value.get("kind")
        if not isinstance(name, str) or name not in hint.kinds:
            known = ", ".join(map(quote, hint.kinds))
            raise InvalidValueError(f"{place}.kind must be one of {known}, got {quote(name)}: others are not known")
        kind = hint.kinds[name]
        if isinstance(kind, str):
            module, _, name = kind.partition(":")
            kind = getattr(import_module(module), name)
    parts = {name: read(of, value.get(name), f"{place}.{name}", content) for name, of in _stored_fields(kind).items()}
    try:
        made = kind(**parts)
        return made.restored(content) if issubclass(hint, HasKinds) else made
    except (InvalidValueError, ModelFileError) as error:  # of a class that says nothing about the place
        message = str(error)
        raise type(error)(message if message.startswith(place) else f"{place}: {message}") from None


def _read_list(hint: Any, value: Any, place: str, content: Content) -> Any:
    inner = get_args(hint) or tuple(get_type_hints(hint).values())
    any_length = of_any_length(hint)
    if not isinstance(value, list) or (not any_length and len(value) != len(inner)):
        what = "a list" if any_length else f"null or a list of {len(inner)}"
        raise InvalidValueError(f"{place} must be {what}, got {quote(value)}")
    parts = [read(inner[0 if any_length else at], each, f"{place}.{at}", content) for at, each in enumerate(value)]
    if get_args(hint):
        return parts if get_origin(hint) is list else tuple(parts)
    return hint(*parts)


def _read_array(inner: tuple[Any, ...], place: str, content: Content) -> NDArray[Any]:
    """Return an array of the expected type, whose numbers are finite; of any type, they are as they are."""
    array, wanted = content.arrays.get(place), (get_args(inner[-1]) or inner)[0]
    if array is None:
        raise InvalidValueError(f"the array {place} is missing")
    if array.dtype.kind not in "biuf" or (
        wanted is not Any and (array.dtype.kind == "f") != issubclass(wanted, np.floating)
    ):
        raise InvalidValueError(f"{place} has numbers of type {array.dtype}")
    if wanted is not Any and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidValueError(f"{place} has numbers that are not finite")
    return array if wanted is Any else array.astype(wanted)


def _read_model(value: Any, place: str, content: Content) -> Any:
    name = value.get("file") if isinstance(value, Mapping) else None
    if not isinstance(name, str) or name not in content.files:
        raise InvalidValueError(f"{place}: {quote(name)} is missing")
    return content.read_model(name)


def plain_label(label: Any) -> Any:
    """Return a label as JSON has it.

    Raises:
        InvalidTypeError: It is neither text nor a number.
    """
    value = label.item() if isinstance(label, np.generic) else label
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidTypeError(f"labels of type {type(value).__name__} cannot be saved; train on text or numbers")


def _read_label(value: Any, place: str) -> Any:
    if value is not None and not isinstance(value, (str, int, float, bool)):
        raise InvalidValueError(f"{place} must be text or a number, got {quote(value)}")
    return value


def _read_labels(value: Any, place: str) -> NDArray[Any]:
    """Return labels, if their type is one that labels are saved with, and no wider than they are."""
    described = value if isinstance(value, Mapping) else {}
    labels, name = read(list[Label], described.get("labels"), f"{place}.labels", Content()), described.get("dtype")
    try:
        dtype = np.dtype(str(name))
    except (TypeError, ValueError, SyntaxError):  # numpy parses the text
        raise InvalidValueError(f"{place}.dtype must be the name of a type, got {quote(name)}") from None
    if dtype.kind not in "biufUO" or dtype.shape:
        raise InvalidValueError(f"{place}: labels of type {quote(name)} are none that a model is saved with")
    widest = max((len(label) for label in labels if isinstance(label, str)), default=0)
    if dtype.kind == "U" and dtype.itemsize > 4 * max(1, widest):
        raise InvalidValueError(f"{place}.dtype is {quote(name)}, the longest label has {widest} characters")
    return np.array(labels, dtype=dtype)


def _read_numbers(place: str, value: Any, *, in_lists: bool) -> Any:
    """Return a number, which is text in JSON if it is infinite, or an array of numbers."""
    if in_lists and isinstance(value, list):
        parts = [_read_numbers(place, part, in_lists=True) for part in value]
        if len({np.shape(part) for part in parts}) != 1:
            raise InvalidValueError(f"{place} must be a list of rows with as many numbers each, got {quote(value)}")
        return np.array(parts)
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max:
        raise InvalidValueError(f"{place} must be a finite number, got {quote(value)}")
    return float(value)
