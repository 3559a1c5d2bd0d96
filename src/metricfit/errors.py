"""The base class of this library's errors, and how messages quote what users passed."""

from __future__ import annotations

import re

#: Maximum number of characters that a message quotes of one value, and of another library's message.
QUOTED, EXPLAINED = 80, 300
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class MetricfitError(Exception):
    """Base class of the errors that metricfit raises on purpose; the message says what is wrong and what to do.

    Subclasses also derive from the built-in class that fits, such as ValueError, so that code which catches those
    keeps working.

    Example:
        >>> from metricfit import get_metric
        >>> try:
        ...     get_metric("f3")
        ... except MetricfitError as error:
        ...     isinstance(error, ValueError)
        True
    """


class InvalidValueError(MetricfitError, ValueError):
    """A value that cannot be used."""


class InvalidTypeError(MetricfitError, TypeError):
    """A value of a type that cannot be used."""


class InvalidStateError(MetricfitError, RuntimeError):
    """A call that the object's present state does not allow."""


class UnknownNameError(MetricfitError, KeyError):
    """A name under which nothing is kept."""

    __str__ = Exception.__str__  # KeyError would put quotation marks around the message


class NotFiniteError(MetricfitError, ArithmeticError):
    """The loss became NaN or infinite in training.

    Example:
        >>> from metricfit import fit
        >>> from metricfit.train import NotFiniteError
        >>> X, y = torch.ones(4, 1), torch.tensor([0.0, 1.0, 0.0, 1.0])
        >>> try:
        ...     fit(torch.nn.Linear(1, 1), (X, y), torch.nn.MSELoss(), lr=1e30, epochs=9)
        ... except NotFiniteError:
        ...     print("stopped")
        stopped
    """


class CheckpointError(MetricfitError, ValueError):
    """A run whose checkpoints are all damaged, or do not belong to it."""


class ModelFileError(MetricfitError, ValueError):
    """A saved model that is damaged, incomplete or inconsistent."""


class ExportError(MetricfitError, ValueError):
    """A model that cannot be exported, or whose export does not decide as the model does."""


class TableError(MetricfitError, ValueError):
    """A table that cannot be read, or that cannot be learned from."""


class TableTooLargeError(MetricfitError, ValueError):
    """A table that would take more memory than is allowed."""


def is_user_error(error: BaseException) -> bool:
    """Tell errors that the user can correct from mistakes in the library.

    Errors of this library, of the file system and of packages that are not installed can be corrected by the user.
    Any other error, such as a failed lookup or shapes that do not match, was not expected.

    Args:
        error: The error that was caught.

    Returns:
        Whether the user can correct the cause.

    Example:
        >>> from metricfit import get_metric
        >>> try:
        ...     get_metric("f3")
        ... except ValueError as error:
        ...     is_user_error(error)
        True
        >>> is_user_error(ValueError("operands could not be broadcast together"))
        False
    """
    return isinstance(error, (MetricfitError, OSError, ModuleNotFoundError))


def printable(text: str) -> str:
    """Return text with a mark in place of characters that HTML may not hold or that reorder the text around them.

    These are control characters, halves of characters, and the overrides, embeddings and isolates of the direction of
    text, such as U+202E, which shows "gpj.exe" as "exe.jpg".

    Example:
        >>> printable("a" + chr(0) + chr(0x202E) + "b") == "a" + 2 * chr(0xFFFD) + "b"
        True
    """
    return UNPRINTABLE.sub("\ufffd", text)


def quote(value: object, limit: int = QUOTED) -> str:
    """Write a value as it would be typed, shortened so that a message never repeats a whole file.

    Args:
        value: What the user passed.
        limit: Maximum number of characters to quote.

    Returns:
        The value's ``repr``, or its beginning and its length.

    Example:
        >>> quote("recall")
        "'recall'"
        >>> quote("f" * 5000, limit=8)
        "'ffffffff'... (5,000 characters)"
        >>> quote(10**5000)
        'an integer of 16610 bits'
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= limit else f"{value[:limit]!r}... ({len(value):,} characters)"
    if isinstance(value, int) and value.bit_length() > 4 * limit:  # Python refuses to write very long integers
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # also of classes that users write
        return f"a {type(value).__name__} that cannot be displayed"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def shorten(text: object, limit: int = EXPLAINED) -> str:
    """Shorten another library's message, which may quote a whole file; the text is otherwise unchanged.

    Example:
        >>> shorten("a" * 1000, limit=5)
        'aaaaa... (1,000 characters)'
    """
    whole = str(text)
    return whole if len(whole) <= limit else f"{whole[:limit]}... ({len(whole):,} characters)"


def first_line(error: Exception) -> str:
    r"""Return the first line of another library's message, shortened; the name of the error if it has no message.

    Example:
        >>> first_line(ValueError("no such column.\nTraceback"))
        'no such column'
    """
    text = str(error).strip()
    return shorten(text.splitlines()[0].rstrip(".")) if text else type(error).__name__
