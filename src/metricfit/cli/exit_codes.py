"""How commands end: exit codes and error messages.

0: success. 1: a mistake in metricfit. 2: an error that the user can correct. 3: the work was done and its results kept,
but a requirement cannot be met, or the model of ``fit --onnx`` cannot be exported. 130: interrupted with Ctrl-C, where
``fit`` keeps a model of the families that were complete.
"""

from __future__ import annotations

import errno
import os
import tempfile
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from metricfit._extras import explain_missing
from metricfit.cli.terminal import print_message
from metricfit.errors import MetricfitError, is_user_error, shorten

#: Packages of the extra ``cli``.
PACKAGES = ("joblib", "numpy", "pandas", "scipy", "sklearn", "jinja2", "matplotlib")
DEBUG = "METRICFIT_DEBUG"
MAX_MESSAGE = 2000  # characters, whatever the message quotes
#: Exit code of a command that did its work and kept it, although a requirement cannot be met.
NOT_MET = 3
#: Exit code of a command that was interrupted with Ctrl-C.
INTERRUPTED = 130


class UserError(MetricfitError):
    """A file or an option that cannot be used; the message says why and what to do."""


def report_errors(command: Callable[..., None], *, resumes: bool = False) -> Callable[..., None]:
    """Make a command report its errors in one paragraph and end with the right exit code.

    Errors that metricfit raises on purpose, and errors of the file system, can be corrected by the user. Any other
    error is a mistake in metricfit; its traceback is written to a file, or shown with METRICFIT_DEBUG=1.

    Args:
        command: The function of the command.
        resumes: Whether the command continues an interrupted run when it is called again.

    Returns:
        The command with its errors reported.
    """

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with explain_missing("the command metricfit", PACKAGES, "metricfit[cli]"):
                command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            kept = "Finished parts are kept; run the same command again to continue."
            lost = "Nothing was kept; run the command again from the start."
            print_message(f"Interrupted. {kept if resumes else lost}")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            if _is_user_error(error):
                print_message(f"Error: {_describe(error)}")
                raise typer.Exit(2) from None
            print_message(_describe_mistake(error))
            raise typer.Exit(1) from None

    return run


def _is_user_error(error: Exception) -> bool:
    from metricfit.runs.cells import CellError  # loads what most commands do not need to start

    if isinstance(error, CellError):
        return error.details is None
    return is_user_error(error)


def _describe(error: Exception) -> str:
    """Return the error's message; for errors of the file system, the file, the reason and a remedy."""
    if not isinstance(error, OSError) or not error.strerror:
        return shorten(error, MAX_MESSAGE) or type(error).__name__
    file = None if error.filename is None else shorten(error.filename)
    problem = "A file cannot be read or written" if file is None else f"{file} cannot be used"
    disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return f"{problem}: {error.strerror}." + " Free some disk space, or give another --out." * disk_full


def _describe_mistake(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="metricfit-error-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.writelines(traceback.format_exception(error))
        file.write(getattr(error, "details", ""))
    return (
        f"Error: metricfit failed where it should not have: {type(error).__name__}: {shorten(error)}. This is a "
        f"mistake in metricfit, not in your table. Please report it with the traceback in {file.name}."
    )
