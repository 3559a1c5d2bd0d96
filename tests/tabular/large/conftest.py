"""A small table that is treated as a large one."""

import numpy as np
import pandas as pd
import pytest

from metricfit.tabular import large_rows

ROWS = 1500


@pytest.fixture(scope="package")
def frame():
    """Columns of all kinds, with missing values, a constant column, and copies of rows."""
    r = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "amount": np.where(r.random(ROWS) < 0.1, np.nan, r.lognormal(size=ROWS)),
            "items": r.integers(0, 9, ROWS),
            "old": r.random(ROWS) < 0.5,
            "constant": 1.0,
            "only_missing_differs": np.where(r.random(ROWS) < 0.3, np.nan, 2.0),
            "kind": r.choice(["a", "b", "c"], ROWS),
            "town": np.where(r.random(ROWS) < 0.2, None, r.choice(["Brno", "Lyon"], ROWS)),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(r.integers(0, 300, ROWS), unit="D"),
            "note": [f"note {number} of many" for number in r.integers(0, 200, ROWS)],
        }
    )
    table.loc[100:109] = table.loc[0].to_numpy()  # copies
    return table.infer_objects()


@pytest.fixture(scope="package")
def labels(frame):
    """About one row in five is positive."""
    noise = np.random.default_rng(1).normal(size=ROWS)
    logit = frame["amount"].fillna(1) + (frame["kind"] == "a") + noise
    y = (logit > np.quantile(logit, 0.8)).to_numpy().astype(int)
    y[100:110] = y[0]
    return y


@pytest.fixture
def small_is_large(monkeypatch):
    """Treat tables of more than 1,000 rows as large, in batches of 400 rows and samples of 300."""
    monkeypatch.setattr(large_rows, "LARGE_ROWS", 1000)
    monkeypatch.setattr(large_rows, "BATCH_ROWS", 400)
    monkeypatch.setattr(large_rows, "FITTED_ROWS", 300)
    monkeypatch.setattr(large_rows, "JUDGING_ROWS", 100)
    monkeypatch.setattr(large_rows, "HELD_OUT_ROWS", 250)
