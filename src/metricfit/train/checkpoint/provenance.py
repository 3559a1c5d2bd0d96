"""What an objective, an optimiser's maker or a metric is made of, where its repr does not say.

A loss may show nothing of its weights, and a function shows its name alone. Here are their settings as plain values by
name, tensors as hashes, and functions as hashes of their code.
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

PLAIN = (bool, int, str, bytes, type(None), Enum, torch.dtype, torch.device)
OURS = ("torch", "metricfit")

Found = tuple[str, Any]


def inside(given: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The plain values within, and the hashes of the code within, both by where they are.

    >>> inside(nn.CrossEntropyLoss(label_smoothing=0.1))[0]["label_smoothing"]
    0.1
    """
    values: dict[str, Any] = {}
    code: dict[str, str] = {}
    for where, found in _walk(given, "", set()):
        if isinstance(found, CodeType):
            code[where] = _hash_of_code(found)
        else:
            values[where] = found
    return values, code


def fingerprint(given: Tensor) -> str:
    """A hash of a tensor's shape, type and bits."""
    plain = given.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tuple(plain.shape)} {plain.dtype}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def described(given: Any) -> str:
    """Its repr, without the addresses that differ from one process to the next."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(given))


def _walk(given: Any, where: str, above: set[int]) -> Iterator[Found]:
    """The leaves; ``above`` are the objects on the way here, for some hold themselves."""
    if isinstance(given, float):
        yield where, given if math.isfinite(given) else repr(given)
    elif isinstance(given, PLAIN):
        yield where, given if type(given) in (bool, int, str, type(None)) else repr(given)
    elif isinstance(given, Tensor):
        yield where, fingerprint(given)
    elif hasattr(given, "__array__") and hasattr(given, "dtype"):
        yield where, hashlib.sha256(f"{given.shape} {given.dtype}".encode() + given.tobytes()).hexdigest()[:16]
    elif id(given) in above:
        return
    else:
        for name, each in _parts(given):
            yield from _walk(each, f"{where}.{name}" if where else name, above | {id(given)})
        yield from _itself(given, where)


def _itself(given: Any, where: str) -> Iterator[Found]:
    """What is to be told of an object besides its parts."""
    if isinstance(given, FunctionType) and not _is_ours(given):
        yield f"{where}()", given.__code__
    elif not isinstance(given, (list, tuple, set, frozenset, Mapping)):
        named = given if hasattr(given, "__qualname__") else type(given)
        yield f"{where} is".strip(), f"{named.__module__}.{named.__qualname__}"


def _is_ours(given: Any) -> bool:
    """Whether a class or function is of a package whose versions are noted, rather than the user's."""
    return (given.__module__ or "").partition(".")[0] in OURS


def _parts(given: Any) -> Iterator[Found]:
    if isinstance(given, nn.Module):
        yield from _by_name((name, each) for name, each in given.state_dict().items() if isinstance(each, Tensor))
        for path, module in given.named_modules():
            for name, each in _public(module):
                yield f"{path}.{name}" if path else name, each
            if path:
                yield path, type(module)
    elif isinstance(given, functools.partial):
        yield "of", given.func
        yield from _numbered(given.args)
        yield from _by_name(given.keywords.items())
    elif isinstance(given, MethodType):
        yield "of", given.__func__
        yield "self", given.__self__
    elif isinstance(given, FunctionType):
        yield from _kept(given)
    elif isinstance(given, (list, tuple)):
        yield from _numbered(given)
    elif isinstance(given, (set, frozenset)):
        yield "has", ", ".join(sorted(map(described, given)))
    elif isinstance(given, Mapping):
        yield from _by_name((key if isinstance(key, str) else described(key), each) for key, each in given.items())
    elif _is_ours(type(given)) or is_dataclass(given):
        yield from _public(given)
    elif not isinstance(given, (type, ModuleType)):  # of others one does not know how far their attributes lead
        yield from ((name, each) for name, each in _public(given) if isinstance(each, (*PLAIN, float, Tensor)))


def _public(given: Any) -> list[Found]:
    """An object's attributes; whether it trains at present is none of its settings."""
    named = getattr(given, "__dict__", {}).items()
    return _by_name((name, each) for name, each in named if not name.startswith("_") and name != "training")


def _numbered(given: Iterable[Any]) -> Iterator[Found]:
    return ((str(at), each) for at, each in enumerate(given))


def _by_name(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda each: each[0])


def _kept(function: FunctionType) -> Iterator[Found]:
    """A function's defaults, and what it closes over but for lists, dictionaries and the like, which it may fill."""
    yield from _numbered(function.__defaults__ or ())
    yield from _by_name((function.__kwdefaults__ or {}).items())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # empty: the name is set later
            continue
        fixed = (*PLAIN, float, tuple, frozenset, Tensor, FunctionType, functools.partial, type, nn.Module)
        if isinstance(value, fixed):
            yield name, value


def _hash_of_code(code: CodeType) -> str:
    digest = hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for each in code.co_consts:
        digest.update(_constant(each).encode())
    return digest.hexdigest()[:16]


def _constant(given: Any) -> str:
    if isinstance(given, CodeType):
        return _hash_of_code(given)
    if isinstance(given, frozenset):  # in an order that differs from one process to the next
        return f"frozenset({sorted(map(_constant, given))})"
    if isinstance(given, tuple):
        return f"({', '.join(map(_constant, given))})"
    return repr(given)
