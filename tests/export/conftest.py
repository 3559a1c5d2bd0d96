"""A table with every kind of column that can be exported, and runs of a graph by onnxruntime alone."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest


class Mixed(NamedTuple):
    X: pd.DataFrame
    two: np.ndarray
    three: np.ndarray


def make_mixed(rows: int, seed: int = 0) -> Mixed:
    """Numbers, integers, booleans, categories, known text and dates, most of them with missing entries."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "amount": rng.normal(size=rows) * 50,
            "visits": rng.integers(0, 9, rows),
            "member": rng.random(rows) < 0.3,
            "kind": rng.choice(["a", "b", "c", "rare one"], rows, p=[0.4, 0.3, 0.28, 0.02]),
            "answer": rng.choice(["yes", "no"], rows),
            "town": rng.choice([f"town {number}" for number in range(45)], rows),
            "since": pd.Timestamp("1999-12-30") + pd.to_timedelta(rng.integers(0, 10**9, rows), unit="s"),
        }
    )
    X.loc[rng.random(rows) < 0.1, "amount"] = np.nan
    X.loc[rng.random(rows) < 0.1, "kind"] = None
    X.loc[rng.random(rows) < 0.1, "town"] = None
    X.loc[rng.random(rows) < 0.1, "since"] = pd.NaT
    score = X["amount"].fillna(0) / 50 + (X["kind"] == "a") + X["member"] + rng.normal(size=rows) * 0.4
    return Mixed(X, np.where(score > 1.2, "good", "bad"), np.digitize(score, [0.2, 1.2]))


@pytest.fixture(scope="session")
def mixed() -> Mixed:
    return make_mixed(240)


@pytest.fixture(scope="session")
def new_rows() -> pd.DataFrame:
    """Rows that no model was trained on, with unseen categories, extreme numbers and every missing value."""
    X = make_mixed(120, seed=1).X
    X.loc[0, "kind"] = "never seen"
    X.loc[1, "answer"] = "perhaps"
    X.loc[2, "amount"] = 1e300
    X.loc[3, ["amount", "kind", "answer", "town", "since"]] = [np.nan, None, None, None, pd.NaT]
    X.loc[4, "since"] = pd.Timestamp("1900-02-28 23:59:59")
    X.loc[5, "since"] = pd.Timestamp("2024-02-29 00:00:01")
    return X


@pytest.fixture(autouse=True)
def quick_measurement(monkeypatch):
    """Latencies of a few rows; 1,000 rows in Python would be most of the time of the tests."""
    monkeypatch.setattr("metricfit.export.onnx.ROWS_OF_LATENCY", 3)
