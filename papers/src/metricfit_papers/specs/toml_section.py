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
    """A table's file is not as it should be."""


def read_toml(path: Path) -> Section:
    """The whole file."""
    try:
        with path.open("rb") as file:
            return Section(str(path), "", tomllib.load(file))
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{path} cannot be read as TOML: {error}") from error


class Section:
    """One table of the file; every key must be taken, so that none is misspelt. ``whole`` is all that was there."""

    def __init__(self, file: str, path: str, given: dict[str, Any]) -> None:
        self.file, self.path, self.given = file, path, dict(given)
        self.whole = dict(given)
        self.asked: list[str] = []

    def error(self, key: str, message: str) -> SpecError:
        """One that names the file and the key."""
        return SpecError(f"{self.file}: {self.key(key)}: {message}")

    def key(self, key: str) -> str:
        """With the tables it is in."""
        return f"{self.path}.{key}" if self.path else key

    def take(self, key: str, kind: type[T] | tuple[type, ...], default: Any = MISSING) -> Any:
        """A value of a kind; an error if it is another, or not there and has no default."""
        self.asked.append(key)
        if key not in self.given:
            if default is MISSING:
                raise self.error(key, f"is missing; it is {_article(kind)}")
            return default
        value = self.given.pop(key)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if isinstance(value, bool) and bool not in kinds:
            raise self.error(key, f"should be {_article(kind)}, got {value!r}")
        if isinstance(value, int) and float in kinds and int not in kinds:
            value = float(value)
        if not isinstance(value, kinds):
            raise self.error(key, f"should be {_article(kind)}, got {value!r}")
        return value

    def one_of(self, key: str, allowed: Sequence[str], default: Any = MISSING) -> str:
        """A word of a few."""
        value: str = self.take(key, str, default)
        if value not in allowed:
            raise self.error(key, f"should be one of {', '.join(allowed)}, got {value!r}")
        return value

    def checked(
        self, key: str, kind: type[T] | tuple[type, ...], check: Callable[[Any], Any], default: Any = MISSING
    ) -> Any:
        """A value that ``check`` does not raise ValueError for."""
        value = self.take(key, kind, default)
        if value is not default:
            try:
                check(value)
            except ValueError as error:
                raise self.error(key, str(error)) from error
        return value

    def section(self, key: str, optional: bool = False) -> Section:
        """A table inside this one."""
        value = self.take(key, dict, {} if optional else MISSING)
        return Section(self.file, self.key(key), value)

    def sections(self) -> Iterator[tuple[str, Section]]:
        """All that is left, each a table."""
        for key in list(self.given):
            yield key, self.section(key)

    def done(self) -> None:
        """Nothing may be left."""
        for key in self.given:
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
    return " or ".join(_WORDS[each] for each in kinds)
