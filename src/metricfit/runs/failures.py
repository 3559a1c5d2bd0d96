"""Whose mistake an error is: one that this library raised in words of its own, or one that nobody foresaw."""

from __future__ import annotations

import dis
from types import TracebackType

from metricfit.errors import MetricfitError


def deliberate(error: BaseException) -> bool:
    """Whether this library raised the error on purpose, with a message written for the user.

    A MetricfitError always is. Checks that still raise a built-in class, such as ValueError, are recognised by the
    traceback: its last frame is a ``raise`` statement of this library. Errors of operations and of other libraries,
    such as a failed lookup or shapes that do not match, were not expected, and are mistakes in metricfit.

    Args:
        error: An error that was caught; an error that was never raised has no traceback.

    >>> from metricfit.metrics import get_metric
    >>> try:
    ...     get_metric("f3")
    ... except ValueError as error:
    ...     deliberate(error)
    True
    >>> try:
    ...     get_metric("f1")(None).tp
    ... except (TypeError, AttributeError) as error:
    ...     deliberate(error)
    True
    >>> try:
    ...     {}["f1"]
    ... except KeyError as error:
    ...     deliberate(error)
    False
    """
    if isinstance(error, MetricfitError):
        return True
    at: TracebackType | None = error.__traceback__
    if at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    code = at.tb_frame.f_code
    package = at.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    own = package == "metricfit" or package.startswith("metricfit_")  # the latter add commands through an entry point
    return own and dis.opname[code.co_code[at.tb_lasti]] == "RAISE_VARARGS"
