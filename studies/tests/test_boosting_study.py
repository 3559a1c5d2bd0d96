"""The study of boosting libraries: its gradients, one training for several rules of stopping, and its tables."""

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
    yield importlib.import_module("studies.boosting")
    torch.set_num_threads(threads)


def test_derivatives_are_those_of_the_losses(study):
    rng = np.random.default_rng(0)
    z, y = 3 * rng.normal(size=40), (rng.random(40) < 0.3).astype(float)
    for name, training in study.trainings().items():
        gradient, hessian = training.derivatives(z, y, None)
        change = 1e-5 * np.eye(len(z))
        losses = [[training.loss(z + sign * row, y, None) for row in change] for sign in (1, -1)]
        expected = len(z) * np.subtract(*losses) / 2e-5
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7, err_msg=name)
        assert (hessian > 0).all()
        if name == "focal":
            ends = [training.derivatives(z + sign * 1e-5, y, None)[0] for sign in (1, -1)]
            p = 1 / (1 + np.exp(-np.where(y == 1, z, -z)))
            np.testing.assert_allclose(hessian[p > 0.1], (np.subtract(*ends) / 2e-5)[p > 0.1], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_each_rule_takes_the_trees_up_to_its_best_round(study, monkeypatch, library):
    pytest.importorskip(library)
    monkeypatch.setattr(study, "PATIENCE", 3)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = (x[:, 0] + rng.normal(size=300) > 1).astype(float)
    training = study.trainings()["log-loss"]
    rules = study.Rules(training, ("f1",))
    parts = (study.Part(x[:200], y[:200], None), study.Part(x[200:], y[200:], None))
    predicted = study.PREDICTIONS[library](training, rules, *parts, x[200:], 0)
    for rule, (held_out, test) in predicted.items():
        np.testing.assert_array_equal(held_out, test)
        loss = training.loss if rule == study.OWN_LOSS else lambda z, y, _: rules.evaluations["f1"](y, z)
        assert loss(held_out, y[200:], None) == pytest.approx(rules.best[rule][0], abs=1e-5)


def test_the_study_runs_and_its_tables_are_made(study, monkeypatch, tmp_path):
    pytest.importorskip("xgboost")
    names = study.STUDY[:3]

    def load(name, data):
        x = pd.DataFrame(np.random.default_rng(names.index(name)).normal(size=(150, 3)), columns=list("abc"))
        return SimpleNamespace(X=x, y=(x["a"] + x["b"] ** 2 > 2.0).to_numpy().astype(int))

    monkeypatch.setattr(study, "load", load)
    monkeypatch.setattr(study, "ROUNDS", 3)
    monkeypatch.setattr(study, "FOLDS", 2)
    results = tmp_path / "boosting.json"
    monkeypatch.setattr(study, "RESULTS", results)
    for library in study.LIBRARIES:
        for name in names:
            assert study.fit(tmp_path, tmp_path, (library, name, 0)).endswith(" s")
            assert study.fit(tmp_path, tmp_path, (library, name, 0)).endswith("kept")
    (tmp_path / f"xgboost-{names[0]}-1.json").write_text("{}", encoding="utf-8")  # a split that is not complete
    study.gather(tmp_path)
    found = json.loads(results.read_text(encoding="utf-8"))
    assert list(found["xgboost"]) == list(names)
    assert {tuple(splits) for tables in found.values() for splits in tables.values()} == {("0",)}
    made = importlib.import_module("studies.boosting_page").parts(found)
    assert sorted(made) == [
        *("boosting tables", "lightgbm f1", "lightgbm mcc", "seconds", "stopping", "xgboost f1", "xgboost mcc")
    ]
    assert all("| --- |" in text for text in made.values())


@pytest.mark.pages
def test_the_page_shows_the_stored_results(study):
    page_module, common = importlib.import_module("studies.boosting_page"), importlib.import_module("studies.common")
    results = json.loads(study.RESULTS.read_text(encoding="utf-8"))
    page = page_module.PAGE.read_text(encoding="utf-8")
    assert common.fill(page, page_module.parts(results)) == page, "run: python -m studies.boosting"
    splits = {tuple(splits) for tables in results.values() for splits in tables.values()}
    assert splits == {tuple(map(str, range(9)))}  # as the page says
