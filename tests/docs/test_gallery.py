"""The pages of the gallery show the stored outputs of their commands."""

import importlib
import json
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_pages_show_what_the_commands_printed(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "studies"))
    study, common = importlib.import_module("gallery"), importlib.import_module("common")
    results = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    assert {name: set(found) for name, found in results.items()} == {
        name: set(problem.commands) for name, problem in study.PROBLEMS.items()
    }
    for name, found in results.items():
        page = (study.PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert common.fill(page, study.parts_of_page(name, found)) == page, "run: python docs/studies/gallery.py"
        assert (study.PICTURES / f"gallery-{name}.webp").exists()
