"""The distribution metricfit-papers belongs to metricfit of the same release."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PAPERS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("version", "needed"),
    [("0.2.0", "metricfit[cli,torch]==0.2.0"), ("0.2.1.dev3+g1a2b3c4", "metricfit[cli,torch]")],
)
def test_a_release_needs_the_metricfit_of_the_same_release(version, needed, monkeypatch):
    interface = SimpleNamespace(MetadataHookInterface=object)  # hatchling is there when a distribution is built
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    namespace = {}
    exec((PAPERS / "hatch_build.py").read_text(encoding="utf-8"), namespace)
    metadata = {"version": version}
    namespace["Dependencies"]().update(metadata)
    assert metadata["dependencies"][0] == needed


def test_both_distributions_take_their_version_from_the_tag():
    for file in (PAPERS / "pyproject.toml", PAPERS.parent / "pyproject.toml"):
        text = file.read_text(encoding="utf-8")
        assert re.search(r'\[tool\.hatch\.version\]\nsource = "vcs"', text)
        assert not re.search(r"^version", text, re.MULTILINE)
