"""The scripts of examples/ make what they say."""

from pathlib import Path

import pandas as pd
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
