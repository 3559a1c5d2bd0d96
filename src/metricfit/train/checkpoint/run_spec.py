"""The specification of a run as plain values: a run is never resumed with other settings, code or data.

The repr of a loss may not show its weights, and the repr of a function shows only its name. Settings are therefore
described as plain values by name, tensors as hashes, and functions as hashes of their code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from metricfit._files import hash_bytes, list_differences
from metricfit._version import __version__
from metricfit.train.data.sources import FromLoader, InMemory, Source
from metricfit.train.settings import RunSettings

ROWS = 1024  # rows of the inputs that are hashed
NOT_COMPARED = ("versions", "threads", "checkpoint_every")
STAGE = ("name", "epochs", "lr", "patience", "objective", "optimizer", "scheduler", "scheduler_step", "monitors")

PLAIN = (bool, int, float, str, bytes, type(None), Enum, torch.dtype, torch.device)
VERSIONED_PACKAGES = ("torch", "metricfit")


def describe_run(
    model: nn.Module, data: Sequence[tuple[Source, Source | None]], settings: RunSettings, ranks: int
) -> dict[str, Any]:
    """Describe a run by its model, data and settings.

    Args:
        model: The model; its layers and the shapes of its weights are described.
        data: The training and validation data of each member, described by length and hashes.
        settings: How the model is trained.
        ranks: The number of processes.

    Returns:
        Values that JSON can hold.
    """
    batches, checkpoints = settings.batches, settings.checkpoints
    members = [
        {"train": _describe_data(train), "validation": None if held_out is None else _describe_data(held_out)}
        for train, held_out in data
    ]
    spec = {
        "model": {name: [*tensor.shape, str(tensor.dtype)] for name, tensor in model.state_dict().items()},
        "architecture": _repr(model).splitlines(),
        "stages": [{name: describe(getattr(stage, name)) for name in STAGE} for stage in settings.stages],
        **(members[0] if len(members) == 1 else {"members": members}),
        "batch_size": batches.size,
        "stratified": batches.stratified,
        "oversample": batches.oversample,
        **asdict(settings.steps),
        **({"seed": settings.seeds[0]} if len(data) == 1 else {"seeds": settings.seeds, "rates": settings.rates}),
        "precision": settings.precision,
        "ranks": ranks,
        "checkpoint_every": None if checkpoints is None else checkpoints.every,
        "start_at_prior": settings.start_at_prior,
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(spec, default=str))
    return plain


def find_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Compare the specifications of two runs.

    Versions, threads and the interval of checkpoints may differ. Code is compared only if both runs use the same
    version of Python, because another version compiles the same function to other bytecode.

    Args:
        before: The specification of the run that was started.
        now: The specification of the present run.

    Returns:
        One phrase per difference.
    """
    old, new = ({key: spec[key] for key in spec if key not in NOT_COMPARED} for spec in (before, now))
    other_python = _python_version(before) != _python_version(now)
    return list(list_differences(old, new, ignored={"code"} if other_python else ()))


def identify(spec: dict[str, Any]) -> str:
    """Return a hash of what may not change while a run is resumed; its code may look different in another Python."""
    compared = {key: _without_code(spec[key]) for key in spec if key not in NOT_COMPARED}
    return hash_bytes(json.dumps(compared, sort_keys=True).encode())


def _without_code(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_code(part) for key, part in value.items() if key != "code"}
    return [_without_code(part) for part in value] if isinstance(value, list) else value


def _python_version(spec: dict[str, Any]) -> list[str]:
    """Return the major and minor version of Python, which determine its bytecode."""
    versions = spec.get("versions")
    return str(versions["python"]).split(".")[:2] if isinstance(versions, dict) and "python" in versions else []


def _describe_data(source: Source) -> dict[str, Any]:
    if isinstance(source, FromLoader):
        return {"batches": source.expected_batches}
    description: dict[str, Any] = {"samples": len(source), "hash of labels": fingerprint(source.some_labels)}
    if isinstance(source, InMemory):
        description |= {} if source.group is None else {"hash of groups": fingerprint(source.group)}
        rows = torch.linspace(0, len(source) - 1, min(ROWS, len(source)), dtype=torch.float64).round().long()
        description["hash of inputs"] = fingerprint(source.take(rows).x)
        description["hash of weights"] = None if source.weight is None else fingerprint(source.weight)
    return description


def describe(value: Any, outer: frozenset[int] = frozenset()) -> Any:
    """Describe a setting as values that JSON can hold.

    Args:
        value: A module, a function, a partial, a container of them, or a plain value.
        outer: The ids of the objects that hold it, because some objects hold themselves.

    Returns:
        A plain value as it is, a tensor as a hash, and an object as what it is and what it holds, by name; a user's
        function has a hash of its code.

    Example:
        >>> describe(nn.CrossEntropyLoss(label_smoothing=0.1))["label_smoothing"]
        0.1
    """
    if isinstance(value, PLAIN):
        is_plain = type(value) in (bool, int, str, type(None)) or (type(value) is float and math.isfinite(value))
        return value if is_plain else repr(value)
    if isinstance(value, Tensor):
        return fingerprint(value)
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        return hash_bytes(f"{value.shape} {value.dtype}".encode() + value.tobytes())
    if isinstance(value, (set, frozenset)):
        return sorted(map(_repr, value))
    if id(value) in outer:
        return None
    outer |= {id(value)}
    if isinstance(value, (list, tuple)):
        return [describe(part, outer) for part in value]
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else _repr(key): describe(part, outer) for key, part in value.items()}
    named = value if hasattr(value, "__qualname__") else type(value)
    described = {name: describe(part, outer) for name, part in _list_parts(value).items()}
    if isinstance(value, FunctionType) and not _is_versioned(value):
        return described | {"code": _hash_code(value.__code__)}
    return described | {"is": f"{named.__module__}.{named.__qualname__}"}


def fingerprint(tensor: Tensor) -> str:
    """Hash a tensor's shape, type and bits."""
    plain = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tuple(plain.shape)} {plain.dtype}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _repr(value: Any) -> str:
    """Return the repr without memory addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _is_versioned(definition: Any) -> bool:
    """Check whether a class or function belongs to a package whose version is recorded, and not to the user."""
    return (definition.__module__ or "").partition(".")[0] in VERSIONED_PACKAGES


def _list_parts(value: Any) -> dict[str, Any]:
    """Return what an object holds: public attributes, and of functions their defaults and what they close over."""
    if isinstance(value, functools.partial):
        return {"of": value.func, "arguments": value.args, **value.keywords}
    if isinstance(value, MethodType):
        return {"of": value.__func__, "self": value.__self__}
    if isinstance(value, FunctionType):
        return _function_values(value)
    if isinstance(value, (type, ModuleType)):
        return {}
    attributes = getattr(value, "__dict__", {})
    public = {name: part for name, part in attributes.items() if not name.startswith("_") and name != "training"}
    if isinstance(value, nn.Module):
        return {**public, **value._parameters, **value._buffers, **value._modules}
    if _is_versioned(type(value)) or is_dataclass(value):
        return public
    return {name: part for name, part in public.items() if isinstance(part, (*PLAIN, Tensor))}  # not any object


def _function_values(function: FunctionType) -> dict[str, Any]:
    """Return a function's defaults and the constants of its closure, but no containers, which it may modify."""
    values = {"defaults": function.__defaults__, **(function.__kwdefaults__ or {})}
    constants = (*PLAIN, tuple, frozenset, Tensor, FunctionType, functools.partial, type, nn.Module)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the variable is assigned later
            values |= {name: cell.cell_contents} if isinstance(cell.cell_contents, constants) else {}
    return values


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
