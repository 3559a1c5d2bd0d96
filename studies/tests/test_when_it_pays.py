"""The tables of docs/when-it-pays.md and docs/evidence/losses.md have the values of the stored studies."""

from __future__ import annotations

import importlib
import json

import pytest


@pytest.mark.pages
@pytest.mark.parametrize("name", ["several_labels_page", "long_tails_page"])
def test_sections_are_those_of_the_stored_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study, common = importlib.import_module(f"studies.{name}"), importlib.import_module("studies.common")
    stored = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    page = study.PAGE.read_text(encoding="utf-8")
    assert common.fill(page, study.parts_of_page(stored)) == page, f"run: python -m studies.{name}"


@pytest.mark.pages
def test_the_tables_to_decide_by_are_those_of_the_stored_results() -> None:
    summary, common = importlib.import_module("studies.pays_summary"), importlib.import_module("studies.common")
    for name, parts in summary.parts_of_pages().items():
        page = (common.DOCS / name).read_text(encoding="utf-8")
        assert common.fill(page, parts) == page, "run: python -m studies.pays_summary"


def test_comparison_counts_problems_and_corrects_for_the_number_of_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = importlib.import_module("studies.pays_tables")
    values = {"a": [0.5] * 6, "b": [0.5 + 0.01 * i for i in range(1, 7)], "c": [0.5] * 5 + [0.4]}
    # All six differences are positive: Wilcoxon's exact p is 2 / 2**6, and there are two comparisons.
    assert tables.against(values, "a") == {"b": "+0.035; 6-0, p = 0.062", "c": "-0.017; 0-1, p = 1"}
