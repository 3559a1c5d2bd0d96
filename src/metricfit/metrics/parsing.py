"""How a metric with parameters is read from text, without evaluating it."""

from __future__ import annotations

import ast
import math
import warnings
from typing import Any, NamedTuple

from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.written_formula import WrittenFormula, describe_syntax_error, is_formula, read_formula

#: Maximum length of a metric or a requirement in characters; enough for one parameter per class of 5,000 classes.
LONGEST = 100_000


class ParsedMetric(NamedTuple):
    """A metric as written: its name, its arguments, in brackets its class, and the groups of ``.gap(groups)``.

    In place of a name it may have a formula over counts.
    """

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    index: Any
    groups: Any = None
    formula: WrittenFormula | None = None


def parse_expression(text: str) -> ast.expr | None:
    """Parse a Python expression without evaluating it.

    Returns:
        The expression, or None if the text is no expression, is too long or is nested too deeply.
    """
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # odd text can cause one; it is refused later
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def parse(text: str) -> ParsedMetric:
    """Read ``name``, ``name(1, beta=2)`` or a formula, any with ``[class]``, and any of these with ``.gap(groups)``.

    Raises:
        InvalidValueError: The text is none of these.
    """
    node = parse_expression(text)
    parsed = parse_metric(node, text)
    if parsed is None:
        raise InvalidValueError(
            describe_syntax_error(text)
            or _describe_unquoted_column(node)
            or f"cannot read the metric {quote(text)}; write a name, a name with literal parameters such as "
            "'fbeta(beta=2)', or a formula such as '2*tp/(2*tp + fp + fn)'"
        )
    return parsed


def _describe_unquoted_column(node: ast.expr | None) -> str | None:
    """Say that the column of ``cost(fp=5, fn=amount)`` must be in quotes; None for anything else."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cost"):
        return None
    for value in (*node.args, *(keyword.value for keyword in node.keywords)):
        if isinstance(value, ast.Name):
            return f"write the name of a column in quotes: 'cost' takes a number or a name such as {value.id!r}"
    return None


def parse_metric(node: ast.expr | None, text: str) -> ParsedMetric | None:
    """Read a metric from an expression, which was parsed from the text; None if the expression is no metric.

    Raises:
        InvalidValueError: It is a formula with parts that are not allowed.
    """
    index, groups = None, None
    try:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "gap":
            if len(node.args) != 1 or node.keywords:
                return None
            groups, node = literal_value(node.args[0]), node.func.value
        if isinstance(node, ast.Subscript):
            index, node = _class_of(node.slice), node.value
    except ValueError:
        return None
    if node is not None and is_formula(node):
        return ParsedMetric("", [], {}, index, groups, read_formula(node, text))
    try:
        if isinstance(node, ast.Name):
            return ParsedMetric(node.id, [], {}, index, groups)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return None
        args = [literal_value(arg) for arg in node.args]
        kwargs = {str(keyword.arg): literal_value(keyword.value) for keyword in node.keywords if keyword.arg}
    except ValueError:
        return None
    if len(kwargs) < len(node.keywords):  # a parameter that is given twice, or **mapping
        return None
    return ParsedMetric(node.func.id, args, kwargs, index, groups)


def _class_of(node: ast.expr) -> Any:
    """Read what stands in brackets: a class number, or the name of a class with or without quotation marks."""
    return node.id if isinstance(node, ast.Name) else literal_value(node)


def literal_value(node: ast.expr) -> Any:
    """Evaluate a literal: a constant, ``inf``, either of them with a sign, a list of these, or a list of such lists.

    `ast.literal_eval` also evaluates other literals, and fails with a RecursionError on thousands of signs.

    Raises:
        ValueError: The expression is something else.
    """
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_number_or_list(item) for item in node.elts]
    return _number_or_constant(node)


def _number_or_list(node: ast.expr) -> Any:
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
