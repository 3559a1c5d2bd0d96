"""METRO's weights are the known ones, and its loss leads to the decision with the best metric."""

import itertools
import json

import numpy as np
import pytest
import torch

from metricfit import get_metric
from metricfit.losses import WeightedBCELoss
from studies import metro
from studies.common import fill


@pytest.mark.parametrize("level", [0.05, 0.4, 0.93])
@pytest.mark.parametrize(
    ("metric", "ratio"),
    [
        ("f1", lambda t: (2 - t) / t),
        ("fbeta(beta=2)", lambda t: (5 - t) / t),
        ("jaccard", lambda t: 1 / t),
        ("precision", lambda t: (1 - t) / t),
    ],
)
def test_weights_of_the_classes(metric, ratio, level):
    positive, negative = metro.class_weights(get_metric(metric), level, prior=0.2)
    assert positive + negative == pytest.approx(1.0)
    assert positive / negative == pytest.approx(ratio(level), rel=1e-6)


@pytest.mark.parametrize("metric", ["f1", "fbeta(beta=2)", "jaccard"])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_decision_of_all_minimises_the_loss_at_its_value(metric, seed):
    generator = np.random.default_rng(seed)
    share, chance = generator.dirichlet(np.ones(9)), generator.beta(1, 3, 9)
    prior = float(share @ chance)

    def value(decision):
        tp, called = float(share @ (decision * chance)), float(share @ decision)
        if metric == "jaccard":
            return tp / (called + prior - tp)
        weight = 4 if "2" in metric else 1
        return (1 + weight) * tp / (called + weight * prior)

    best = max((np.array(d) for d in itertools.product((0, 1), repeat=9)), key=value)
    positive, negative = metro.class_weights(get_metric(metric), value(best), prior)
    logits = torch.zeros(9, dtype=torch.float64, requires_grad=True)
    loss = WeightedBCELoss(positive / negative)
    labels = torch.cat([torch.ones(9), torch.zeros(9)])
    weights = torch.tensor(np.concatenate([share * chance, share * (1 - chance)]))
    optimizer = torch.optim.LBFGS([logits], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        result = loss(torch.cat([logits, logits]), labels, weights)
        result.backward()
        return result

    optimizer.step(closure)
    assert (logits.detach().numpy() > 0).astype(int).tolist() == best.tolist()


@pytest.mark.pages
def test_the_page_shows_the_stored_results():
    stored = json.loads(metro.RESULTS.read_text(encoding="utf-8"))
    text = metro.PAGE.read_text(encoding="utf-8")
    assert fill(text, metro.parts_of_page(stored)) == text, "run: python -m studies.metro"
