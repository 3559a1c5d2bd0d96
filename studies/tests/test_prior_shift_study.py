"""The study of prior shift: rows at another balance, a tiny run, and its tables."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    threads = torch.get_num_threads()
    yield importlib.import_module("studies.prior_shift")
    torch.set_num_threads(threads)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.6])
def test_rows_are_left_out_until_the_share_is_right(study, share):
    y = (np.arange(1000) % 5 == 0).astype(np.int64)
    kept = study.resample(y, share, np.random.default_rng(0))
    assert len(np.unique(kept)) == len(kept)
    assert y[kept].mean() == pytest.approx(share, abs=0.002)
    assert len(kept) > 250


def test_copies_are_on_one_side(study):
    rows = pd.DataFrame({"a": np.arange(60) % 20, "b": "x"})
    train, test = study.halves(rows, np.random.default_rng(0))
    assert sorted([*train, *test]) == list(range(60))
    assert not set(rows["a"].iloc[train]) & set(rows["a"].iloc[test])


@pytest.mark.slow
def test_the_study_runs_and_its_tables_are_made(study, monkeypatch, tmp_path):
    def load(name, data):
        x = np.random.default_rng(study.TABLES.index(name)).normal(size=(400, 3))
        x = pd.DataFrame(x, columns=list("abc"))
        return SimpleNamespace(X=x, y=(x["a"] + x["b"] ** 2 > 2.0).to_numpy().astype(int))

    monkeypatch.setattr(study, "load", load)
    monkeypatch.setattr(study, "CHUNK", 2)
    monkeypatch.setattr(study, "RESULTS", tmp_path / "prior_shift.json")
    cells = [*((name, 0) for name in study.TABLES[:3]), (study.SETTINGS[0], 0)]
    for cell in cells:
        assert study.run(tmp_path, tmp_path, cell).endswith(" s")
        assert study.run(tmp_path, tmp_path, cell).endswith("kept")
    study.gather(tmp_path)
    results = json.loads((tmp_path / "prior_shift.json").read_text(encoding="utf-8"))
    assert set(results["tables"]) == set(study.TABLES[:3])
    made = importlib.import_module("studies.prior_shift_page").parts(results)
    assert sorted(made) == ["alarms", "estimates", "simulations", "values"]
    assert all("| --- |" in text for text in made.values())


@pytest.mark.pages
def test_the_page_shows_the_stored_results(study):
    page = importlib.import_module("studies.prior_shift_page")
    results = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    text = page.PAGE.read_text(encoding="utf-8")
    assert importlib.import_module("studies.common").fill(text, page.parts(results)) == text
    cells = [cell for of_table in results["tables"].values() for cell in of_table]
    alarms = [part["p_value"] <= page.LEVEL for cell in cells for part in cell["odds"].values()]
    assert f"{sum(alarms)} of {len(alarms)} tests raised an alarm" in text
    simulated = [found["plain"] for found in results["simulations"].values()]
    assert f"{sum(p <= page.LEVEL for part in simulated for p in part)} of {sum(map(len, simulated)):,} (" in text
    covered = [each for found in results["simulations"].values() for each in found["covered"]]
    assert f"{sum(covered)} of {len(covered)} intervals" in text
