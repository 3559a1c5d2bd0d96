"""Recorded formulas as Python functions of floats, and as the body of a Triton program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from metricfit.core.formula_recording import Instruction, Operand, Recording

EVERYWHERE = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "neg": "-{}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "eq": "{} == {}",
    "ne": "{} != {}",
    "spread": "{}",
}
FLOATS = EVERYWHERE | {
    "where": "{1} if {0} else {2}",
    "and": "{} and {}",
    "or": "{} or {}",
    "not": "not {}",
    "float": "float({})",
    "abs": "abs({})",
    "sqrt": "sqrt({})",
    "pick": "{}_list[int({})]",
    "place": "{} if number == {} else 0.0",
}


def as_function(recording: Recording) -> Callable[..., tuple[Any, ...]]:
    """Return a function of floats, or of lists with one float per class, that returns the recording's outputs.

    Its source consists of the templates of this module and of numbers; no text of a user gets into it.
    """
    writer = _Writer(recording)
    names: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "sqrt": math.sqrt}
    arguments = ", ".join(writer.whole(name) for name in recording.inputs)
    lines = [f"def formula({arguments}):", *writer.lines(), f"return {', '.join(map(writer.whole, recording.outputs))}"]
    scope: dict[str, Any] = names | writer.constants
    exec("\n    ".join(lines), scope)
    function: Callable[..., tuple[Any, ...]] = scope["formula"]
    return function


def write_operand(operand: str | bool | float) -> str:
    """Return a variable's name, or a number."""
    if isinstance(operand, str):
        return operand
    return f"({operand!r})" if operand < 0 else repr(operand)


class _Writer:
    """Writes a recording as lines of Python, with one loop over the classes between every two sums over them.

    The level of a variable is the number of loops before it is known. Loop k computes the variables per class of level
    k, from numbers of level k or lower; a sum over the classes of a variable of level k has the level k + 1.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.constants: dict[str, tuple[float, ...]] = {}
        self.level: dict[Operand, int] = dict.fromkeys(recording.inputs, 0)
        for result, operation, operands in recording.instructions:
            before = max((self.level.get(operand, 0) for operand in operands), default=0)
            self.level[result] = before + (operation in ("sum", "pick"))

    def lines(self) -> list[str]:
        """Return the lines, without the first and the last of a function."""
        lines = []
        for level in range(max(self.level.values()) + 1):
            here = [part for part in self.recording.instructions if self.level[part.result] == level]
            loop = [part for part in here if self._is_vector(part.result)]
            lines += [self._line(part) for part in here if part not in loop and part.operation != "sum"]
            lines += self._loop(level, loop)
        return lines

    def _loop(self, level: int, loop: list[Instruction]) -> list[str]:
        instructions = self.recording.instructions
        sums = [part for part in instructions if part.operation == "sum" and self.level[part.result] == level + 1]
        if not (loop or sums):
            return []
        made = {part.result for part in loop}
        later = {operand for part in instructions if part not in loop and part not in sums for operand in part.operands}
        kept = [part.result for part in loop if part.result in later | set(self.recording.outputs)]
        read = [operand for part in (*loop, *sums) for operand in part.operands]
        entries = {self._text(operand): self.whole(operand) for operand in read if self._is_vector(operand)}
        entries = {entry: whole for entry, whole in entries.items() if entry not in made}
        body = [self._line(part) for part in loop]
        body += [f"{part.result} += {self._text(part.operands[0])}" for part in sums]
        body += [f"{name}_list.append({name})" for name in kept]
        wholes = ", ".join((*entries.values(), f"range({self.recording.classes})"))
        return [
            *(f"{part.result} = 0.0" for part in sums),
            *(f"{name}_list = []" for name in kept),
            f"for {', '.join((*entries, 'number'))}, in zip({wholes}):",
            *(f"    {line}" for line in body),
        ]

    def _line(self, part: Instruction) -> str:
        operands = [self._text(operand) for operand in part.operands]
        return f"{part.result} = " + FLOATS[part.operation].format(*operands)

    def _is_vector(self, operand: Operand) -> bool:
        return isinstance(operand, tuple) or operand in self.recording.vectors

    def whole(self, operand: Operand) -> str:
        """Return the name of a number, or of the list of a variable per class."""
        return self._text(operand) + "_list" * self._is_vector(operand)

    def _text(self, operand: Operand) -> str:
        """Return the name of a number, or of one entry of a variable per class."""
        if not isinstance(operand, tuple):
            return write_operand(operand)
        known = [name for name, value in self.constants.items() if value == operand]
        name = known[0].removesuffix("_list") if known else f"k{len(self.constants)}"
        self.constants[f"{name}_list"] = operand
        return name
