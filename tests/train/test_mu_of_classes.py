"""The rule of Algorithm 1 for mu with several classes: it grows when the AUC of the validation rows falls."""

from itertools import pairwise

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from metricfit import AugmentedLagrangian, RankingConstraint
from metricfit.curves import auroc
from metricfit.train import fit


def rows(seed, n=90):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator) + nn.functional.one_hot(y, 4), y


def ranked(size, **settings):
    return AugmentedLagrangian(nn.CrossEntropyLoss(), RankingConstraint(size=size, classes=[1]), **settings)


@pytest.mark.parametrize("monitor", ["auroc", "auroc_ovo"])
def test_mu_grows_in_fit_as_often_as_the_auc_of_classes_falls(monitor):
    torch.manual_seed(0)
    objective = ranked(90, mu=0.2, rho=2.0)
    result = fit(
        nn.Linear(4, 3),
        rows(0),
        objective,
        validation=rows(1),
        monitor=monitor,
        epochs=12,
        lr=0.5,
        batch_size=30,
        progress=False,
    )
    values = [row["value"] for row in result.history]
    falls = sum(later < earlier for earlier, later in pairwise(values))
    assert 0 < falls < 11
    assert result.objective.mu.item() == pytest.approx(0.2 * 2.0**falls)
    x, y = rows(1)
    scores = result.model(x).detach().softmax(1)
    multi_class = "ovr" if monitor == "auroc" else "ovo"
    assert result.best == pytest.approx(roc_auc_score(y, scores.double(), multi_class=multi_class), abs=1e-6)


def test_mu_follows_the_auc_of_classes_in_a_loop_of_ones_own():
    loss, mu, before = ranked(90), 0.3, -1.0
    _, y = rows(0)
    for seed in range(8):
        scores = torch.randn(90, 3, generator=torch.Generator().manual_seed(seed)).softmax(1)
        loss.observe(auroc(scores, y))
        current = roc_auc_score(y, scores.double().numpy(), multi_class="ovr", labels=[0, 1, 2])
        mu, before = mu * (3.0 if current < before else 1.0), current
        assert loss.mu.item() == pytest.approx(mu)
    assert mu > 0.3
