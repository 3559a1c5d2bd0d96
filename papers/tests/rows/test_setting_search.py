"""The search of Appendix E beside a plain enumeration, what it keeps, and a search with fit."""

import copy
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from metricfit.constraints import AugmentedLagrangian, RankingConstraint
from metricfit.losses import WeightedBCELoss
from metricfit.train import fit
from metricfit_papers.rows.setting_search import search

MU, RHO, MARGIN = (0.2, 0.3), (2.0, 3.0, 4.0), (1.0, 1.5, 2.0)


def table_of_values(seed):
    values = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {
        (mu, rho, margin): values[i, j, k].item()
        for i, mu in enumerate(MU)
        for j, rho in enumerate(RHO)
        for k, margin in enumerate(MARGIN)
    }


@pytest.mark.parametrize("seed", range(20))
def test_the_defaults_are_the_search_of_the_paper(seed):
    values = table_of_values(seed)
    found = search(lambda mu, rho, margin: values[mu, rho, margin])
    pairs = [(mu, rho) for mu in MU for rho in RHO if (mu, rho) != (0.2, 2.0)]
    mu, rho = max(pairs, key=lambda pair: values[(*pair, 1.0)])
    margin = max(MARGIN, key=lambda each: values[mu, rho, each])
    assert found.setting == {"mu": mu, "rho": rho, "margin": margin}
    assert found.value == found.outcome == values[mu, rho, margin]
    order = [(*pair, 1.0) for pair in pairs] + [(mu, rho, each) for each in MARGIN[1:]]
    assert [tuple(each.setting.values()) for each in found.tried] == order
    assert [each.value for each in found.tried] == [values[each] for each in order]


def test_the_first_of_equal_settings_is_chosen():
    assert search(lambda **setting: 0.5).setting == {"mu": 0.2, "rho": 3.0, "margin": 1.0}


def test_without_a_margin_only_mu_and_rho_are_searched():
    found = search(lambda mu, rho: torch.tensor(-mu * rho), mu=[1, 2], rho=[3, 1], margin=None, without=[(1, 1)])
    assert found.setting == {"mu": 2, "rho": 1}
    assert [each.value for each in found.tried] == [-3.0, -6.0, -2.0]


def test_the_pair_of_the_paper_is_left_out_only_where_it_is_in_the_lists():
    assert len(search(lambda **setting: 0.5, mu=[1.0], rho=[2.0, 3.0], margin=None).tried) == 2
    assert len(search(lambda **setting: 0.5, without=()).tried) == 8


def test_only_the_best_outcome_is_kept():
    alive = weakref.WeakSet()

    def train(mu, rho, margin):
        assert len(alive) <= 1
        model = nn.Linear(1, 1)
        alive.add(model)
        return mu, model

    search(train, value=lambda outcome: outcome[0])


@pytest.mark.parametrize(
    ("train", "settings", "error", "message"),
    [
        (lambda **setting: "0.9", {}, TypeError, "train returned '0.9'; a search compares numbers: pass value="),
        (lambda **setting: 0.9, {"value": lambda outcome: None}, TypeError, "value returned None"),
        (lambda **setting: float("nan"), {}, ValueError, "is NaN, which cannot be compared"),
        (lambda **setting: 0.9, {"mu": [0.2], "rho": [2]}, ValueError, r"nothing to try.*without=\[\(0.2, 2.0\)\]"),
        (lambda **setting: 0.9, {"margin": []}, ValueError, "nothing to try"),
        (None, {}, TypeError, "train must be a function, got None"),
        (lambda **setting: 0.9, {"value": "best"}, TypeError, "value must be a function, got 'best'"),
        (lambda **setting: 0.9, {"mu": 0.2}, TypeError, "mu is a list of numbers to try.*got 0.2"),
        (lambda **setting: 0.9, {"rho": "23"}, TypeError, "rho is a list of numbers to try.*got '23'"),
        (lambda **setting: 0.9, {"margin": [None]}, TypeError, "margin is a list of numbers to try"),
        (lambda **setting: 0.9, {"mu": [-1]}, ValueError, "mu must be above 0 and finite, got -1"),
        (lambda **setting: 0.9, {"rho": [0.5]}, ValueError, "rho must be at least 1 and finite, got 0.5"),
        (lambda **setting: 0.9, {"margin": [float("nan")]}, ValueError, "margin must be at least 0 and finite"),
        (lambda **setting: 0.9, {"margin": [1.0, 2.0, 1]}, ValueError, "margin lists a number twice"),
        (lambda **setting: 0.9, {"without": (0.2, 2.0)}, TypeError, "without is a list of pairs"),
        (lambda **setting: 0.9, {"without": None}, TypeError, r"or \(\) for none; got None"),
        (lambda **setting: 0.9, {"without": [(0.2, 2.0, 1.0)]}, TypeError, "without is a list of pairs"),
        (lambda **setting: 0.9, {"without": [(0.4, 2.0)]}, ValueError, "not tried: .*0.4"),
    ],
)
def test_wrong_use_is_refused(train, settings, error, message):
    with pytest.raises(error, match=message):
        search(train, **settings)


def rows(seed):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(80, generator=generator) < 0.3).long()
    return torch.randn(80, 2, generator=generator) + y[:, None], y


def test_a_search_with_fit_returns_the_model_of_the_best_setting():
    train_set, validation = rows(0), rows(1)
    torch.manual_seed(0)
    start = nn.Linear(2, 1)
    run = partial(fit, validation=validation, epochs=2, lr=0.05, monitor="auroc", progress=False, seed=0)

    def train(mu, rho, margin):
        constraint = RankingConstraint(margin, size=80, normalize=True)
        return run(copy.deepcopy(start), train_set, AugmentedLagrangian(WeightedBCELoss(), constraint, mu=mu, rho=rho))

    found = search(train, mu=[0.2], rho=[2, 3], margin=[1.0, 2.0], without=[], value=lambda result: result.best)
    again = train(**found.setting)
    assert again.best == found.value == max(each.value for each in found.tried)
    torch.testing.assert_close(again.model.weight, found.outcome.model.weight)
