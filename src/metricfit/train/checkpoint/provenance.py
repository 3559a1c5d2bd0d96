"""Descriptions of the settings and the code of objectives, optimizers, schedulers and metrics.

The repr of a loss may not show its weights, and the repr of a function shows only its name. Here settings are described
as plain values by name, tensors as hashes, and functions as hashes of their code.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from metricfit._files import hash_bytes

PLAIN = (bool, int, str, bytes, type(None), Enum, torch.dtype, torch.device)
VERSIONED_PACKAGES = ("torch", "metricfit")

NamedValue = tuple[str, Any]


def describe_settings(thing: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Describe the settings and the code inside an object.

    Args:
        thing: A module, a function, a partial, or a container of them.

    Returns:
        The plain values by their path inside the object, and the hashes of functions by their path.

    Example:
        >>> describe_settings(nn.CrossEntropyLoss(label_smoothing=0.1))[0]["label_smoothing"]
        0.1
    """
    values: dict[str, Any] = {}
    code: dict[str, str] = {}
    for path, value in _walk(thing, "", set()):
        if isinstance(value, CodeType):
            code[path] = _hash_code(value)
        else:
            values[path] = value
    return values, code


def fingerprint(tensor: Tensor) -> str:
    """Hash a tensor's shape, type and bits."""
    plain = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tuple(plain.shape)} {plain.dtype}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def repr_without_address(thing: Any) -> str:
    """Return the repr without memory addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))


def _walk(thing: Any, path: str, ancestors: set[int]) -> Iterator[NamedValue]:
    """Yield the leaves; ``ancestors`` are the ids of the objects on the path, because some objects hold themselves."""
    if isinstance(thing, float):
        yield path, thing if math.isfinite(thing) else repr(thing)
    elif isinstance(thing, PLAIN):
        yield path, thing if type(thing) in (bool, int, str, type(None)) else repr(thing)
    elif isinstance(thing, Tensor):
        yield path, fingerprint(thing)
    elif hasattr(thing, "__array__") and hasattr(thing, "dtype"):
        yield path, hash_bytes(f"{thing.shape} {thing.dtype}".encode() + thing.tobytes())
    elif id(thing) in ancestors:
        return
    else:
        for name, part in _list_parts(thing):
            yield from _walk(part, f"{path}.{name}" if path else name, ancestors | {id(thing)})
        yield from _identify(thing, path)


def _identify(thing: Any, path: str) -> Iterator[NamedValue]:
    """Yield the code of a user's function, or the class of any other object that is not a container."""
    if isinstance(thing, FunctionType) and not _is_versioned(thing):
        yield f"{path}()", thing.__code__
    elif not isinstance(thing, (list, tuple, set, frozenset, Mapping)):
        named = thing if hasattr(thing, "__qualname__") else type(thing)
        yield f"{path} is".strip(), f"{named.__module__}.{named.__qualname__}"


def _is_versioned(definition: Any) -> bool:
    """Whether a class or function belongs to a package whose version is recorded, and not to the user."""
    return (definition.__module__ or "").partition(".")[0] in VERSIONED_PACKAGES


def _list_parts(thing: Any) -> Iterator[NamedValue]:
    if isinstance(thing, nn.Module):
        yield from _sort_by_name((name, part) for name, part in thing.state_dict().items() if isinstance(part, Tensor))
        for path, module in thing.named_modules():
            for name, attribute in _public_attributes(module):
                yield f"{path}.{name}" if path else name, attribute
            if path:
                yield path, type(module)
    elif isinstance(thing, functools.partial):
        yield "of", thing.func
        yield from _enumerate(thing.args)
        yield from _sort_by_name(thing.keywords.items())
    elif isinstance(thing, MethodType):
        yield "of", thing.__func__
        yield "self", thing.__self__
    elif isinstance(thing, FunctionType):
        yield from _function_values(thing)
    elif isinstance(thing, (list, tuple)):
        yield from _enumerate(thing)
    elif isinstance(thing, (set, frozenset)):
        yield "has", ", ".join(sorted(map(repr_without_address, thing)))
    elif isinstance(thing, Mapping):
        yield from _sort_by_name(
            (key if isinstance(key, str) else repr_without_address(key), part) for key, part in thing.items()
        )
    elif _is_versioned(type(thing)) or is_dataclass(thing):
        yield from _public_attributes(thing)
    elif not isinstance(thing, (type, ModuleType)):  # attributes of unknown classes may lead to any object
        plain_types = (*PLAIN, float, Tensor)
        yield from ((name, part) for name, part in _public_attributes(thing) if isinstance(part, plain_types))


def _public_attributes(thing: Any) -> list[NamedValue]:
    """List an object's public attributes, without its training mode, which is not a setting."""
    attributes = getattr(thing, "__dict__", {}).items()
    return _sort_by_name((name, value) for name, value in attributes if not name.startswith("_") and name != "training")


def _enumerate(values: Iterable[Any]) -> Iterator[NamedValue]:
    return ((str(index), value) for index, value in enumerate(values))


def _sort_by_name(values: Iterable[NamedValue]) -> list[NamedValue]:
    return sorted(values, key=lambda named: named[0])


def _function_values(function: FunctionType) -> Iterator[NamedValue]:
    """Yield a function's defaults and the constants of its closure, but no containers, which it may modify."""
    yield from _enumerate(function.__defaults__ or ())
    yield from _sort_by_name((function.__kwdefaults__ or {}).items())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # the variable is assigned later
            continue
        constants = (*PLAIN, float, tuple, frozenset, Tensor, FunctionType, functools.partial, type, nn.Module)
        if isinstance(value, constants):
            yield name, value


def _hash_code(code: CodeType) -> str:
    names = repr((code.co_names, code.co_varnames, code.co_freevars))
    return hash_bytes(code.co_code + (names + "".join(map(_describe_constant, code.co_consts))).encode())


def _describe_constant(constant: Any) -> str:
    if isinstance(constant, CodeType):
        return _hash_code(constant)
    if isinstance(constant, frozenset):  # its order differs between processes
        return f"frozenset({sorted(map(_describe_constant, constant))})"
    if isinstance(constant, tuple):
        return f"({', '.join(map(_describe_constant, constant))})"
    return repr(constant)
