"""Whether a saved model's model.json describes a model: types and sizes, before anything is built from it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from metricfit.errors import ModelFileError, quote

#: Parts of every model, and of a MetricClassifier.
SECTIONS: dict[str, type] = {"parameters": dict, "classes": dict, "features": dict, "decision": dict}
SECTIONS_OF_ENSEMBLES: dict[str, type] = {"ensemble": dict, "models": list, "table": dict, "history": list}


def check_description(description: Any, known_parameters: Iterable[str]) -> None:
    """Refuse a description of a MetricClassifier whose parts are missing, of a wrong type or out of range.

    Args:
        description: What model.json holds.
        known_parameters: Names of the estimator's parameters.

    Raises:
        ModelFileError: Something is wrong; the message names the part.
    """
    check_decision_description(description, known_parameters)
    _check_sections(description, SECTIONS_OF_ENSEMBLES)
    check_whole_number("features.number", description["features"].get("number"), 1)
    _check_ensemble(description["ensemble"])
    if not all(map(_is_model_row, description["models"])):
        raise ModelFileError(f"model.json: models must describe families, got {quote(description['models'])}")
    columns = description["table"].get("columns")
    if columns is not None and not (isinstance(columns, list) and all(map(_is_column, columns))):
        raise ModelFileError(f"model.json: table.columns must describe columns, got {quote(columns)}")


def check_decision_description(description: Any, known_parameters: Iterable[str]) -> None:
    """Refuse a description of any estimator that decides whose parts are missing, of a wrong type or out of range.

    Args:
        description: What model.json holds.
        known_parameters: Names of the estimator's parameters.

    Raises:
        ModelFileError: Something is wrong; the message names the part.
    """
    _check_sections(description, SECTIONS)
    unknown = sorted(set(description["parameters"]) - set(known_parameters))
    if unknown:
        raise ModelFileError(
            f"model.json: parameters that this version does not have: {', '.join(map(quote, unknown[:3]))}"
        )
    check_whole_number("seed", description.get("seed"), 0)
    if description["features"].get("number") is not None:
        check_whole_number("features.number", description["features"]["number"], 1)
    metric = description["parameters"].get("metric")
    if (
        not isinstance(metric, dict)
        or not isinstance(metric.get("name"), str)
        or not isinstance(metric.get("own"), bool)
    ):
        raise ModelFileError(
            f"model.json: parameters.metric must have a name (text) and own (true or false), got {quote(metric)}"
        )
    labels, names = description["classes"].get("labels"), description["features"].get("names")
    if not isinstance(labels, list) or not all(isinstance(label, (str, int, float)) for label in labels):
        raise ModelFileError(f"model.json: classes.labels must be a list of text or numbers, got {quote(labels)}")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ModelFileError(f"model.json: features.names must be a list of text, got {quote(names)}")


def _check_sections(description: Any, sections: dict[str, type]) -> None:
    if not isinstance(description, dict):
        raise ModelFileError(f"model.json holds {quote(description)} in place of an object")
    for name, kind in sections.items():
        if not isinstance(description.get(name), kind):
            raise ModelFileError(f"model.json: {name} is missing or of a wrong type: {quote(description.get(name))}")


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


def _check_ensemble(ensemble: dict[str, Any]) -> None:
    """Refuse an ensemble whose members have no names, weights and temperatures."""
    check_positive_number("ensemble.temperature", ensemble.get("temperature"))
    members = ensemble.get("members")
    if not isinstance(members, list) or not members or not all(isinstance(member, dict) for member in members):
        raise ModelFileError(f"model.json: ensemble.members must describe models, got {quote(members)}")
    for place, member in enumerate(members):
        if not isinstance(member.get("name"), str):
            raise ModelFileError(f"model.json: member {place} has no name, got {quote(member.get('name'))}")
        for name in ("weight", "temperature"):
            check_positive_number(f"{name} of member {place}", member.get(name))


def _is_model_row(row: Any) -> bool:
    """Whether this tells what became of a family."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return False
    numbers = [row.get(name) for name in ("weight", "value", "log_loss", "seconds", "fitted_rows", "table_rows")]
    return all(number is None or isinstance(number, (int, float)) for number in numbers) and (
        row.get("left_out") is None or isinstance(row["left_out"], str)
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


def check_whole_number(name: str, value: Any, least: int) -> None:
    """Refuse anything but a whole number from ``least`` on.

    Raises:
        ModelFileError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise ModelFileError(f"model.json: {name} must be a whole number from {least} on, got {quote(value)}")


def check_finite_number(name: str, value: Any) -> None:
    """Refuse anything but a finite number.

    Raises:
        ModelFileError: It is something else.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"model.json: {name} must be a finite number, got {quote(value)}")


def check_positive_number(name: str, value: Any) -> None:
    """Refuse anything but a finite number above 0.

    Raises:
        ModelFileError: It is something else.
    """
    check_finite_number(name, value)
    if not value > 0:
        raise ModelFileError(f"model.json: {name} must be above 0, got {quote(value)}")
