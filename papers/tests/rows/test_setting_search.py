"""The search of Appendix E beside a plain enumeration, and what it keeps."""

import weakref

import pytest
import torch
from torch import nn

from metricfit_papers.rows.setting_search import search

MU, RHO, MARGIN = (0.2, 0.3), (2.0, 3.0, 4.0), (1.0, 1.5, 2.0)
PAPER = {"mu": MU, "rho": RHO, "margin": MARGIN, "without": [[0.2, 2.0]]}


def table_of_values(seed):
    values = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {
        (mu, rho, margin): values[i, j, k].item()
        for i, mu in enumerate(MU)
        for j, rho in enumerate(RHO)
        for k, margin in enumerate(MARGIN)
    }


@pytest.mark.parametrize("seed", range(20))
def test_the_lists_of_the_paper_are_its_search(seed):
    values, tried = table_of_values(seed), []

    def train(mu, rho, margin):
        tried.append((mu, rho, margin))
        return mu, rho, margin

    found = search(train, values.__getitem__, **PAPER)
    pairs = [(mu, rho) for mu in MU for rho in RHO if (mu, rho) != (0.2, 2.0)]
    mu, rho = max(pairs, key=lambda pair: values[(*pair, 1.0)])
    assert found == (mu, rho, max(MARGIN, key=lambda each: values[mu, rho, each]))
    assert tried == [(*pair, 1.0) for pair in pairs] + [(mu, rho, each) for each in MARGIN[1:]]


def test_the_first_of_equal_settings_is_chosen():
    assert search(dict, lambda setting: 0.5, **PAPER) == {"mu": 0.2, "rho": 3.0, "margin": 1.0}


def test_only_the_best_outcome_is_kept():
    alive = weakref.WeakSet()

    def train(mu, rho, margin):
        assert len(alive) <= 1
        model = nn.Linear(1, 1)
        alive.add(model)
        return mu, model

    search(train, lambda outcome: outcome[0], **PAPER)


@pytest.mark.parametrize("change", [{"mu": [0.2], "rho": [2]}, {"margin": []}, {"without": [(0.4, 2.0)]}])
def test_nothing_to_try_and_unknown_pairs_are_refused(change):
    with pytest.raises(ValueError, match="nothing to try, or pairs left out that are not tried"):
        search(dict, lambda setting: 0.5, **{**PAPER, **change})
