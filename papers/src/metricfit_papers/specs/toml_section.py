"""Reading TOML with errors that name the file, the key and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from metricfit.errors import MetricfitError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
MISSING: Any = object()


class SpecError(MetricfitError, ValueError):
    """The file of a table has a mistake; the message names the file, the key and the remedy.

    Example:
        >>> from metricfit_papers import find_table
        >>> try:
        ...     find_table("no-such-table")
        ... except SpecError as error:
        ...     print(str(error).split(";")[0])
        no table is called 'no-such-table'
    """


def read_toml(path: Path) -> Section:
    """Read a file as one section."""
    try:
        with path.open("rb") as file:
            return Section(str(path), "", tomllib.load(file))
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{path} cannot be read as TOML: {error}") from error


class Section:
    """One section of a TOML file.

    Every key must be taken, so that misspelt keys are found.

    Attributes:
        file: The path of the file, for messages.
        path: The name of the section, with the sections around it.
        whole: All keys and values.
        remaining: The keys that have not been taken yet.
        asked: The keys that were asked for.
    """

    def __init__(self, file: str, path: str, values: dict[str, Any]) -> None:
        self.file, self.path, self.remaining = file, path, dict(values)
        self.whole = dict(values)
        self.asked: list[str] = []

    def error(self, key: str, message: str) -> SpecError:
        """Make an error that names the file and the key."""
        return SpecError(f"{self.file}: {self.key(key)}: {message}")

    def key(self, key: str) -> str:
        """Return the full name of a key, with the sections around it."""
        return f"{self.path}.{key}" if self.path else key

    def take(self, key: str, kind: type[T] | tuple[type, ...], default: Any = MISSING) -> Any:
        """Take a value of this type; an error if its type differs, or if it is missing and has no default."""
        self.asked.append(key)
        if key not in self.remaining:
            if default is MISSING:
                raise self.error(key, f"is missing; it should be {_article(kind)}")
            return default
        value = self.remaining.pop(key)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if isinstance(value, bool) and bool not in kinds:
            raise self.error(key, f"should be {_article(kind)}, got {value!r}")
        if isinstance(value, int) and float in kinds and int not in kinds:
            value = float(value)
        if not isinstance(value, kinds):
            raise self.error(key, f"should be {_article(kind)}, got {value!r}")
        return value

    def one_of(self, key: str, allowed: Sequence[str], default: Any = MISSING) -> str:
        """Take one of the allowed words."""
        value: str = self.take(key, str, default)
        if value not in allowed:
            raise self.error(key, f"should be one of {', '.join(allowed)}, got {value!r}")
        return value

    def checked(
        self, key: str, kind: type[T] | tuple[type, ...], check: Callable[[Any], Any], default: Any = MISSING
    ) -> Any:
        """Take a value, and report the ValueError that ``check`` raises with the name of the key."""
        value = self.take(key, kind, default)
        if value is not default:
            try:
                check(value)
            except ValueError as error:
                raise self.error(key, str(error)) from error
        return value

    def section(self, key: str, optional: bool = False) -> Section:
        """Take a section inside this one."""
        value = self.take(key, dict, {} if optional else MISSING)
        return Section(self.file, self.key(key), value)

    def sections(self) -> Iterator[tuple[str, Section]]:
        """Take all remaining keys, each of them a section."""
        for key in list(self.remaining):
            yield key, self.section(key)

    def done(self) -> None:
        """Raise an error if keys are left that nobody took."""
        for key in self.remaining:
            near = get_close_matches(key, self.asked, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys here are {', '.join(dict.fromkeys(self.asked))}"
            raise self.error(key, f"is not known; {hint}")


_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "a list",
    bool: "true or false",
}


def _article(kind: Any) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(_WORDS[name] for name in kinds)
