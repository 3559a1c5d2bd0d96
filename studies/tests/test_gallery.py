"""The page of the gallery shows the stored outputs of their commands."""

import importlib
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.pages
def test_the_page_shows_what_the_commands_printed(monkeypatch):
    study, common = importlib.import_module("studies.gallery"), importlib.import_module("studies.common")
    results = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    assert {name: set(found) for name, found in results.items()} == {
        name: set(problem.commands) for name, problem in study.PROBLEMS.items()
    }
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert common.fill(page, study.parts_of_page(results)) == page, "run: python -m studies.gallery"
    assert all((study.PICTURES / f"gallery-{name}.webp").exists() for name in results)
