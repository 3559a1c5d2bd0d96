"""Errors for public names of earlier versions that were moved or removed: they name the successor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


def moved_names(module: str, successors: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """Make the ``__getattr__`` of a module from which names were moved.

    Args:
        module: Name of the module.
        successors: For each name that was moved, where it is now.

    Returns:
        A function that raises ImportError with the successor for a moved name, and AttributeError for any other name.
        ImportError, because Python replaces the message of an AttributeError in ``from module import name``.

    >>> moved_names("metricfit.models", {"resnet18": "metricfit_papers.models.resnet18"})("resnet18")
    Traceback (most recent call last):
    ImportError: metricfit.models.resnet18 is no longer here: use metricfit_papers.models.resnet18 (pip install ...
    """

    def get_moved_name(name: str) -> NoReturn:
        if name in successors:
            raise ImportError(moved_message(f"{module}.{name}", successors[name]), name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get_moved_name


def moved_message(old: str, new: str) -> str:
    """Describe where a name is now, and what to install for it.

    Args:
        old: The full name in earlier versions.
        new: The full name now.

    Returns:
        One sentence.
    """
    install = " (pip install metricfit-papers)" if new.startswith("metricfit_papers") else ""
    return f"{old} is no longer here: use {new}{install}"
