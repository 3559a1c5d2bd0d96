"""Maths to MathML while the site is built: no script and no network in the reader's browser.

pymdownx.arithmatex marks ``$...$`` and ``$$...$$`` in the pages and in docstrings; latex2mathml turns what it marked
into MathML, which browsers draw themselves.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace the marked formulas of a page."""
    content = _BLOCK.sub(lambda found: _mathml(found[1], "block"), content)
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def _mathml(latex: str, display: str) -> str:
    return convert(html.unescape(latex).strip(), display=display)
