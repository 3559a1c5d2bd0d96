"""The studies of decisions for any model run in a tiny version, and the page shows the stored results."""

import importlib
import json
import lzma
from functools import partial
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
    yield lambda name: importlib.import_module(f"studies.{name}")
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_cell_is_measured_and_shown(study, monkeypatch, tmp_path):
    tuned = study("tuned_decisions")

    def load(name, data):
        rng = np.random.default_rng(len(name))
        frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
        return SimpleNamespace(X=frame, y=(frame.a + 0.5 * rng.normal(size=300) > 1).to_numpy().astype(int))

    monkeypatch.setattr(tuned, "load", load)
    monkeypatch.setattr(tuned, "LGBMClassifier", partial(tuned.LGBMClassifier, n_estimators=3, min_child_samples=5))
    for name in ("ecoli", "oil"):
        assert tuned.measure(tmp_path, tmp_path, (name, 0)).startswith(f"{name} 0: ")
    assert tuned.measure(tmp_path, tmp_path, ("ecoli", 0)).endswith("kept")
    results = tuned.collect(tmp_path)
    cell = results["ecoli"]["0"]
    assert set(cell["values"]["f1"]) == set(tuned.METHODS)
    assert all(0 <= value <= 1 for value in cell["values"]["f1"].values())
    assert all(seconds > 0 for seconds in cell["seconds"]["mcc"].values())
    assert tuned.OURS in tuned.methods_table(results)
    assert "| ecoli |" in tuned.tables_table(results)


@pytest.mark.pages
def test_the_tables_of_the_page_are_those_of_the_stored_results(study):
    tuned = study("tuned_decisions")
    results = json.loads(tuned.RESULTS.read_text(encoding="utf-8"))
    page = tuned.PAGE.read_text(encoding="utf-8")
    parts = {"methods": tuned.methods_table(results), "tables": tuned.tables_table(results)}
    assert study("common").fill(page, parts) == page


@pytest.mark.pages
def test_the_table_of_labels_shows_the_stored_results(study):
    labels = study("label_thresholds")
    results = json.loads(labels.RESULTS.read_text(encoding="utf-8"))
    assert labels.labels_table(results) in labels.PAGE.read_text(encoding="utf-8")


def test_a_table_of_several_labels_is_read(study, tmp_path):
    """Nominal columns, quoted names, dense and sparse rows."""
    labels = study("label_thresholds")
    folder = tmp_path / "multilabel"
    folder.mkdir()
    (folder / "made.xml").write_text('<labels><label name="It\\\'s"></label><label name="b"></label></labels>')
    head = "@relation made\n@attribute x numeric\n@attribute 'It\\'s' {0,1}\n@attribute b {0,1}\n@data\n"
    for part, rows in (("train", "1.5,1,0\n2,0,1\n"), ("test", "{0 3.5,2 1}\n")):
        with lzma.open(folder / f"made-{part}.arff.xz", "wt") as file:
            file.write(head + rows)
    x, y = labels.read(tmp_path, "made")
    assert x.tolist() == [[1.5], [2.0], [3.5]]
    assert y.tolist() == [[1, 0], [0, 1], [0, 1]]
