"""Docstrings as Markdown: their ``:math:`` becomes ``$...$``, a bare doctest a code block, ``x`` stays as it is."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":math:`([^`]+)`")
_DIRECTIVE = re.compile(r"^\.\. math:: (.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_DOCTEST = re.compile(r"^([ \t]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring once, after its object is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring of this library as Markdown."""
    text = _DIRECTIVE.sub(lambda found: "$$\n" + " ".join(found[1].split()) + "\n$$", text)
    text = _ROLE.sub(r"$\1$", text)
    return _DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
