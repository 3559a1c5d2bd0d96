"""Training state as the bytes of one safetensors file: tensors as they are, the rest as JSON."""

from __future__ import annotations

import json
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from metricfit.errors import InvalidTypeError, MetricfitError, shorten


class DamagedError(MetricfitError, ValueError):
    """Bytes that are not the state they should be."""


PLAIN = "plain"  # the JSON, a tensor of bytes: the file's header may hold no more than 100 MB


def pack(state: dict[str, Any]) -> bytes:
    """Nested dictionaries, lists, tuples and plain values with tensors among them, as bytes; nothing is pickled.

    Anything else is a TypeError that says where it is. Tensors come back on the CPU, subclasses of dict, list and tuple
    as the plain kind.

    >>> unpack(pack({"weights": torch.tensor([1.0, 2.0]), 3: ("plain", None)}))
    {'weights': tensor([1., 2.]), 3: ('plain', None)}
    """
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_without_tensors(state, tensors, "state")).encode()
    tensors[PLAIN] = torch.frombuffer(bytearray(plain), dtype=torch.uint8)
    return to_bytes(tensors)


def unpack(content: bytes) -> dict[str, Any]:
    """What ``pack`` was given.

    Raises:
        DamagedError: The content is not what ``pack`` writes.
    """
    try:
        tensors = from_bytes(content)
        header = 8 + int.from_bytes(content[:8], "little")
        first, end = json.loads(content[8:header])[PLAIN]["data_offsets"]
        state = _with_tensors(json.loads(content[header + first : header + end]), tensors)
    except Exception as error:  # arbitrary bytes can fail at any point of reading them
        raise DamagedError(f"its content cannot be read: {shorten(error)}") from error
    if not isinstance(state, dict):
        raise DamagedError("its content is not the state of a run")
    return state


def _without_tensors(given: Any, tensors: dict[str, Tensor], where: str) -> Any:
    if isinstance(given, Tensor):
        if given.layout != torch.strided or given.is_complex() or given.is_quantized:
            raise InvalidTypeError(f"a checkpoint cannot hold {where}, a tensor of {given.layout}, {given.dtype}")
        name = str(len(tensors))
        tensors[name] = given.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(given, dict):
        pairs = [
            [_without_tensors(key, tensors, f"a key of {where}"), _without_tensors(each, tensors, f"{where}[{key!r}]")]
            for key, each in given.items()
        ]
        return {"dict": pairs}
    if isinstance(given, (list, tuple)):
        parts = [_without_tensors(each, tensors, f"{where}[{at}]") for at, each in enumerate(given)]
        return {"tuple" if isinstance(given, tuple) else "list": parts}
    if given is None or isinstance(given, (bool, int, float, str)):
        return given
    raise InvalidTypeError(
        f"a checkpoint holds tensors and plain values, but {where} is {type(given).__name__}: {given!r}"
    )


def _with_tensors(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, inside),) = plain.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "dict":
        return {_with_tensors(key, tensors): _with_tensors(value, tensors) for key, value in inside}
    parts = [_with_tensors(each, tensors) for each in inside]
    return tuple(parts) if kind == "tuple" else parts
