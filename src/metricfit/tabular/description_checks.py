"""Whether a saved model's model.json describes a model: types and sizes, before anything is built from it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from metricfit.errors import ModelFileError, quote

if TYPE_CHECKING:
    from metricfit.tabular.networks import Network

#: The minimum number of weights per input number and per output of every network of this package.
WEIGHTS_EACH = 64
SECTIONS: dict[str, type] = {
    "parameters": dict,
    "classes": dict,
    "features": dict,
    "network": dict,
    "table": dict,
    "decision": dict,
    "history": list,
}


def check_description(description: Any, known_parameters: Iterable[str]) -> None:
    """Refuse a description whose parts are missing, of a wrong type or out of range.

    Args:
        description: What model.json holds.
        known_parameters: Names of the estimator's parameters.

    Raises:
        ModelFileError: Something is wrong; the message names the part.
    """
    if not isinstance(description, dict):
        raise ModelFileError(f"model.json holds {quote(description)} in place of an object")
    for name, kind in SECTIONS.items():
        if not isinstance(description.get(name), kind):
            raise ModelFileError(f"model.json: {name} is missing or of a wrong type: {quote(description.get(name))}")
    unknown = sorted(set(description["parameters"]) - set(known_parameters))
    if unknown:
        raise ModelFileError(
            f"model.json: parameters that this version does not have: {', '.join(map(quote, unknown[:3]))}"
        )
    classes, network = description["classes"], description["network"]
    for name, value in (
        ("members", description.get("members")),
        ("features.number", description["features"].get("number")),
        ("network.in_features", network.get("in_features")),
        ("network.out_features", network.get("out_features")),
    ):
        _whole_number(name, value, 1)
    _whole_number("network.width", network.get("width"), 0)
    _whole_number("seed", description.get("seed"), 0)
    _finite_number("temperature", description.get("temperature"))
    _finite_number("decision.value", description["decision"].get("value"))
    if description["decision"].get("threshold") is not None:
        _finite_number("decision.threshold", description["decision"]["threshold"])
    for name in ("interval", "value_interval"):
        _interval(f"decision.{name}", description["decision"].get(name))
    metric = description["parameters"].get("metric")
    if (
        not isinstance(metric, dict)
        or not isinstance(metric.get("name"), str)
        or not isinstance(metric.get("own"), bool)
    ):
        raise ModelFileError(
            f"model.json: parameters.metric must have a name (text) and own (true or false), got {quote(metric)}"
        )
    labels, names = classes.get("labels"), description["features"].get("names")
    if not isinstance(labels, list) or not all(isinstance(label, (str, int, float)) for label in labels):
        raise ModelFileError(f"model.json: classes.labels must be a list of text or numbers, got {quote(labels)}")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ModelFileError(f"model.json: features.names must be a list of text, got {quote(names)}")
    columns = description["table"].get("columns")
    if columns is not None and not (isinstance(columns, list) and all(map(_is_column, columns))):
        raise ModelFileError(f"model.json: table.columns must describe columns, got {quote(columns)}")


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


def check_network_size(network: Network, inputs: int, outputs: int, stored: Iterable[Tensor]) -> None:
    """Refuse a network that is larger than its stored weights, before memory is taken for it.

    Args:
        network: The network as described.
        inputs: How many numbers the stored table encoder gives.
        outputs: How many outputs the classes need.
        stored: The weights of one member.

    Raises:
        ModelFileError: The sizes do not match.
    """
    if network.in_features != inputs:
        raise ModelFileError(f"features: the network takes {network.in_features} numbers, the table gives {inputs}")
    if network.out_features != outputs:
        raise ModelFileError(f"network: {network.out_features} outputs, the classes need {outputs}")
    needed = WEIGHTS_EACH * (network.in_features * max(1, network.width) + network.out_features)
    numbers = sum(tensor.numel() for tensor in stored)
    if network.name != "own" and needed > numbers:
        raise ModelFileError(
            f"network: in_features {network.in_features} and width {network.width} need at least {needed} weights, "
            f"arrays.safetensors holds {numbers}"
        )


def _is_column(column: Any) -> bool:
    """Whether this describes a column: its kind, and what was learned of it; None for a column without entries."""
    if column is None:
        return True
    if not isinstance(column, dict) or not isinstance(column.get("kind"), str):
        return False
    categories, date_format = column.get("categories", []), column.get("format")
    return (
        isinstance(categories, list)
        and all(category is None or isinstance(category, str) for category in categories)
        and (date_format is None or isinstance(date_format, str))
    )


def _whole_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise ModelFileError(f"model.json: {name} must be a whole number from {least} on, got {quote(value)}")


def _finite_number(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"model.json: {name} must be a finite number, got {quote(value)}")


def _interval(name: str, ends: Any) -> None:
    """Refuse anything but None and two ends; infinite ends are stored as text."""
    if ends is None:
        return
    if not isinstance(ends, list) or len(ends) != 2:
        raise ModelFileError(f"model.json: {name} must be null or a list of two numbers, got {quote(ends)}")
    for end in ends:
        if end not in ("inf", "-inf"):
            _finite_number(name, end)
