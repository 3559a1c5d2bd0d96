"""Whose mistake an error is: one that this library raised in words of its own, or one that nobody foresaw."""

from __future__ import annotations

import dis
from types import TracebackType


def deliberate(error: BaseException) -> bool:
    """Whether a ``raise`` in this library's own code made the error, and so a message written for the reader.

    What an operation or another library raised, such as a failed lookup or shapes that do not match, was foreseen by
    nobody. Only an error that was caught has a traceback to tell by.

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
    at: TracebackType | None = error.__traceback__
    if at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    code = at.tb_frame.f_code
    own = at.tb_frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]
    return own and dis.opname[code.co_code[at.tb_lasti]] == "RAISE_VARARGS"
