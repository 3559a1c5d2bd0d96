"""A small table for the tests of compare."""

import numpy as np
import pandas as pd


def make_table(n=120, classes=2):
    """Rows with numbers, a category and a missing value, and labels that one column explains in part."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    X["town"] = rng.choice(["Ulm", "Bonn", None], n)
    X.loc[3, "a"] = np.nan
    signal = X["b"] + 0.5 * rng.normal(size=n)
    return X, np.digitize(signal, [0.5] if classes == 2 else [-0.5, 0.8]).astype(np.int64)
