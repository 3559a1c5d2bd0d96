"""``fit`` names the order of the classes for metrics that depend on it."""

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from metricfit.cli.app import app


def test_the_order_of_the_classes_of_a_cost_matrix_is_printed(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=90)
    word = np.array(["low", "medium", "severe"])[np.digitize(x + 0.3 * rng.normal(size=90), [-0.5, 1.0])]
    pd.DataFrame({"x": x, "word": word}).to_csv(tmp_path / "rows.csv", index=False)
    costs = "cost_matrix(costs=[[0, 1, 4], [1, 0, 1], [9, 5, 0]])"
    arguments = [
        tmp_path / "rows.csv",
        "--target",
        "word",
        "--metric",
        costs,
        "--models",
        "linear",
        "--folds",
        2,
        "--order",
        "low,medium,severe",
    ]
    result = CliRunner().invoke(app, ["fit", *map(str, arguments), "--no-insight", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "Order of the classes in cost_matrix: 'low', 'medium', 'severe'." in result.stdout
