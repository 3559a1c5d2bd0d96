"""The one message about packages that are not installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager


@contextmanager
def explain_missing(user: str, packages: Collection[str], install: str) -> Iterator[None]:
    """Say what to install when an import inside this context fails.

    Args:
        user: What needs the packages, such as "metricfit.stats".
        packages: The packages to explain; errors about others pass unchanged.
        install: The argument of pip, such as "metricfit[tabular]".

    Yields:
        Nothing; the imports are inside the context.

    Raises:
        ModuleNotFoundError: One of the packages is not installed.

    Example:
        >>> with explain_missing("metricfit.train", ["safetensors"], "metricfit[torch]"):
        ...     raise ModuleNotFoundError(name="safetensors.torch")
        Traceback (most recent call last):
        ModuleNotFoundError: metricfit.train needs safetensors, which is not installed: pip install metricfit[torch]
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        message = f"{user} needs {missing}, which is not installed: pip install {install}"
        raise ModuleNotFoundError(message, name=missing) from error
