"""How commands end: their exit codes, and what is said about an error.

0: done. 1: a mistake of this program. 2: something that the user can mend. 3: everything was done and kept, but a
requirement cannot be met. 130: interrupted with Ctrl-C.
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

from metricfit.cli.printing import say
from metricfit.errors import MetricfitError, is_user_error, shorten

DEBUG = "METRICFIT_DEBUG"
LONGEST = 2000  # characters of a message, whatever it quotes
#: Exit code of a command that did its work and kept it, although a requirement cannot be met.
NOT_MET = 3


class UserError(MetricfitError):
    """Something about the files or options given; the message says what, and what to do."""


def told(command: Callable[..., None], *, resumes: bool = False) -> Callable[..., None]:
    """A command whose errors end in one paragraph; one that resumes says so when it is interrupted.

    An error that this library raised in words of its own, or that the system reports of a file, is the user's to mend.
    Any other is a mistake of ours and is called so; its traceback goes to a file, or is shown with METRICFIT_DEBUG=1.
    """

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            kept = "What was finished is kept; run the same command again to go on."
            say(f"Interrupted. {kept if resumes else 'Nothing is kept to go on from; run it again from the start.'}")
            raise typer.Exit(130) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            if _is_the_users(error):
                say(f"Error: {_words(error)}")
                raise typer.Exit(2) from None
            say(_of_ours(error))
            raise typer.Exit(1) from None

    return run


def _is_the_users(error: Exception) -> bool:
    from metricfit.runs.cells import CellError  # loads what most commands do not need to start

    if isinstance(error, CellError):
        return error.details is None
    return is_user_error(error)


def _words(error: Exception) -> str:
    """What the error says; of what the system reports, with the file and the remedy, without a number."""
    if not isinstance(error, OSError) or not error.strerror:
        return shorten(error, LONGEST) or type(error).__name__
    place = None if error.filename is None else shorten(error.filename)
    where = "A file cannot be read or written" if place is None else f"{place} cannot be used"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return f"{where}: {error.strerror}." + " Make room on the disk, or give another --out." * full


def _of_ours(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="metricfit-error-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.writelines(traceback.format_exception(error))
        file.write(getattr(error, "details", ""))
    return (
        f"Error: metricfit failed where it should not have: {type(error).__name__}: {shorten(error)}. This is a "
        f"mistake in metricfit, not in your table. Please report it with the traceback in {file.name}."
    )
