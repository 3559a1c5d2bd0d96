"""From NumPy 2.5 on, ``NDArray`` is an alias with a name where Python has such aliases, and a hint of its own."""

from typing import TypeVar

import numpy as np
import pytest

from metricfit import _schema

aliases = pytest.importorskip("typing_extensions")
Number = TypeVar("Number", bound=np.generic)
NewNDArray = aliases.TypeAliasType("NewNDArray", np.ndarray[tuple[int, ...], np.dtype[Number]], type_params=(Number,))


@pytest.mark.parametrize("number", [np.int64, np.float64])
def test_arrays_are_stored_by_either_kind_of_hint(monkeypatch, number):
    monkeypatch.setattr(_schema, "_ARRAYS", (*_schema._ARRAYS, NewNDArray))
    content, order = _schema.Content(), np.array([1, 0], dtype=number)
    for hint in (NewNDArray[number], np.ndarray[tuple[int, ...], np.dtype[number]]):
        written = _schema.write(hint, order, "order", content)
        assert written == [2]
        read = _schema.read(hint, written, "order", content)
        assert read.dtype == number
        assert read.tolist() == [1, 0]
