"""Small tables and quick settings."""

import numpy as np
import pandas as pd
import pytest

QUICK = {"network": "mlp", "members": 3, "epochs": 25, "lr": 0.02, "time_budget": None, "random_state": 0}


@pytest.fixture(scope="session")
def quick_settings():
    return QUICK


@pytest.fixture
def quick():
    return dict(QUICK)


@pytest.fixture(scope="session")
def blobs():
    """Two overlapping classes, a fifth positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    return X, (X[:, 0] + 0.5 * rng.normal(size=400) > 0.9).astype(int)


@pytest.fixture(scope="session")
def messy():
    """A table with a column of every kind, and labels that depend on several of them."""
    rng = np.random.default_rng(1)
    n = 300
    number = rng.normal(size=n)
    kind = rng.choice(["red", "green", "blue"], n)
    days = rng.integers(0, 700, n)
    word = rng.choice(["alpha", "omega"], n)
    logit = 1.5 * number + 1.5 * (kind == "red") + 1.5 * (word == "omega") - 2
    y = np.where(logit + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    number[rng.random(n) < 0.1] = np.nan
    frame = pd.DataFrame(
        {
            "number": number,
            "text number": [f"{value:.3f}" for value in rng.normal(size=n)],
            "kind": kind,
            "flag": rng.random(n) < 0.5,
            "date": (pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")).strftime("%d/%m/%Y"),
            "moment": pd.Timestamp("2020-01-01") + pd.to_timedelta(days * 7, unit="h"),
            "note": [f"{each} letter number {at}" for at, each in enumerate(word)],
            "category": pd.Categorical(rng.choice(["s", "m", "l"], n)),
            "whole": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "empty": [None] * n,
            "same": 1.0,
        }
    )
    frame.loc[3, "kind"] = None
    frame.loc[4, "whole"] = pd.NA
    return frame, y
