"""The site is small, links lead somewhere, on pages outside of the site too, and the map of CONTRIBUTING.md is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
REPOSITORY = "https://github.com/metricfit/metricfit/blob/main/"
OUTSIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "studies" / "README.md"]
OUTSIDE += [ROOT / "papers" / "README.md", *(ROOT / "papers" / "pages").glob("*.md")]


def anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading) for heading in words} | set(re.findall(r'<a id="([^"]+)">', text))


def missing(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in anchors(target))


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_outside_of_the_site(page):
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in link]
    assert [link for link in links if missing(page, link)] == []


def test_links_of_the_site_to_the_repository():
    found = [
        (page.name, link.removeprefix(REPOSITORY))
        for page in DOCS.rglob("*.md")
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if link.startswith(REPOSITORY)
    ]
    assert len(found) > 10
    assert [(name, link) for name, link in found if missing(ROOT / "README.md", link)] == []


def test_the_site_has_at_most_55_pages_and_lists_all_of_them():
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert len(listed) <= 55


def test_the_files_that_contributing_names_exist():
    named = re.findall(r"`([\w/.]+(?:\.py|/))`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(named) > 60
    files = ["/" + str(path.relative_to(ROOT)) for top in ("src", "papers/src") for path in (ROOT / top).rglob("*")]
    tests = ROOT / "tests"
    known = [name for name in named if (ROOT / name).exists() or (tests / name).exists()]
    known += [name for name in named if any(file.endswith("/" + name.rstrip("/")) for file in files)]
    assert sorted(set(named) - set(known)) == []
