"""The parameters ``models`` and ``cv`` of MetricClassifier as JSON and files of skops, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from metricfit.errors import ModelFileError, quote
from metricfit.tabular.families.family import MissingArgumentError
from metricfit.tabular.families.network import Network
from metricfit.tabular.families.skops_files import model_from_bytes, model_to_bytes

PLAIN = (str, int, float, bool, type(None))


def write_parameter(name: str, value: Any, files: dict[str, bytes]) -> Any:
    """Return a parameter as JSON can hold it.

    Args:
        name: Its name, for the names of files.
        value: Text, a number, None, a Network, an object of scikit-learn, or a list or tuple of these.
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
    file = f"parameter-{name}.skops"
    files[file] = model_to_bytes(value)
    return {"file": file}


def read_parameter(value: Any, files: Mapping[str, bytes], *, trusted: tuple[str, ...], network: Any = None) -> Any:
    """Return the parameter that `write_parameter` wrote.

    Args:
        value: What it returned.
        files: The files of the folder.
        trusted: Names of types that the user trusts.
        network: The user's function that makes networks, or None.

    Raises:
        ModelFileError: The value is none that is written.
        MissingArgumentError: The user's function is needed.
    """
    if isinstance(value, PLAIN):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ModelFileError(f"parameters: {quote(value)} is no parameter")
    ((kind, content),) = value.items()
    if kind in ("list", "tuple") and isinstance(content, list):
        entries = [read_parameter(entry, files, trusted=trusted, network=network) for entry in content]
        return tuple(entries) if kind == "tuple" else entries
    if kind == "network" and isinstance(content, dict):
        if content.get("kind") is None:
            if network is None:
                raise MissingArgumentError("the network was the user's own function: load(path, network=...)")
            content = content | {"kind": network}
        return Network(**content)
    if kind == "file" and isinstance(content, str) and content in files:
        return model_from_bytes(files[content], trusted)
    raise ModelFileError(f"parameters: {quote(value)} is no parameter")
