"""The sections of docs/when-it-pays.md have the values of the stored studies."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "docs" / "studies"


@pytest.mark.parametrize("name", ["several_labels_page", "long_tails_page"])
def test_sections_are_those_of_the_stored_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    study, common = importlib.import_module(name), importlib.import_module("common")
    stored = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    page = study.PAGE.read_text(encoding="utf-8")
    assert common.fill(page, study.parts_of_page(stored)) == page, f"run: python docs/studies/{name}.py"


def test_the_table_to_decide_by_is_that_of_the_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    summary, common = importlib.import_module("pays_summary"), importlib.import_module("common")
    page = summary.PAGE.read_text(encoding="utf-8")
    assert common.fill(page, summary.parts_of_page()) == page, "run: python docs/studies/pays_summary.py"


def test_comparison_counts_problems_and_corrects_for_the_number_of_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    tables = importlib.import_module("pays_tables")
    values = {"a": [0.5] * 6, "b": [0.5 + 0.01 * i for i in range(1, 7)], "c": [0.5] * 5 + [0.4]}
    # All six differences are positive: Wilcoxon's exact p is 2 / 2**6, and there are two comparisons.
    assert tables.against(values, "a") == {"b": "+0.035; 6-0, p = 0.062", "c": "-0.017; 0-1, p = 1"}
