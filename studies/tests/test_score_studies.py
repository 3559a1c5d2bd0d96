"""The studies of portfolios, calibrations and several classes in tiny versions, and their tables on the page."""

import json

import numpy as np
import pytest

from studies import calibrations, default_seconds, portfolio, several_classes
from studies.common import ROOT


def cell_of_portfolio(path, seed=0):
    """A cell whose settings are noisy versions of one logit."""
    rng = np.random.default_rng(seed)
    arrays = {"folds": np.zeros(200), "seconds": np.ones(len(portfolio.candidates()))}
    for part, label in (("out of fold", "y"), ("new", "y_new")):
        true = rng.normal(size=200) * 2 - 1
        arrays[label] = (rng.random(200) < 1 / (1 + np.exp(-true))).astype(np.int64)
        for name in portfolio.candidates():
            arrays[f"{name} {part}"] = true + rng.normal(size=200)
    np.savez_compressed(path, **arrays)
    return path


def test_portfolios_and_calibrations_are_judged_from_the_logits_of_a_cell(tmp_path):
    path = cell_of_portfolio(tmp_path / "ecoli-0.npz")
    values = portfolio.judge(path)
    assert set(values["f1"]) == set(portfolio.SETS)
    assert values["f1"]["default"] > values["f1"]["linear alone"] - 0.2
    rules = calibrations.judge(path)
    assert set(rules["f1"]) == set(calibrations.RULES)
    # A mean of logits that is nearly calibrated needs nothing, so all ways decide about alike.
    assert max(rules["f1"].values()) - min(rules["f1"].values()) < 0.2


def test_venn_abers_and_isotonic_give_the_shares_of_a_step():
    z, y = np.repeat([-1.0, 1.0], 100), np.concatenate([np.arange(100) < 20, np.arange(100) < 70]).astype(int)
    for fit in (calibrations.isotonic, calibrations.venn_abers):
        logits = fit(z, y)(np.array([-1.0, 1.0]))
        np.testing.assert_allclose(1 / (1 + np.exp(-logits)), [0.2, 0.7], atol=0.01)


def test_what_is_not_training_or_predicting_is_a_small_share():
    measured = default_seconds.measure((178, 13, 3), "default")
    assert 0.8 * measured["seconds"] < measured["families"] < measured["seconds"]


def test_draws_keep_the_share_of_positives():
    y = (np.arange(5000) % 10 == 0).astype(int)
    train, judging = portfolio.draw_rows(y, 0, "ecoli")
    assert len(train) == portfolio.MOST_TRAINING
    assert not np.intersect1d(train, judging).size
    assert y[train].mean() == pytest.approx(0.1, abs=0.001)
    assert y[judging].mean() == pytest.approx(0.1, abs=0.01)


def test_rules_of_several_classes_are_judged_from_the_logits_of_a_cell(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {}
    for part, label in (("held out", "y"), ("new", "y_new")):
        y = rng.choice(3, size=400, p=[0.8, 0.15, 0.05])
        logits = np.log([0.8, 0.15, 0.05]) + 1.2 * (np.eye(3)[y] + rng.normal(size=(400, 3)))
        arrays |= {label: y, f"default {part}": logits, f"LightGBM {part}": logits + rng.normal(size=(400, 3))}
    arrays |= {f"{method} seconds": np.array(1.0) for method in ("default", "LightGBM")}
    np.savez_compressed(tmp_path / "made-0.npz", **arrays)
    values = several_classes.judge(tmp_path / "made-0.npz")
    assert values["f1"]["default, plug-in"] > values["f1"]["default, argmax"]  # rare classes are hardly most probable
    assert values["f1"]["default, plug-in"] > values["f1"]["LightGBM, plug-in"]
    assert values["cost"]["default, plug-in"] < values["cost"]["default, argmax"]


@pytest.mark.parametrize(
    ("study", "arguments"),
    [(portfolio, []), (calibrations, []), (several_classes, []), (default_seconds, ["page"])],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_the_page_shows_the_stored_results(study, arguments, tmp_path, monkeypatch):
    page = ROOT / "docs" / "evidence" / "tables.md"
    copy = tmp_path / "tables.md"
    copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(study, "PAGE", copy)
    study.main(arguments)
    assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    assert json.loads(study.RESULTS.read_text(encoding="utf-8"))
