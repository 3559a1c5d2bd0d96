"""Losses, networks and datasets written as text, such as ``MetricLoss('f1', step=Linear(0.1))``.

The text may use known names and literals only; it is never evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from metricfit.errors import MetricfitError

Known = Mapping[str, Callable[..., Any]]


class ExpressionError(MetricfitError, ValueError):
    """The text is not a call of known names."""


def build_object(text: str, known: Known, **extra: Any) -> Any:
    """Build the object that a text describes; ``extra`` goes to the outermost call, and a bare name is called too.

    >>> build_object("dict(a=[1, 2], b=list())", {"dict": dict, "list": list}, c=3)
    {'a': [1, 2], 'b': [], 'c': 3}
    >>> build_object("open('x')", {"dict": dict})
    Traceback (most recent call last):
    metricfit_papers.specs.expressions.ExpressionError: 'open' is not known here; there are dict
    """
    function, args, kwargs = _call(_parsed(text), text, known)
    try:
        return function(*args, **{**kwargs, **extra})
    except (TypeError, ValueError) as error:
        raise ExpressionError(f"{text}: {error}") from error


def check_expression(text: str, known: Known) -> None:
    """Raise an error if the text is not a call of known names, without making the outermost call."""
    _call(_parsed(text), text, known)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} is not a call such as MetricLoss('f1')") from error


def _call(node: ast.expr, text: str, known: Known) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    if isinstance(node, ast.Name):
        return _named(node.id, known), [], {}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise ExpressionError(f"{text!r} is not a call such as MetricLoss('f1')")
    args = [_value(argument, text, known) for argument in node.args]
    kwargs = {item.arg: _value(item.value, text, known) for item in node.keywords if item.arg is not None}
    if len(kwargs) < len(node.keywords):
        raise ExpressionError(f"{text!r}: write out the arguments; ** is not supported")
    return _named(node.func.id, known), args, kwargs


def _value(node: ast.expr, text: str, known: Known) -> Any:
    if isinstance(node, (ast.Call, ast.Name)):
        function, args, kwargs = _call(node, text, known)
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise ExpressionError(f"{text}: {error}") from error
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item, text, known) for item in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ExpressionError(f"{text!r}: arguments are numbers, text, lists and calls of known names") from error


def _named(name: str, known: Known) -> Callable[..., Any]:
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
        raise ExpressionError(f"{name!r} is not known here{hint}")
    return known[name]
