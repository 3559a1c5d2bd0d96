"""A formula over a few numbers, and its derivative, as one list of scalar instructions.

A metric is a formula over four counts. Evaluating it and its derivative with tensors takes some fifty operations, each
of which costs more than the arithmetic in it. A formula without decisions in Python performs the same operations for
all numbers, so they are recorded once: ``record`` calls the formula on example tensors and differentiates it with
autograd, while a dispatch mode lists the operations of both. The list is reduced to a few kinds of instructions, which
``core.formula_source`` writes as a function of floats, of arrays, or as a Triton program.

There is therefore one definition of each formula, and its derivative is PyTorch's. A formula with an operation that is
not known here is refused with ``CannotRecordError``, and callers evaluate it with tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from metricfit.errors import MetricfitError

#: The object that a formula belongs to, and what else identifies it. What is recorded for a formula is looked up by the
#: id of the object and kept together with it: the id of an object that is gone may become that of another.
FormulaKey = tuple[object, Hashable]
#: A variable of a recording, or a constant: a number, or one number per class.
Operand = str | bool | float | tuple[float, ...]

#: Operations that change nothing about a tensor of the same number of elements.
VIEWS = {"detach", "alias", "clone", "view", "squeeze", "unsqueeze", "expand", "select", "slice", "lift_fresh"}
VIEWS |= {"select_backward", "slice_backward", "sum", "mean", "any"}
#: Operations whose result depends on the shapes of their arguments only.
FILLS = frozenset(
    ("ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full", "scalar_tensor", "full")
)
SAME_NAME = {"mul", "div", "neg", "abs", "sqrt", "lt", "le", "gt", "ge", "eq", "ne"}
LOGIC = {"logical_and": "and", "bitwise_and": "and", "logical_or": "or", "bitwise_or": "or"}
LOGIC |= {"logical_not": "not", "bitwise_not": "not"}


class CannotRecordError(MetricfitError):
    """The formula has an operation, or a shape, that a recording cannot hold."""


class Instruction(NamedTuple):
    """``result = operation(*operands)``."""

    result: str
    operation: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Recording:
    """The instructions of a formula and its derivative.

    Attributes:
        inputs: The variables of the arguments.
        instructions: The instructions in their order.
        outputs: The value, and its derivative by each of the leading arguments.
        vectors: The variables with one number per class; none if there is one class.
        classes: The number of classes.
    """

    inputs: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[Operand, ...]
    vectors: frozenset[str]
    classes: int


def record(formula: Callable[..., Tensor], examples: Sequence[Tensor], differentiated: int = 4) -> Recording:
    """Record a formula and its derivatives by the leading arguments.

    Args:
        formula: A function of tensors with one element, or one per class, that returns one number.
        examples: Arguments to call it with; what they hold does not matter.
        differentiated: The number of arguments to differentiate by.

    Returns:
        The recording.

    Raises:
        CannotRecordError: The formula has an operation that is not known here.
    """
    with torch.inference_mode(False):
        arguments = [example.clone().requires_grad_(i < differentiated) for i, example in enumerate(examples)]
    # Hooks of this block keep the recording out of those of a checkpoint around it, which counts saved tensors.
    hooks = torch.autograd.graph.saved_tensors_hooks(_same, _same)
    with torch.inference_mode(False), torch.enable_grad(), hooks, _Events() as events:
        value = formula(*arguments)
        leading = arguments[:differentiated]
        # With create_graph autograd adds gradients out of place, so that each result is a new tensor.
        slopes = torch.autograd.grad(value, leading, create_graph=True, allow_unused=True) if leading else ()
    if value.numel() != 1:
        raise CannotRecordError("the formula returns several numbers")
    writer = _Writer(max(argument.numel() for argument in arguments))
    no_slope: Operand = (0.0,) * writer.classes if writer.classes > 1 else 0.0
    inputs = tuple(writer.add_input(argument) for argument in arguments)
    for event in events.seen:
        writer.write(*event)
    outputs = (writer.operand(value), *(no_slope if slope is None else writer.operand(slope) for slope in slopes))
    return Recording(inputs, _needed(writer.instructions, outputs), outputs, frozenset(writer.vectors), writer.classes)


def _same(tensor: Tensor) -> Tensor:
    return tensor


class _Events(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lists the operations inside the block, those of autograd included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say that nothing is being compiled here; otherwise the first operation would import the compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen.append((func.overloadpacket.__name__.rstrip("_"), args, kwargs or {}, result))
        return result


class _Writer:
    """Turns operations on tensors into instructions."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.instructions: list[Instruction] = []
        self.vectors: set[str] = set()
        self._operands: dict[int, Operand] = {}  # by the id of a tensor; the events keep the tensors alive

    def add_input(self, tensor: Tensor) -> str:
        name = f"v{len(self._operands)}"
        self._operands[id(tensor)] = name
        if tensor.numel() > 1:
            self.vectors.add(name)
        return name

    def operand(self, argument: Any) -> Operand:
        if isinstance(argument, (bool, float)):
            return argument
        if isinstance(argument, int):
            return float(argument)
        if not isinstance(argument, Tensor):
            raise CannotRecordError(f"an argument {argument!r}")
        if argument.numel() not in (1, self.classes):
            raise CannotRecordError(f"a tensor of shape {tuple(argument.shape)}")
        if id(argument) not in self._operands:
            raise CannotRecordError("a tensor from elsewhere")
        return self._operands[id(argument)]

    def write(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Add the instructions of one operation, or find out that its result is a constant."""
        if not isinstance(result, Tensor):
            raise CannotRecordError(name)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        constant = all(not isinstance(self._operands.get(id(tensor)), str) for tensor in tensors)
        if name in FILLS or constant:
            if result.numel() not in (1, self.classes):
                raise CannotRecordError(f"a tensor of shape {tuple(result.shape)}")
            numbers = result.detach().reshape(-1).tolist()
            self._operands[id(result)] = numbers[0] if len(numbers) == 1 else tuple(numbers)
        else:
            self._operands[id(result)] = self._reduce(name, args, kwargs, result)

    def _reduce(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Operand:
        """Return the operand that holds the result of an operation, after adding the instructions for it."""
        first = args[0]
        if name in VIEWS and first.numel() == result.numel():
            return self.operand(first)
        if name in VIEWS:
            return self._resize(name, args, result)
        if name == "_to_copy":
            return self._add("float", self.operand(first)) if first.dtype == torch.bool else self.operand(first)
        if name in ("add", "sub", "rsub"):
            left, right = map(self.operand, args[:2])
            if (alpha := kwargs.get("alpha", args[2] if len(args) > 2 else 1)) != 1:
                right = self._add("mul", right, float(alpha))
            return self._add("add", left, right) if name == "add" else self._subtract(name, left, right)
        operands = tuple(map(self.operand, args)) if name != "clamp" else (self.operand(first),)
        if name in SAME_NAME:
            return self._add(name, *operands)
        if name in LOGIC:
            return self._add(LOGIC[name], *operands)
        if name == "clamp":
            return self._clamp(operands[0], *args[1:], **kwargs)
        return self._select(name, operands)

    def _subtract(self, name: str, left: Operand, right: Operand) -> str:
        return self._add("sub", left, right) if name == "sub" else self._add("sub", right, left)

    def _select(self, name: str, operands: tuple[Operand, ...]) -> Operand:
        """Write an operation as a choice between two operands, or as a special case of another."""
        x, *rest = operands
        if name == "where":
            return self._add("where", x, *rest)
        if name == "masked_fill":
            return self._add("where", rest[0], rest[1], x)
        if name == "relu":
            return self._add("where", self._add("le", x, 0.0), 0.0, x)
        if name == "threshold":
            return self._add("where", self._add("le", x, rest[0]), rest[1], x)
        if name == "threshold_backward":
            return self._add("where", self._add("le", rest[0], rest[1]), 0.0, x)
        if name in ("minimum", "maximum"):
            return self._add("where", self._add("lt" if name == "minimum" else "gt", x, rest[0]), x, rest[0])
        if name == "reciprocal":
            return self._add("div", 1.0, x)
        if name == "isnan":
            return self._add("ne", x, x)
        if name == "pow" and rest[0] in (1.0, 2.0):
            return x if rest[0] == 1.0 else self._add("mul", x, x)
        raise CannotRecordError(name)

    def _clamp(self, x: Operand, low: Any = None, high: Any = None, **kwargs: Any) -> Operand:
        low, high = kwargs.get("min", low), kwargs.get("max", high)
        for bound, beyond in ((low, "lt"), (high, "gt")):
            if bound is not None:
                limit = self.operand(bound)
                x = self._add("where", self._add(beyond, x, limit), limit, x)
        return x

    def _resize(self, name: str, args: tuple[Any, ...], result: Tensor) -> str:
        """Write a sum over the classes, or one number spread over them."""
        first = self.operand(args[0])
        if name == "sum" and result.numel() == 1:
            return self._add("sum", first)
        if name == "mean" and result.numel() == 1:
            return self._add("div", self._add("sum", first), float(self.classes))
        if name == "any" and result.numel() == 1:
            return self._add("gt", self._add("sum", self._add("float", first)), 0.0)
        if name == "expand":
            return self._add("spread", first)
        if name in ("select", "slice") and result.numel() == 1:
            return self._add("pick", first, float(args[2] % self.classes))
        if name in ("select_backward", "slice_backward") and args[0].numel() == 1:
            return self._add("place", first, float(args[3] % self.classes))
        raise CannotRecordError(name)

    def _add(self, operation: str, *operands: Operand) -> str:
        result = f"v{len(self._operands)}_{len(self.instructions)}"
        self.instructions.append(Instruction(result, operation, operands))
        per_class = any(isinstance(operand, tuple) or operand in self.vectors for operand in operands)
        if (per_class or operation in ("spread", "place")) and operation not in ("sum", "pick"):
            self.vectors.add(result)
        return result


def _needed(instructions: Sequence[Instruction], outputs: Sequence[Operand]) -> tuple[Instruction, ...]:
    """Return the instructions that the outputs depend on."""
    used = {output for output in outputs if isinstance(output, str)}
    kept = []
    for instruction in reversed(instructions):
        if instruction.result in used:
            kept.append(instruction)
            used.update(operand for operand in instruction.operands if isinstance(operand, str))
    return tuple(reversed(kept))
