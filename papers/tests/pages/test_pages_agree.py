"""The list of runs, the stored results, the tables' files and the pages in the repository agree."""

from dataclasses import replace

import pytest

import metricfit_papers as papers
from metricfit_papers.pages import build, gather, repository, stored_results
from metricfit_papers.specs import run_sizes


@pytest.fixture(scope="module")
def stored():
    return {path.stem: stored_results.read(path) for path in repository.RESULTS.glob("*.json")}


def test_every_listed_run_is_complete(stored):
    """A run that was not made, or not to its end, is taken off the list: the pages say what was run."""
    missing = {run.command: run.not_in(stored[run.table]) for run in gather.listed()}
    assert {command: rows[:3] for command, rows in missing.items() if rows} == {}


def test_rows_and_trials_that_are_not_stored_are_found(stored):
    run = gather.Run("btg-3", "paper")
    assert run.not_in(stored["btg-3"]) == []
    assert len(run.not_in({"protocols": {}})) == len(papers.find_table("btg-3").shown("paper"))
    assert len(gather.Run("btg-3", "paper", trials=11).not_in(stored["btg-3"])) == len(run.not_in({"protocols": {}}))


def test_longer_runs_that_are_not_stored_are_found():
    rows = {"surrogate F1": {"run": {"trials": 1, "smaller": "1 of 5 trials, at most 15 of 120 epochs"}}}
    stored = {"protocols": {"paper": {"tshirt": rows}}}
    whole = {"protocols": {"paper": {"tshirt": {"surrogate F1": {"run": {"trials": 5, "smaller": ""}}}}}}
    run = gather.Run("surrogate-2", "paper", rows=("surrogate F1",), trials=1, epochs=15)
    for epochs, missing in ((8, 0), (15, 0), (16, 1), (None, 1)):
        longer = replace(run, epochs=epochs)
        assert (len(longer.not_in(stored)), longer.not_in(whole)) == (missing, [])


def test_every_stored_number_has_a_place_in_its_table(stored):
    assert set(stored) <= set(papers.table_names())
    for name, results in stored.items():
        spec = papers.find_table(name)
        for protocol, datasets in results["protocols"].items():
            shown = {row.name for row in spec.shown(protocol)}
            for dataset, rows in datasets.items():
                assert dataset in spec.datasets
                assert set(rows) <= shown
                for measured in rows.values():
                    assert set(measured["values"]) <= set(spec.columns)


@pytest.mark.pages
def test_pages_and_sizes_are_those_of_the_stored_results(tmp_path, monkeypatch):
    """Otherwise: python -m metricfit_papers.pages.build."""
    monkeypatch.setattr(build, "_picture", lambda _, *arguments: f"![{arguments[-1]}](img/{arguments[-2].name})")
    other_places = {file.name: file for file in (run_sizes.FILE, repository.SUMMARY)}
    new = {"pages": tmp_path, "images": tmp_path, "sizes": tmp_path / run_sizes.FILE.name}
    for path in build.build(**new, short=tmp_path / repository.SUMMARY.name):
        kept = other_places.get(path.name, repository.PAGES / path.name)
        assert path.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8"), kept
