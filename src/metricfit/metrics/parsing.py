"""Names of metrics: where they are kept, and how a name with parameters is read."""

from __future__ import annotations

import ast
import difflib
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from metricfit.errors import InvalidValueError, quote

#: Maximum number of characters of a metric or a requirement; enough for one parameter per class of 5,000 classes.
LONGEST = 100_000

_BUILTIN: dict[str, Any] = {}
_OWN: dict[str, Any] = {}
_ALIASES: dict[str, str] = {}


class ParsedMetric(NamedTuple):
    """A metric as it is written: its name, arguments and, after ``[k]``, its class."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    index: Any


def add_builtin(name: str, entry: Any, aliases: Sequence[str] = ()) -> None:
    """Enter a metric or factory of this library."""
    _BUILTIN[name] = entry
    _ALIASES.update(dict.fromkeys(aliases, name))


def add_own(name: str, entry: Any) -> None:
    """Enter a user's metric; defining it again, as notebooks do, replaces it."""
    if name in _BUILTIN or name in _ALIASES:
        raise InvalidValueError(f"{name!r} is the name of a metric of this library; give yours another name")
    _OWN[name] = entry


def names() -> tuple[str, ...]:
    """The names of the library's metrics, as ``get_metric`` takes them less parameters."""
    return tuple(_BUILTIN)


def find(name: str) -> Any:
    """The metric or factory of that name."""
    known = _BUILTIN | _OWN
    name = _ALIASES.get(name, name)
    if name not in known:
        close = difflib.get_close_matches(name[:100], [*known, *_ALIASES], n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InvalidValueError(f"there is no metric {quote(name)}{hint or '.'} Known: {', '.join(sorted(known))}")
    return known[name]


def parse_expression(text: str) -> ast.expr | None:
    """Parse a Python expression without evaluating it.

    Returns:
        The expression, or None if the text is no expression, is too long or is nested too deeply.
    """
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of odd text, which is refused later
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def parse(text: str) -> ParsedMetric:
    """Read ``name``, ``name(1, beta=2)`` or either with ``[k]``.

    Raises:
        InvalidValueError: The text is none of these.
    """
    parsed = parse_metric(parse_expression(text))
    if parsed is None:
        raise InvalidValueError(
            f"cannot read the metric {quote(text)}; write a name, or a name with literal parameters such as "
            "'fbeta(beta=2)'"
        )
    return parsed


def parse_metric(node: ast.expr | None) -> ParsedMetric | None:
    """Read a metric from an expression; None if the expression is no metric."""
    index = None
    try:
        if isinstance(node, ast.Subscript):
            index, node = literal_value(node.slice), node.value
        if isinstance(node, ast.Name):
            return ParsedMetric(node.id, [], {}, index)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        args = [literal_value(arg) for arg in node.args]
        kwargs = {str(keyword.arg): literal_value(keyword.value) for keyword in node.keywords if keyword.arg}
    except ValueError:
        return None
    if len(kwargs) < len(node.keywords):  # a parameter that is given twice, or **mapping
        return None
    return ParsedMetric(node.func.id, args, kwargs, index)


def literal_value(node: ast.expr) -> Any:
    """Evaluate a literal: a constant, ``inf``, either of them with a sign, or a list of these.

    `ast.literal_eval` also evaluates nested literals, and fails with a RecursionError on thousands of signs.

    Raises:
        ValueError: The expression is something else.
    """
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_number_or_constant(item) for item in node.elts]
    return _number_or_constant(node)


def _number_or_constant(node: ast.expr) -> Any:
    sign = None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        sign, node = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
    if isinstance(node, ast.Name) and node.id == "inf":
        value: Any = math.inf
    elif isinstance(node, ast.Constant):
        value = node.value
    else:
        raise InvalidValueError("the expression is no literal")
    if sign is None:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValueError("a sign stands before something that is no number")
    return sign * value
