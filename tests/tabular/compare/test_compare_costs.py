"""compare with a cost for each row: every method is judged by the money that its decisions cost."""

import numpy as np
import pandas as pd
import pytest

import metricfit
from metricfit.tabular.compare.methods import FOR_COUNTS


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 2)), columns=["a", "b"])
    X["amount"] = np.exp(rng.normal(3, 1, 240))
    return X.assign(fraud=(X["a"] + rng.normal(size=240) > 1.3).astype(int))


def test_methods_are_judged_in_money(table, tmp_path):
    result = metricfit.compare(
        table, "fraud", "cost(fp=5, fn='amount')", methods=["metricfit", "logistic regression"], folds=2, seed=1
    )
    rows = {row.name: row for row in result.rows}
    y, amount = table["fraud"].to_numpy(), table["amount"].to_numpy()
    share = y.mean()
    assert rows["none positive"].mean == pytest.approx((y * amount).mean(), rel=0.02)  # folds of nearly equal sizes
    assert rows["all positive"].mean == pytest.approx(5 * (1 - share), rel=0.02)
    decided = result.decisions["metricfit"].decided
    paid = np.where(y == 1, (decided == 0) * amount, (decided == 1) * 5.0)
    assert rows["metricfit"].mean == pytest.approx(paid.mean(), rel=0.02)
    assert result.rows[0].mean == min(row.mean for row in result.rows)
    assert result.decisions["metricfit"].threshold is None
    assert result.recommended in rows
    page = result.report(tmp_path / "report.html").read_text()
    assert "What the decisions cost" in page
    assert result.classifier("logistic regression", members=2).fit(table.drop(columns="fraud"), y).value_ > 0


def test_what_needs_a_metric_of_counts_is_refused(table):
    for method in sorted(FOR_COUNTS):
        with pytest.raises(ValueError, match="is trained for a metric of counts"):
            metricfit.compare(table, "fraud", "cost(fp=5, fn='amount')", methods=[method], folds=2)
    with pytest.raises(ValueError, match="subject_to cannot be combined"):
        metricfit.compare(table, "fraud", "cost(fp=5, fn='amount')", subject_to="recall >= 0.9")
    with pytest.raises(ValueError, match="which the table does not have"):
        metricfit.compare(table, "fraud", "cost(fp=5, fn='price')")
