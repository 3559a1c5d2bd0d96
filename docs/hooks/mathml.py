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

# latex2mathml leaves out the space around log and the like, and sets a leading minus as if it stood between two terms.
_BEFORE_NAME = re.compile(r"(</mi>|</msup>|</msub>|&#x00029;</mo>)(?=<mi>(?:log|sin)</mi>)")
_AFTER_NAME = re.compile(r"(<mi>(?:log|sin)</mi>)(?!<mo[^>]*>&#x00028;)")
_LEADING_MINUS = re.compile(r"(<mrow>|&#x00028;</mo>|&#x0003D;</mo>|&#x0002C;</mo>)<mo>&#x02212;</mo>")
_SPACE = '<mspace width="0.167em" />'


def on_page_content(content: str, **_: Any) -> str:
    """Replace the marked formulas of a page."""
    content = _BLOCK.sub(lambda found: _mathml(found[1], "block"), content)
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def _mathml(latex: str, display: str) -> str:
    mathml = convert(html.unescape(latex).strip(), display=display)
    mathml = _BEFORE_NAME.sub(rf"\1{_SPACE}", mathml)
    mathml = _AFTER_NAME.sub(rf"\1{_SPACE}", mathml)
    return _LEADING_MINUS.sub(r'\1<mo form="prefix">&#x02212;</mo>', mathml)
