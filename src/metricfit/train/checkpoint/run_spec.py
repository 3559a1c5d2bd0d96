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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from metricfit.train.stage import Stage

ROWS = 1024  # rows of the inputs that are hashed
NOT_COMPARED = ("versions", "threads", "checkpoint_every")

PLAIN = (bool, int, str, bytes, type(None), Enum, torch.dtype, torch.device)
VERSIONED_PACKAGES = ("torch", "metricfit")

NamedValue = tuple[str, Any]


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
        "architecture": repr_without_address(model).splitlines(),
        "stages": [
            {
                "name": stage.name,
                "objective": _describe_part(stage.objective),
                "epochs": stage.epochs,
                "lr": stage.lr,
                "optimizer": _describe_part(stage.optimizer),
                "scheduler": _describe_part(stage.scheduler),
                **({} if stage.scheduler_step is None else {"scheduler_step": stage.scheduler_step}),
                "monitor": _describe_part(stage.watched),
                **({} if len(stage.monitors) == 1 else {"monitors": list(map(_describe_part, stage.monitors))}),
                "patience": stage.patience,
                "settings": stage_settings,
                "code": stage_code,
            }
            for stage, (stage_settings, stage_code) in ((stage, _describe_stage(stage)) for stage in settings.stages)
        ],
        **(members[0] if len(members) == 1 else {"members": members}),
        "batch_size": batches.size,
        "stratified": batches.stratified,
        "oversample": batches.oversample,
        **asdict(settings.steps),
        **({"seeds": settings.seeds, "rates": settings.rates} if settings.several else {"seed": settings.seeds[0]}),
        "precision": settings.precision,
        "ranks": ranks,
        "checkpoint_every": None if checkpoints is None else checkpoints.every,
        "start_at_prior": settings.start_at_prior,
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(spec, default=_to_plain_value))
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
    stages = [{name: stage[name] for name in stage if name != "code"} for stage in spec.get("stages", ())]
    compared = {key: spec[key] for key in sorted(spec) if key not in NOT_COMPARED} | {"stages": stages}
    return hash_bytes(json.dumps(compared, sort_keys=True).encode())


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


def _describe_part(part: Any) -> str | None:
    return None if part is None else repr_without_address(part)


def _describe_stage(stage: Stage) -> tuple[dict[str, Any], dict[str, str]]:
    """Describe what the reprs of a stage's parts do not show: their settings, and the code of functions."""
    parts = {"objective": stage.objective, "optimizer": stage.optimizer, "scheduler": stage.scheduler}
    others = {f"monitor {number}": monitor for number, monitor in enumerate(stage.monitors) if number}
    return describe_settings(parts | {"monitor": stage.watched} | others)


def _to_plain_value(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def describe_settings(obj: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Describe the settings and the code inside an object.

    Args:
        obj: A module, a function, a partial, or a container of them.

    Returns:
        The plain values by their path inside the object, and the hashes of functions by their path.

    Example:
        >>> describe_settings(nn.CrossEntropyLoss(label_smoothing=0.1))[0]["label_smoothing"]
        0.1
    """
    values: dict[str, Any] = {}
    code: dict[str, str] = {}
    for path, value in _walk(obj, "", set()):
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


def repr_without_address(obj: Any) -> str:
    """Return the repr without memory addresses, which differ between processes."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(obj))


def _walk(obj: Any, path: str, ancestors: set[int]) -> Iterator[NamedValue]:
    """Yield the leaves; ``ancestors`` are the ids of the objects on the path, because some objects hold themselves."""
    if isinstance(obj, float):
        yield path, obj if math.isfinite(obj) else repr(obj)
    elif isinstance(obj, PLAIN):
        yield path, obj if type(obj) in (bool, int, str, type(None)) else repr(obj)
    elif isinstance(obj, Tensor):
        yield path, fingerprint(obj)
    elif hasattr(obj, "__array__") and hasattr(obj, "dtype"):
        yield path, hash_bytes(f"{obj.shape} {obj.dtype}".encode() + obj.tobytes())
    elif id(obj) in ancestors:
        return
    else:
        for name, part in sorted(_list_parts(obj).items()):
            yield from _walk(part, f"{path}.{name}" if path else name, ancestors | {id(obj)})
        yield from _identify(obj, path)


def _identify(obj: Any, path: str) -> Iterator[NamedValue]:
    """Yield the code of a user's function, or the class of any other object that is not a container."""
    if isinstance(obj, FunctionType) and not _is_versioned(obj):
        yield f"{path}()", obj.__code__
    elif not isinstance(obj, (list, tuple, set, frozenset, Mapping)):
        named = obj if hasattr(obj, "__qualname__") else type(obj)
        yield f"{path} is".strip(), f"{named.__module__}.{named.__qualname__}"


def _is_versioned(definition: Any) -> bool:
    """Check whether a class or function belongs to a package whose version is recorded, and not to the user."""
    return (definition.__module__ or "").partition(".")[0] in VERSIONED_PACKAGES


def _list_parts(obj: Any) -> dict[str, Any]:
    if isinstance(obj, nn.Module):
        parts = {name: part for name, part in obj.state_dict().items() if isinstance(part, Tensor)}
        for path, module in obj.named_modules():
            parts |= {f"{path}.{name}" if path else name: value for name, value in _public_attributes(module).items()}
            parts |= {path: type(module)} if path else {}
        return parts
    if isinstance(obj, functools.partial):
        return {"of": obj.func, **_enumerate(obj.args), **obj.keywords}
    if isinstance(obj, MethodType):
        return {"of": obj.__func__, "self": obj.__self__}
    if isinstance(obj, FunctionType):
        return _function_values(obj)
    if isinstance(obj, (list, tuple)):
        return _enumerate(obj)
    if isinstance(obj, (set, frozenset)):
        return {"has": ", ".join(sorted(map(repr_without_address, obj)))}
    if isinstance(obj, Mapping):
        return {key if isinstance(key, str) else repr_without_address(key): part for key, part in obj.items()}
    if isinstance(obj, (type, ModuleType)):
        return {}
    public = _public_attributes(obj)
    if _is_versioned(type(obj)) or is_dataclass(obj):
        return public
    return {name: part for name, part in public.items() if isinstance(part, (*PLAIN, float, Tensor))}  # not any object


def _public_attributes(obj: Any) -> dict[str, Any]:
    """Return an object's public attributes, without its training mode, which is not a setting."""
    attributes = getattr(obj, "__dict__", {}).items()
    return {name: value for name, value in attributes if not name.startswith("_") and name != "training"}


def _enumerate(values: Iterable[Any]) -> dict[str, Any]:
    return {str(index): value for index, value in enumerate(values)}


def _function_values(function: FunctionType) -> dict[str, Any]:
    """Return a function's defaults and the constants of its closure, but no containers, which it may modify."""
    values = _enumerate(function.__defaults__ or ()) | (function.__kwdefaults__ or {})
    constants = (*PLAIN, float, tuple, frozenset, Tensor, FunctionType, functools.partial, type, nn.Module)
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
