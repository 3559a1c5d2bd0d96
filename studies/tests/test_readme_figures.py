"""The README's table of the default and LightGBM has the values of the stored study."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.pages
def test_the_first_table_of_the_readme_is_that_of_the_study(monkeypatch):
    study = importlib.import_module("studies.tables")
    rows = study.rivals_table(json.loads(study.RESULTS.read_text(encoding="utf-8"))).splitlines()[2:]
    expected = [re.findall(r"0\.\d{3}(?!\d)", row)[:2] for row in rows]
    wins = [re.search(r"\d+-\d+", row)[0] for row in rows]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [row for row in text.splitlines() if re.match(r"\| [^|]+ \| \*\*0\.\d{3}\*\* \|", row)]
    assert [re.findall(r"0\.\d{3}(?!\d)", row)[:2] for row in shown] == expected
    assert [re.search(r"\d+-\d+", row)[0] for row in shown] == wins
