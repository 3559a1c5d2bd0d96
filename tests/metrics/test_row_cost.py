"""cost(fp=5, fn="amount"): how it is written, read, compared and refused."""

import copy
import pickle
from functools import partial

import pytest
import torch

from metricfit import Counts, MetricLoss, best_threshold, boosting, get_metric, metrics, parse_requirement
from metricfit.constraints import RequirementConstraint
from metricfit.train import Monitor


def constraint(metric):
    return RequirementConstraint(metric <= 3)


@pytest.mark.parametrize(
    "text", ["cost(fp=5, fn='amount')", "cost(fp='a b', fn=2.5)", "cost(fp='x', fn='x')", "cost(fp=1, fn='it\\'s')"]
)
def test_a_cost_with_columns_is_read_as_it_is_written(text):
    metric = get_metric(text)
    assert get_metric(metric.name) == metric
    assert pickle.loads(pickle.dumps(metric)) == metric
    assert copy.deepcopy(metric) == metric
    assert metric.minimize


def test_columns_are_those_that_are_named():
    assert metrics.cost(fp=5, fn="amount").columns == ("amount",)
    assert metrics.cost("effort", "amount").columns == ("effort", "amount")
    assert metrics.cost(fp="x", fn="x").columns == ("x",)
    assert metrics.cost(fp=5, fn=1).columns == () == metrics.f1.columns


def test_other_columns_and_numbers_are_other_metrics():
    several = {
        metrics.cost(5, "a"),
        metrics.cost(5, "b"),
        metrics.cost(6, "a"),
        metrics.cost("a", 5),
        metrics.cost(5, 1),
    }
    assert len(several) == 5


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"fp": [1, 2], "fn": "amount"}, "fp must be a number or the name of a column"),
        ({"fp": "", "fn": 1}, "fp is an empty text"),
        ({"fp": -1, "fn": "amount"}, "fp must be at least 0"),
        ({"fp": True, "fn": "amount"}, "fp must be a number"),
        ({"fn": "amount"}, "missing a required argument"),
        ({"fp": 1, "fn": "amount", "tp": "gain"}, "unexpected keyword argument"),
    ],
)
def test_other_costs_are_refused(costs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        metrics.cost(**costs)


def test_counts_have_no_amounts():
    metric = metrics.cost(fp=5, fn="amount")
    for use in (
        lambda: metric(Counts(tp=1, fp=1, fn=1, tn=1)),
        lambda: best_threshold([0.1, 0.9], [0, 1], metric),
        lambda: MetricLoss(metric)(torch.zeros(2), torch.tensor([0, 1])),
        lambda: parse_requirement("cost(fp=5, fn='amount') <= 3").violation(Counts(tp=1, fp=1, fn=1, tn=1)),
    ):
        with pytest.raises(TypeError, match="has a cost for each row, which counts do not have"):
            use()
    with pytest.raises(TypeError, match="one number for two classes"):
        metric[0]


@pytest.mark.parametrize(
    "make", [MetricLoss, Monitor, metrics.Accumulator, partial(boosting.objective, library="lightgbm"), constraint]
)
def test_what_counts_decisions_refuses_them_before_any_row(make):
    with pytest.raises(TypeError, match="has a cost for each row, which counts do not have"):
        make(metrics.cost(fp=5, fn="amount"))


@pytest.mark.parametrize("text", ["cost(fp=5, fn=amount)", "cost(5, amount)"])
def test_a_column_without_quotes_is_explained(text):
    with pytest.raises(ValueError, match=r"name of a column in quotes: .* such as 'amount'"):
        get_metric(text)


def test_costs_of_rows_have_no_gap():
    with pytest.raises(TypeError, match="cost for each row"):
        metrics.cost(fp=5, fn="amount").gap(2)
