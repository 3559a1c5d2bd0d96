"""Words that readers stumbled over stay out of the pages that are written by hand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"cli.md", "json-output.md"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.name not in GENERATED and "evidence" not in page.parts]
PATTERN = re.compile(r"\b(?:th(?:ose|at) of|the latter|called positive|called negative)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_words(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = [line for line in text.splitlines() if PATTERN.search(line)]
    assert found == []
