"""Words that readers stumbled over stay out of the pages and of the source, and first pages have short sentences."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATTERN = re.compile(r"\b(?:th(?:ose|at) of|the latter|called positive|called negative)\b", re.IGNORECASE)
PAGES = [
    ROOT / name
    for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "papers/README.md", "studies/README.md")
]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SOURCE = [path for path in sorted((ROOT / "src").rglob("*")) if path.suffix in {".py", ".html", ".js"}]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

#: The pages that a newcomer reads in the first days.
FIRST = ["README.md", "CHANGELOG.md", "papers/README.md", "studies/README.md"]
NAMES = ("index", "first-hour", "quick-start", "which-metric", "when-it-pays", "gallery", "any-model")
FIRST += [f"docs/{name}.md" for name in NAMES]
FIRST += [f"docs/{name}.md" for name in ("read-the-report", "guarantees", "start-well", "costs", "doctor")]
FIRST += [f"docs/api/{name}.md" for name in ("tuned", "classifier", "metric-loss", "compare", "decide")]
WORDS = 25


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_of_pages(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if PATTERN.search(line)] == []


def test_words_of_the_source():
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in SOURCE
        for line in path.read_text(encoding="utf-8").splitlines()
        if PATTERN.search(line)
    ]
    assert found == []


def sentences(text: str) -> list[str]:
    """The sentences of a page outside of code, tables, headings and pictures, with one word for code and formulas."""
    text = FENCED.sub("", text)
    text = re.sub(r"^(?:\||#|:::|\?\?\?|!!!|<!--|    ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "CODE", text)
    paragraphs = re.split(r"\n\s*\n|\n(?=- |\d+\. )", text)
    ends = re.compile(r"(?<=[.!?:;])[)*\"]*\s+")
    return [sentence for each in paragraphs for sentence in ends.split(" ".join(each.split()))]


@pytest.mark.parametrize("name", FIRST)
def test_sentences_of_first_pages_are_short(name):
    found = sentences((ROOT / name).read_text(encoding="utf-8"))
    assert [sentence for sentence in found if len(sentence.split()) > WORDS] == []
