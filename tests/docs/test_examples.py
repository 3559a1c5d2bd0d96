"""The scripts of examples/ make what they say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

ROOT = Path(__file__).resolve().parents[2]


def test_the_diabetes_table_is_scikit_learns(load_script, tmp_path):
    load_script(ROOT / "examples" / "diabetes.py").main(str(tmp_path / "new" / "diabetes.csv"))
    table = pd.read_csv(tmp_path / "new" / "diabetes.csv")
    expected = load_diabetes(as_frame=True, scaled=False)
    pd.testing.assert_frame_equal(table.drop(columns="progression"), expected.data)
    fast = table["progression"] == "fast"
    assert fast.sum() == 66
    assert expected.target[fast].min() > expected.target[~fast].max()


def test_the_crashes_are_small_enough_to_ship_and_their_models_minimise_the_cost(load_script):
    file = ROOT / "examples" / "crashes.csv.gz"
    assert file.stat().st_size < 500_000
    table = pd.read_csv(file, keep_default_na=False)
    assert (len(table), (table["outcome"] == "died").sum()) == (8879, 371)
    models = load_script(ROOT / "examples" / "crash_models.py")
    some = table.sample(2000, random_state=0)
    X, y = some[["age", "car_year"]], some["outcome"].to_numpy(object)
    for model in (models.scikit_learn, models.our_decision):
        assert models.cost(y, model.fit(X, y).predict(X)) < models.cost(y, np.full(len(y), "survived"))
    assert models.cost(y[:2], ["died", "survived"]) == (y[0] != "died") * 0.5 + (y[1] == "died") * 10


def test_lightgbm_is_tuned_at_its_decisions(load_script, capsys):
    pytest.importorskip("optuna")
    study, value = load_script(ROOT / "examples" / "tune_lightgbm.py").main(trials=3)
    assert len(study.trials) == 3
    assert study.best_value == max(trial.value for trial in study.trials)
    assert 0.3 < value < 1
    assert "on other rows" in capsys.readouterr().out
