"""How metrics are read from text without evaluating it: names with parameters, and formulas over counts."""

from __future__ import annotations

import ast
import difflib
import math
import operator
import warnings
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, NoReturn

import numpy as np

from metricfit.core.arrays import Array
from metricfit.core.counts import Counts
from metricfit.core.numerics import maximum, minimum, root, smallest_divisor, value_of, where
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import registry
from metricfit.metrics.metric_parameters import LARGEST_PARAMETER, as_float

#: The counts that a formula is written in.
COUNTS = ("tp", "fp", "fn", "tn", "n")
#: The function around a formula whose lower values are better.
MINIMIZE = "minimize"
#: Maximum number of characters of a formula, of operations inside each other, and of an exponent.
LONGEST_FORMULA, DEEPEST, LARGEST_EXPONENT = 500, 60, 10

#: A part of a formula: a number, or a function of counts.
Part = float | Callable[[Counts], Array]


class WrittenFormula:
    """A function of Counts that was read from text. Formulas of the same text are equal.

    Args:
        text: The formula as ``ast.unparse`` writes it.
        function: What it computes.
        minimize: Whether lower values are better: the formula was written inside ``minimize(...)``.
    """

    #: Metrics of written formulas are found again by their names, in other processes and in saved models.
    found_by_name = True

    def __init__(self, text: str, function: Callable[[Counts], Array], minimize: bool) -> None:
        self.text = text
        self.function = function
        self.minimize = minimize
        self.__doc__ = text

    @property
    def name(self) -> str:
        """The text that ``get_metric`` takes, including the direction."""
        return f"{MINIMIZE}({self.text})" if self.minimize else self.text

    def __call__(self, counts: Counts) -> Array:
        """Compute the formula for counts ``(..., c)``."""
        return self.function(counts)

    @property
    def needs(self) -> frozenset[str]:
        """Which of "positives" and "negatives" must be present: without them, decisions do not change the value."""
        none, predicted, rest = (np.array(cell, float) for cell in ([0, 0, 0], [0, 2, 3], [5, 3, 2]))
        without = {"positives": Counts(none, predicted, none, rest), "negatives": Counts(predicted, none, rest, none)}
        with np.errstate(all="ignore"):
            return frozenset(name for name, counts in without.items() if _is_constant(self(counts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrittenFormula) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return parse_formula, (self.name,)


def in_brackets(name: str) -> str:
    """Write a formula so that ``[k]`` or ``.gap(groups)`` can follow it; names of metrics stay as they are.

    Example:
        >>> in_brackets("tp / n"), in_brackets("fbeta(beta=2)"), in_brackets("(tp + fp) * (tp + fn)")
        ('(tp / n)', 'fbeta(beta=2)', '((tp + fp) * (tp + fn))')
    """
    try:
        has_operator = isinstance(ast.parse(name, mode="eval").body, (ast.BinOp, ast.UnaryOp))
    except SyntaxError:  # a function of a user without a name, <lambda>
        return name
    return f"({name})" if has_operator else name


def is_formula(node: ast.expr | None) -> bool:
    """Return whether an expression is meant as a formula over counts, rather than as the name of a metric."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in (*FUNCTIONS, MINIMIZE) and not registry.is_known(node.func.id)
    if isinstance(node, ast.Name):
        return node.id in COUNTS and not registry.is_known(node.id)
    return isinstance(node, (ast.BinOp, ast.UnaryOp))


def parse_formula(text: str) -> WrittenFormula:
    """Read a formula from text.

    Example:
        >>> parse_formula("tp / (tp + fn)")(Counts(tp=3, fp=1, fn=1, tn=4))
        array([0.75])
    """
    return read_formula(ast.parse(text, mode="eval").body, text)


def read_formula(node: ast.expr, text: str) -> WrittenFormula:
    """Make a formula of an expression.

    Numbers, the counts tp, fp, fn, tn and n, ``+ - * /``, powers with exponents up to 10, ``sqrt``, ``abs``, ``min``
    and ``max`` are allowed; ``minimize(...)`` around the whole says that lower is better. 0/0 is 0, with gradient 0.

    Args:
        node: The expression.
        text: The text that it was parsed from, which messages quote.

    Raises:
        InvalidValueError: The expression holds something else; the message names the part and where it is.
    """
    if len(text) > LONGEST_FORMULA:
        raise InvalidValueError(f"a formula has at most {LONGEST_FORMULA} characters, got {len(text)}: {quote(text)}")
    minimize = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == MINIMIZE
    if minimize:
        assert isinstance(node, ast.Call)
        if len(node.args) != 1 or node.keywords:
            _refuse(node, text, f"takes one formula, as in '{MINIMIZE}(fp / n)'")
        node = node.args[0]
    function = _read(node, text, DEEPEST)
    if not callable(function):
        raise InvalidValueError(f"the formula {quote(text)} is one number; use the counts {', '.join(COUNTS)} in it")
    return WrittenFormula(ast.unparse(node), function, minimize)


def describe_syntax_error(text: str) -> str | None:
    """Say where a text stops being a formula; None if it is not a broken formula."""
    if len(text) > LONGEST_FORMULA or not any(sign in text for sign in "+-*/^×·÷²"):
        return None
    try:
        ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        return f"cannot read the formula {quote(text)}: {error.msg} (character {error.offset})"
    except (ValueError, MemoryError, RecursionError):
        pass
    return None


def _read(node: ast.expr, text: str, deepest: int) -> Part:
    """Read a part of a formula, nested at most so deeply: numbers are computed at once, counts later."""
    if deepest == 0:
        raise InvalidValueError(f"the formula {quote(text)} is nested more than {DEEPEST} operations deep")
    if isinstance(node, ast.Constant):
        return _read_number(node, text)
    if isinstance(node, ast.Name):
        return _read_count(node, text)
    function, operands = _read_operation(node, text)
    parts = [_read(operand, text, deepest - 1) for operand in operands]
    if function is _power and (callable(parts[1]) or not 0 <= parts[1] <= LARGEST_EXPONENT):
        _refuse(operands[1], text, f"is an exponent; write a number from 0 to {LARGEST_EXPONENT}")
    if function is _divide and parts[1] == 0:
        _refuse(operands[1], text, "is 0, and something is divided by it")
    if any(callable(part) for part in parts):
        return lambda counts: function(*(part(counts) if callable(part) else part for part in parts))
    try:
        value = function(*parts)
    except OverflowError:
        value = math.nan
    if isinstance(value, complex) or not math.isfinite(value):
        _refuse(node, text, "is not a finite number")
    return float(value)


def _read_number(node: ast.Constant, text: str) -> float:
    """Read a number that stays finite when it is multiplied by counts."""
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        _refuse(node, text, "is no number")
    if abs(number := as_float(node.value, "a number of the formula")) > LARGEST_PARAMETER:
        _refuse(node, text, f"is larger than {LARGEST_PARAMETER:g}")
    return number


def _read_count(node: ast.Name, text: str) -> Part:
    if node.id in COUNTS:
        return operator.attrgetter(node.id)
    if registry.is_known(node.id):
        _refuse(node, text, "is a metric; a formula is written in the counts tp, fp, fn, tn and n")
    close = difflib.get_close_matches(node.id.lower()[:20], COUNTS, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    _refuse(node, text, f"is none of {', '.join(COUNTS)}{hint}")


def _read_operation(node: ast.expr, text: str) -> tuple[Callable[..., Any], list[ast.expr]]:
    """Return the function of an operation, and the expressions that it is applied to."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return operator.neg if isinstance(node.op, ast.USub) else operator.pos, [node.operand]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        function, least, most = FUNCTIONS[node.func.id]
        if node.keywords or not least <= len(node.args) <= most:
            _refuse(node, text, f"takes {'one value' if most == 1 else f'{least} to {most} values'}")
        return function, node.args
    _refuse(
        node,
        text,
        f"is not allowed; write numbers, {', '.join(COUNTS)}, + - * /, powers as in tp**2, {', '.join(FUNCTIONS)}, or "
        f"{MINIMIZE}(...) around the whole",
    )


def _divide(numerator: Any, denominator: Any) -> Any:
    """Divide, with value 0 and gradient 0 for 0/0. Any other number divided by 0 is infinite, as in arithmetic."""
    if isinstance(denominator, float):
        return numerator / denominator
    least = smallest_divisor(denominator)
    empty = (abs(value_of(denominator)) < least) & (abs(value_of(numerator)) < least)
    # The denominator is made safe before dividing, because a gradient through 0/0 would be NaN.
    return where(empty, 0.0, numerator / where(empty, 1.0, denominator))


def _power(base: Any, exponent: float) -> Any:
    """Raise to a power; a base below 0 that a rounded difference of counts may have counts as 0 for a broken power."""
    if exponent == int(exponent) or isinstance(base, float):
        return base ** (int(exponent) if exponent == int(exponent) else exponent)
    empty = value_of(base) < smallest_divisor(base)
    return where(empty, 0.0, where(empty, 1.0, base) ** exponent)


def _extreme(choose: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *values: reduce(choose, values)


OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.Pow: _power,
}
#: Functions, and how many values each takes at least and at most.
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "sqrt": (root, 1, 1),
    "abs": (abs, 1, 1),
    "min": (_extreme(minimum), 2, len(COUNTS)),
    "max": (_extreme(maximum), 2, len(COUNTS)),
}


def _is_constant(values: Array) -> bool:
    values = np.where(np.isnan(values), 0.0, values)
    return bool((values == values[0]).all())


def _refuse(node: ast.expr, text: str, reason: str) -> NoReturn:
    """Refuse a part of a formula, and say where it is."""
    line = text.strip().splitlines()[node.lineno - 1].encode()
    end = node.end_col_offset if node.end_lineno == node.lineno else None
    part, before = line[node.col_offset : end].decode(), line[: node.col_offset].decode()
    raise InvalidValueError(
        f"cannot read the formula {quote(text)}: {quote(part)} (character {len(before) + 1}) {reason}"
    )


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


def literal_value(node: ast.expr, deepest: int = 2) -> Any:
    """Evaluate a literal: a constant, ``inf``, either of them with a sign, a list of these, or a list of such lists.

    `ast.literal_eval` also evaluates other literals, and fails with a RecursionError on thousands of signs.

    Raises:
        ValueError: The expression is something else.
    """
    if isinstance(node, (ast.List, ast.Tuple)) and deepest:
        return [literal_value(item, deepest - 1) for item in node.elts]
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
        raise InvalidValueError("a sign must stand before a number")
    return sign * value
