"""Decisions with a cost for each row, against sums of money over all thresholds."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import expit

from metricfit import metrics
from metricfit.decide import DecisionModule, RowCostDecision
from metricfit.decide.costs import (
    RowCosts,
    best_margin,
    check_costs,
    choose_cost_decision,
    cost_columns,
    interval_of_costs,
    judge_cost_decision,
    row_costs,
)
from metricfit.decide.held_out import collect_held_out
from metricfit.decide.rules import Goal

METRIC = metrics.cost(fp=5, fn="amount")


def judged(rows, goal):
    return judge_cost_decision(choose_cost_decision(rows, goal), rows, goal)


def draw(rows=300, seed=0, zeros=0.1, rounded=False):
    rng = np.random.default_rng(seed)
    z = rng.normal(-1, 2, rows)
    y = rng.random(rows) < 1 / (1 + np.exp(-z))
    amount = np.exp(rng.normal(1.5, 1.5, rows)) * (rng.random(rows) >= zeros)
    if rounded:
        z, amount = z.round(), amount.round()
    return z, y.astype(int), amount


def money(called, y, fp, fn, weight=None):
    """Sum the money in plain Python."""
    total = 0.0
    w = [1.0] * len(y) if weight is None else weight.tolist()
    for row in range(len(y)):
        if y[row] == 1 and not called[row]:
            total += w[row] * float(fn[row])
        if y[row] == 0 and called[row]:
            total += w[row] * float(fp[row])
    return total / sum(w)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rounded", [False, True])
def test_the_best_threshold_of_margins_is_that_of_brute_force(seed, rounded):
    z, y, amount = draw(60, seed, rounded=rounded)
    weight = None if seed % 2 else np.random.default_rng(seed).random(60)
    fp = np.full(60, 3.0)
    fp[seed::7] = 0.0
    costs = RowCosts(fp, amount)
    margins = costs.margins(z)
    threshold, value = best_margin(margins, y, weight, costs)
    assert np.isfinite(threshold)
    assert value == pytest.approx(money(margins >= threshold, y, fp, amount, weight))
    finite = margins[np.isfinite(margins)]
    candidates = [float(finite.max()) + 1, *finite.tolist()]
    assert value == pytest.approx(min(money(margins >= t, y, fp, amount, weight) for t in candidates))


def test_the_plugin_rule_decides_each_row_by_its_expected_cost():
    z, y, amount = draw()
    held_out = collect_held_out(z[:, None], y, None, None, {"amount": amount})
    decision = judged(held_out, Goal(METRIC, rule="plugin"))
    costs = row_costs(METRIC, {"amount": amount}, len(y))
    p = expit(z)
    called = decision.decide(costs.margins(z))
    assert np.array_equal(called == 1, (p * amount > (1 - p) * 5))
    assert decision.evidence.value == pytest.approx(money(called, y, costs.fp, costs.fn))
    assert decision.evidence.corrected_value == pytest.approx(decision.evidence.value)  # nothing was fitted to the rows
    assert decision.evidence.value_interval[0] < decision.evidence.value < decision.evidence.value_interval[1]


def test_no_other_decisions_are_cheaper_in_expectation():
    z, _, amount = draw(8)
    costs = RowCosts(np.full(8, 5.0), amount)
    p = expit(z)

    def expected(called):
        return float((np.where(called == 1, (1 - p) * costs.fp, p * costs.fn)).sum())

    best = min(expected(np.array([(number >> row) & 1 for row in range(8)])) for number in range(256))
    assert expected((costs.margins(z) >= 0).astype(int)) == pytest.approx(best)


def test_a_row_that_costs_nothing_is_never_positive_and_one_with_free_alarms_always():
    costs = RowCosts(np.array([5.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    margins = costs.margins(np.array([1e9, -1e9, 1e9]))
    assert margins.tolist() == [-np.inf, np.inf, -np.inf]
    threshold, value = best_margin(margins, np.array([1, 0, 1]), None, costs)
    assert (margins >= threshold).tolist() == [False, True, False]
    assert value == 0.0


def test_the_empirical_rule_is_optimistic_and_corrected():
    z, y, amount = draw(200)
    held_out = collect_held_out(z[:, None], y, None, None, {"amount": amount})
    decision = judged(held_out, Goal(METRIC, rule="empirical"))
    plugin = judged(held_out, Goal(METRIC, rule="plugin"))
    assert decision.evidence.value <= plugin.evidence.value
    assert decision.evidence.corrected_value > decision.evidence.value
    assert decision.interval[0] <= decision.threshold <= decision.interval[1]


def test_the_interval_of_a_mean_cost_agrees_with_the_normal_one():
    costs = np.random.default_rng(0).exponential(size=2000)
    low, high = interval_of_costs(costs)
    error = 1.96 * costs.std() / np.sqrt(2000)
    assert low == pytest.approx(costs.mean() - error, abs=error / 5)
    assert high == pytest.approx(costs.mean() + error, abs=error / 5)


def test_rows_without_a_wrong_decision_leave_the_cost_uncertain():
    z = np.repeat([8.0, -8.0], 30)
    y = np.repeat([1, 0], 30)
    held_out = collect_held_out(z[:, None], y, None, None, {"amount": np.full(60, 5.0)})
    decision = judged(held_out, Goal(METRIC, rule="plugin"))
    assert decision.evidence.value == 0.0 == decision.evidence.corrected_interval[0]
    assert 0.05 < decision.evidence.corrected_interval[1] < 1.0


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ([1.0, np.nan], "1 of 2 are missing"),
        ([1.0, -3.0], "1 of 2 are negative"),
        ([1.0, np.inf], "1 of 2 are larger than"),
        (["a", "b"], "no numbers"),
        (["1", "2"], "are no numbers"),
        (np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[ns]"), "are no numbers"),
        (np.array([1, 2], dtype="timedelta64[s]"), "are no numbers"),
    ],
)
def test_wrong_columns_are_refused(amounts, message):
    with pytest.raises(ValueError, match=message):
        cost_columns(METRIC, pd.DataFrame({"amount": amounts}))


def test_columns_of_other_numbers_are_costs():
    for amounts in ([True, False], pd.Categorical([1, 0]), pd.array([1, 0], dtype="Int64")):
        assert cost_columns(METRIC, pd.DataFrame({"amount": amounts}))["amount"].tolist() == [1.0, 0.0]


def test_a_column_with_nearly_that_name_is_suggested():
    with pytest.raises(ValueError, match="did you mean 'amounts'"):
        cost_columns(METRIC, pd.DataFrame({"amounts": [1]}))


def test_a_module_without_costs_refuses_the_decision():
    columns = {"amount": torch.tensor([1.0, 2.0])}
    held_out = collect_held_out(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]), None, None, columns)
    decision = choose_cost_decision(held_out, Goal(METRIC))
    assert isinstance(decision, RowCostDecision)
    with pytest.raises(ValueError, match="costs of each row"):
        DecisionModule(torch.nn.Identity(), decision)


def test_missing_columns_and_impossible_problems_are_refused():
    with pytest.raises(ValueError, match="'amount', which the table does not have"):
        cost_columns(METRIC, pd.DataFrame({"price": [1]}))
    with pytest.raises(TypeError, match="pass a DataFrame"):
        cost_columns(METRIC, np.ones((2, 2)))
    columns = {"amount": torch.tensor([1.0, 2.0])}
    with pytest.raises(ValueError, match="two classes"):
        check_costs(METRIC, columns, 3)
    with pytest.raises(ValueError, match="false negatives cost nothing"):
        check_costs(METRIC, {"amount": torch.zeros(2)}, 2)
    with pytest.raises(ValueError, match="false positives cost nothing"):
        check_costs(metrics.cost(fp=0, fn="amount"), columns, 2)
    with pytest.raises(ValueError, match="subject_to cannot be combined"):
        check_costs(METRIC, columns, 2, ["recall >= 0.9"])
    with pytest.raises(ValueError, match="were not kept"):
        row_costs(METRIC, {}, 2)
