"""Names that are loaded when they are first used, and the one message about packages that are not installed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any


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


def load_later(package: str, homes: Mapping[str, str], extras: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are loaded when they are first used.

    Args:
        package: The package.
        homes: For each module, the names that it has, separated by blanks; the package has its own modules.
        extras: Other packages that these modules need, and the argument of pip that installs each.

    Returns:
        The function, which keeps what it loads.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with ExitStack() as explained:
            for extra, install in extras.items():
                explained.enter_context(explain_missing(f"{package}.{name}", (extra,), install))
            value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        setattr(import_module(package), name, value)  # found without this function from now on
        return value

    return load
