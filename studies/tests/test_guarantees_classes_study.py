"""The study of requirements of classes and labels: its populations, a tiny run, and what the results say."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    threads = torch.get_num_threads()
    yield importlib.import_module("studies.guarantees_classes")
    torch.set_num_threads(threads)


def test_the_populations_are_those_of_the_draws(study):
    population, offsets = study.POPULATIONS["3 classes"], np.array([0.2, -0.3, 0.8])
    z, y = study.draw_classes(population, 100_000, 0)
    found = confusion_matrix(y, (z + torch.from_numpy(offsets)).argmax(1)) / len(y)
    np.testing.assert_allclose(study.confusion_of(population, offsets).numpy(), found, atol=0.004)
    population, thresholds = study.POPULATIONS["3 labels"], np.array([-0.5, 0.0, 0.3])
    z, y = (part.numpy() for part in study.draw_labels(population, 100_000, 0))
    counts, decided = study.label_counts(population, thresholds), z >= thresholds
    np.testing.assert_allclose(counts.tp.numpy(), (decided & (y == 1)).mean(0), atol=0.004)
    np.testing.assert_allclose(counts.fp.numpy(), (decided & (y == 0)).mean(0), atol=0.004)
    assert np.corrcoef(y.T)[0, 1] > 0.2


def test_draws_are_measured_and_summarised(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results.json")
    study.measure(4, 0, 2, tmp_path)
    study.collect(tmp_path)
    found = json.loads((tmp_path / "results.json").read_text())["cases"]
    assert [case["population"] for case in found] == ["3 labels"]
    assert found[0]["methods"]["confidence 0.9"]["draws"] == 2


@pytest.mark.pages
def test_the_page_is_written_from_the_results(study):
    page = importlib.import_module("studies.guarantees_classes_page")
    text = page.PAGE.read_text(encoding="utf-8")
    for table in page.tables(json.loads(study.RESULTS.read_text())).values():
        assert table in text, "run: python -m studies.guarantees_classes"


def test_violations_are_at_most_the_nominal_ones_and_two_standard_errors(study):
    results = json.loads(study.RESULTS.read_text())
    assert len(results["cases"]) == len(study.CASES)
    for case in results["cases"]:
        found = case["methods"]["confidence 0.9"]
        assert found["draws"] >= 200
        assert found["violations"] <= 0.1 + 2 * (0.1 * 0.9 / found["draws"]) ** 0.5
