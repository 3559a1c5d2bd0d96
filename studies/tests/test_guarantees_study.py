"""The study of guarantees: a tiny run, MAPIE's thresholds, and the page that is written from the results."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(monkeypatch):
    threads = torch.get_num_threads()
    yield importlib.import_module("studies.guarantees")
    torch.set_num_threads(threads)


def test_the_simulated_population_is_that_of_the_draws(study):
    case = study.CASES[0]
    share, shift = study.SIMULATED[case.population]
    logits, y, population = next(study.simulated_draws(case._replace(rows=200_000), 1))
    counts = population(0.3)
    assert float(counts.tp + counts.fn) == pytest.approx(share)
    assert float(counts.tp) == pytest.approx(np.mean((logits >= 0.3) & (y == 1)), abs=0.002)
    assert float(counts.fp) == pytest.approx(np.mean((logits >= 0.3) & (y == 0)), abs=0.004)
    expected = norm.sf((0.3 - np.log(share / (1 - share))) / shift + shift / 2)
    assert float(counts.fp) == pytest.approx((1 - share) * expected)


def test_a_case_is_measured_kept_and_summarised(study, tmp_path, monkeypatch):
    case = study.CASES[0]
    study.measure(case, None, 4, tmp_path)
    kept = np.load(tmp_path / f"{case.name}.npz")
    assert kept["scores"].shape == (2, case.rows)
    assert kept["counts"].shape == (2, 100, 4)
    (tmp_path / f"{case.name}.mapie.json").write_text(json.dumps({"MAPIE": [0, None]}))
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results.json")
    study.collect(tmp_path)
    found = json.loads((tmp_path / "results.json").read_text())["cases"]
    assert len(found) == 1
    everything_positive = found[0]["methods"]["MAPIE"]
    assert everything_positive["violations"] == 0
    assert everything_positive["none"] == 0.5
    assert everything_positive["rate"] == 1
    assert found[0]["methods"]["confidence 0.9"]["draws"] == 4


def test_ways_to_score_new_rows_are_judged(study):
    module = importlib.import_module("studies.guarantees_out_of_fold")
    rng = np.random.default_rng(0)
    y = (rng.random(400) < 0.4).astype(int)
    x = rng.normal(size=(400, 2)) + y[:, None]
    learner = module.learners(0)["logistic regression"]
    ways = module.scores_of(learner, x[:300], y[:300], x[300:], 0)
    assert [len(z) for z, _, _ in ways.values()] == [300, 300, 90]
    for z, target, new in ways.values():
        failed, precision, recall = module.judge(
            z, target, new, y[300:], "precision", "recall >= 0.6", 0, out_of_fold=True
        )
        assert failed == (recall < 0.6)
        assert 0.4 < precision < 1
    assert module.judge(z, target, new, y[300:], "precision", "recall >= 0.99", 0, out_of_fold=True) is None


@pytest.mark.pages
def test_the_page_is_written_from_the_results(study):
    page = importlib.import_module("studies.guarantees_page")
    results = json.loads(study.RESULTS.read_text())
    text = page.PAGE.read_text(encoding="utf-8")
    for table in page.tables(results).values():
        assert table in text, "run: python -m studies.guarantees"


def test_violations_are_at_most_the_nominal_ones_and_two_standard_errors(study):
    results = json.loads(study.RESULTS.read_text())
    assert len(results["cases"]) == len(study.CASES)
    for case in results["cases"]:
        for level in (0.5, 0.8, 0.9, 0.95):
            found = case["methods"][f"confidence {level:g}"]
            allowed = 1 - level
            assert found["violations"] <= allowed + 2 * (allowed * level / found["draws"]) ** 0.5


def test_out_of_fold_thresholds_with_the_margin_fail_no_more_often_than_allowed(study):
    margin = importlib.import_module("studies.guarantees_out_of_fold").MARGIN
    for table in json.loads(study.RESULTS.read_text())["cross_validated"]:
        ways = {way: found for way, found in table["ways"].items() if way.endswith(margin)}
        assert len(ways) == 7
        for found in (each for way in ways.values() for each in way):
            assert found["draws"] >= 200
            assert found["violations"] <= 0.1
