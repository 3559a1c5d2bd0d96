"""The pages on PyPI are the READMEs with absolute links, and all of them lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SITE = "https://metricfit.github.io/metricfit/"
FILES = "https://github.com/metricfit/metricfit/blob/main/"
PICTURES = "https://raw.githubusercontent.com/metricfit/metricfit/main/"


def source(link: str) -> Path:
    """The file of this repository that the link shows."""
    link = link.partition("#")[0]
    if link.startswith(SITE):
        return ROOT / "docs" / link.removeprefix(SITE).replace(".html", ".md")
    return ROOT / link.removeprefix(FILES).removeprefix(PICTURES)


@pytest.mark.parametrize(("folder", "pictures"), [(ROOT, 1), (ROOT / "papers", 0)], ids=["metricfit", "papers"])
def test_links_of_the_page_on_pypi(folder, pictures):
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert "readme" in project["project"]["dynamic"]
    text = "".join((folder / part["path"]).read_text(encoding="utf-8") for part in hook["fragments"])
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)

    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link for link in links if link.startswith((SITE, FILES, PICTURES))]
    assert len(ours) >= 5
    assert [link for link in ours if not source(link).is_file()] == []
    assert len(re.findall(rf"!\[[^\]]*\]\({PICTURES}", text)) == pictures
