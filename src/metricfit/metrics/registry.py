"""Names of metrics: where they are kept, and how a name with parameters is read."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from typing import Any

_BUILTIN: dict[str, Any] = {}
_OWN: dict[str, Any] = {}
_ALIASES: dict[str, str] = {}


def add_builtin(name: str, entry: Any, aliases: Sequence[str] = ()) -> None:
    """Enter a metric or factory of this library."""
    _BUILTIN[name] = entry
    _ALIASES.update(dict.fromkeys(aliases, name))


def add_own(name: str, entry: Any) -> None:
    """Enter a user's metric; defining it again, as notebooks do, replaces it."""
    if name in _BUILTIN or name in _ALIASES:
        raise ValueError(f"{name!r} is the name of a metric of this library; give yours another name")
    _OWN[name] = entry


def names() -> tuple[str, ...]:
    """The names of the library's metrics, as ``get_metric`` takes them less parameters."""
    return tuple(_BUILTIN)


def find(name: str) -> Any:
    """The metric or factory of that name."""
    known = _BUILTIN | _OWN
    name = _ALIASES.get(name, name)
    if name not in known:
        close = difflib.get_close_matches(name, [*known, *_ALIASES], n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no metric {name!r}{hint or '.'} Known: {', '.join(sorted(known))}")
    return known[name]


def parse(text: str) -> tuple[str, list[Any], dict[str, Any], int | None]:
    """Read ``name``, ``name(1, beta=2)`` or either with ``[k]`` into name, arguments and class number."""
    try:
        node: ast.expr = ast.parse(text.strip(), mode="eval").body
        index = None
        if isinstance(node, ast.Subscript):
            index, node = ast.literal_eval(node.slice), node.value
        if isinstance(node, ast.Name):
            return node.id, [], {}, index
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(k.arg for k in node.keywords):
            args = [ast.literal_eval(given) for given in node.args]
            kwargs = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
            if len(kwargs) == len(node.keywords):  # else a parameter is given twice
                return node.func.id, args, kwargs, index
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    raise ValueError(
        f"cannot read the metric {text!r}; write a name, or a name with literal parameters such as 'fbeta(beta=2)'"
    )
