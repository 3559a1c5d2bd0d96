"""Write a real, imbalanced table as a CSV file: the diabetes data of scikit-learn.

It has 442 patients, 10 measurements, and a column that says whether the progression of the disease after a year is
among the fastest 15 %.

    python examples/diabetes.py diabetes.csv
    metricfit compare diabetes.csv --target progression --metric "fbeta(beta=2)"
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

PERCENTILE = 85


def main(path: str) -> None:
    """Write the table."""
    table = load_diabetes(as_frame=True, scaled=False)
    fast = table.target > np.percentile(table.target, PERCENTILE)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    table.data.assign(progression=np.where(fast, "fast", "slower")).to_csv(path, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
