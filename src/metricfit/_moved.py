"""Errors for public names of earlier versions that were moved, renamed or removed: they name the successor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


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


class RenamedAttribute:
    """An attribute of a class under its earlier name: reading it raises AttributeError with the present name.

    It is not for ``nn.Module``, whose ``__getattr__`` replaces the message; see ``renamed_method``.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self.message = moved_message(f"{owner.__qualname__}.{name}", f"{owner.__qualname__}.{self.name}")

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self.message)


def renamed_method(old: str, new: str) -> Callable[..., NoReturn]:
    """Make a method under its earlier name: calling it raises AttributeError with the present name.

    Args:
        old: Earlier name of the method.
        new: Present name of the method.
    """

    def raise_renamed(self: object, *_args: object, **_kwargs: object) -> NoReturn:
        owner = type(self).__qualname__
        raise AttributeError(moved_message(f"{owner}.{old}", f"{owner}.{new}"))

    raise_renamed.__doc__ = f"Raise an error: the method is called {new} now.\n\nRaises:\n    AttributeError: Always."
    return raise_renamed


def renamed_parameters(**present_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function raise TypeError with the present name for parameters under their earlier names.

    Args:
        present_names: For each earlier name, the present name.

    >>> @renamed_parameters(own="user_defined")
    ... def make(user_defined=False): ...
    >>> make(own=True)
    Traceback (most recent call last):
    TypeError: the parameter own of make is no longer here: use user_defined
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def refuse_earlier_names(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() & present_names.keys():
                owner = function.__qualname__.removesuffix(".__init__")
                raise TypeError(moved_message(f"the parameter {name} of {owner}", present_names[name]))
            return function(*args, **kwargs)

        return refuse_earlier_names

    return decorate


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
