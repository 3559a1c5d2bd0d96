"""The pages' code runs: every ```python block of a page, in order, in one namespace.

A block titled "Output" after it is what it prints, to the letter; "Output (about)" is what training gives, whose
numbers may differ a little from one machine to the next.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r'^```(python|text title="Output(?: \(about\))?")\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")
ABOUT = 0.08

NOT_PAGES = {"studies", "figures", "hooks"}


def pages_with_code() -> list[Path]:
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not NOT_PAGES & set(page.parts)]
    return [page for page in (ROOT / "README.md", *pages) if "```python" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", pages_with_code(), ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "page"}
    printed = None
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        line = text[: block.start(2)].count("\n")
        if kind == "python":
            printed = io.StringIO()
            code = compile("\n" * line + body, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            continue
        assert printed is not None, f"{page.name}:{line}: an output without code before it"
        expected, got = body.strip(), printed.getvalue().strip()
        if "about" not in kind:
            assert got == expected, f"{page.name}:{line}"
            continue
        assert NUMBER.sub("#", got) == NUMBER.sub("#", expected), f"{page.name}:{line}"
        for told, found in zip(NUMBER.findall(expected), NUMBER.findall(got), strict=True):
            assert float(found) == pytest.approx(float(told), abs=ABOUT), f"{page.name}:{line}"


def test_pages_are_found() -> None:
    names = {page.name for page in pages_with_code()}
    assert {"README.md", "index.md", "quick-start.md"} <= names
