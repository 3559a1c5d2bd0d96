"""Fitted models as what a folder holds of them, and back, with parts that tests can damage."""

from dataclasses import dataclass
from typing import Any

from metricfit._schema import read, write
from metricfit.errors import InvalidValueError, ModelFileError
from metricfit.tabular.families.family import FittedModel
from metricfit.tabular.storage import Folder


@dataclass(frozen=True)
class State:
    """The kind of a model, what JSON holds of it, and its arrays and files by the names of the fields."""

    kind: str
    values: dict[str, Any]
    arrays: dict[str, Any]
    files: dict[str, bytes]


def state_of(model):
    content = Folder()
    values = write(FittedModel, model, "model", content)
    arrays = {name.removeprefix("model."): array.copy() for name, array in content.arrays.items()}
    return State(values.pop("kind"), values, arrays, content.files)


def restore(state, columns, classes, trusted=(), **user_functions):
    arrays = {f"model.{name}": array for name, array in state.arrays.items()}
    content = Folder(arrays, state.files, tuple(trusted), user_functions, columns, classes)
    try:
        return read(FittedModel, {"kind": state.kind, **state.values}, "model", content)
    except InvalidValueError as error:
        if type(error) is not InvalidValueError:  # a type that nobody trusts, or a function that is missing
            raise
        raise ModelFileError(str(error)) from error
