"""A graph of ONNX under construction: nodes are added one by one, and names are made up on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit._extras import explain_missing

with explain_missing("metricfit.export.onnx", ["onnx"], "metricfit[onnx]"):
    from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

#: Versions of the operators: ``ai.onnx.ml`` 5 has trees in double precision.
OPSET, ML_OPSET, IR_VERSION = 18, 5, 10
ML = "ai.onnx.ml"
ROWS = "rows"

_TYPES = {
    "double": TensorProto.DOUBLE,
    "float": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "string": TensorProto.STRING,
    "bool": TensorProto.BOOL,
}


class Graph:
    """Nodes, constants and inputs. Every method returns the name of the tensor that it adds.

    Args:
        reserved: Names of inputs and outputs, which no other tensor may have.

    Example:
        >>> graph = Graph({"x", "y"})
        >>> x = graph.input("x", "double", 1)
        >>> graph.output("y", graph.node("Add", x, np.ones(1)), "double", 1)
        >>> [node.op_type for node in graph.model({}).graph.node]
        ['Add', 'Identity']
    """

    def __init__(self, reserved: set[str]) -> None:
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._used = set(reserved)

    def input(self, name: str, kind: str, width: int) -> str:
        """Add an input ``(rows, width)``."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], [ROWS, width]))
        return name

    def output(self, name: str, tensor: str, kind: str, width: int | None) -> None:
        """Name a tensor as an output, ``(rows, width)``, or ``(rows,)`` without a width."""
        self._nodes.append(helper.make_node("Identity", [tensor], [name]))
        shape: list[Any] = [ROWS] if width is None else [ROWS, width]
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def constant(self, values: NDArray[Any]) -> str:
        """Add a constant."""
        name = self._new_name("constant")
        self._constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weights(self, values: NDArray[Any]) -> str:
        """Add a constant in double precision; it is stored in single precision where that loses nothing."""
        with np.errstate(over="ignore"):
            narrow = np.asarray(values, dtype=np.float32)
        if not np.array_equal(narrow, values, equal_nan=True):
            return self.constant(np.asarray(values, dtype=np.float64))
        return self.cast(self.constant(narrow), "double")

    def node(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output.

        Args:
            operator: The operator of ONNX.
            inputs: Names of tensors; arrays, lists of whole numbers, and numbers, which become float64.
            domain: The domain of the operator.
            attributes: The attributes of the node.
        """
        tensors = [
            entry
            if isinstance(entry, str)
            else self.constant(np.asarray(entry, float if np.ndim(entry) == 0 else None))
            for entry in inputs
        ]
        name = self._new_name(operator)
        self._nodes.append(helper.make_node(operator, tensors, [name], domain=domain, **attributes))
        return name

    def tree_node(self, x: str, attributes: Mapping[str, Any]) -> str:
        """Add a TreeEnsemble; its long lists are not checked one by one, as ``node`` does."""
        name = self._new_name("TreeEnsemble")
        node = helper.make_node("TreeEnsemble", [x], [name], domain=ML)
        node.attribute.extend(_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return name

    def cast(self, tensor: str, kind: str) -> str:
        """Convert a tensor to another type."""
        return self.node("Cast", tensor, to=_TYPES[kind])

    def join(self, parts: list[str]) -> str:
        """Put tensors ``(rows, k)`` side by side."""
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=1)

    def columns(self, tensor: str, index: NDArray[Any]) -> str:
        """Select columns."""
        return self.node("Gather", tensor, np.asarray(index, dtype=np.int64), axis=1)

    def clip(self, tensor: str, low: float, high: float) -> str:
        """Limit numbers of double precision."""
        return self.node("Clip", tensor, low, high)

    def affine(self, tensor: str, matrix: NDArray[Any], shift: NDArray[Any]) -> str:
        """Return ``tensor @ matrix + shift``."""
        return self.node("Add", self.node("MatMul", tensor, self.weights(matrix)), self.weights(shift))

    def sum(self, tensors: Sequence[str]) -> str:
        """Return the sum of several tensors of one shape, added in this order."""
        return reduce(lambda total, tensor: self.node("Add", total, tensor), tensors)

    def mean(self, tensors: Sequence[str]) -> str:
        """Return the mean of several tensors of one shape."""
        return self.node("Div", self.sum(tensors), len(tensors))

    def beside_zeros(self, logits: str) -> str:
        """Turn logits ``(rows, 1)`` of the second class of two into logits of both, ``(rows, 2)``."""
        return self.join([self.node("Mul", logits, 0), logits])

    def model(self, facts: Mapping[str, str], description: str = "") -> ModelProto:
        """Return the finished model with its metadata."""
        graph = helper.make_graph(
            self._nodes, "metricfit", self._inputs, self._outputs, self._constants, doc_string=description
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)],
            ir_version=IR_VERSION,
            producer_name="metricfit",
        )
        helper.set_model_props(model, dict(facts))
        return model

    def _new_name(self, what: str) -> str:
        name = f"{what}_{len(self._used)}"
        while name in self._used:
            name += "_"
        self._used.add(name)
        return name


def _attribute(name: str, value: Any) -> AttributeProto:
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        attribute = AttributeProto(name=name, type=AttributeProto.INTS)
        attribute.ints.extend(value.tolist())
        return attribute
    return helper.make_attribute(name, numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value)
