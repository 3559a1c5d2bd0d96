"""best_decision for several labels: one threshold per label, about logits as they are."""

import pytest
import torch
from sklearn.metrics import f1_score

from metricfit.decide import DecisionModule, best_decision


def make_rows(n=400, labels=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, labels, generator=generator) < torch.tensor([0.1, 0.2, 0.3, 0.5])[:labels]).long()
    return 2.5 * y + torch.randn(n, labels, generator=generator, dtype=torch.float64) - 3, y


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "samples"])
def test_the_value_is_that_of_scikit_learn_at_the_thresholds(average):
    z, y = make_rows()
    decision = best_decision(z, y, "f1", average=average)
    assert decision.thresholds.shape == (4,)
    called = decision.decide(z)
    assert torch.equal(decision.decide(z), called)
    assert decision.evidence.value == pytest.approx(f1_score(y, called, average=average, zero_division=0))
    assert decision.evidence.value > f1_score(y, (z >= 0).long(), average=average, zero_division=0)
    assert bool((decision.intervals[:, 0] <= decision.thresholds).all())


def test_the_empirical_rule_finds_each_labels_best_threshold():
    z, y = make_rows(60)
    decision = best_decision(z, y, "f1", rule="empirical")
    for label in range(4):
        best = max(f1_score(y[:, label], z[:, label] >= at, zero_division=0) for at in z[:, label])
        assert f1_score(y[:, label], z[:, label] >= decision.thresholds[label]) == pytest.approx(best)


def test_a_module_decides_as_the_decision_does():
    z, y = make_rows()
    decision = best_decision(z, y, "f1")
    decided = DecisionModule(torch.nn.Identity().double(), decision)(z)
    assert torch.equal(decided.labels, decision.decide(z))
    assert torch.allclose(decided.probabilities.double(), decision.probabilities(z), atol=1e-5)
    assert float(decision.probabilities(z).mean()) == pytest.approx(float(y.double().mean()), abs=0.03)


def test_wrong_labels_are_refused():
    z, y = make_rows()
    with pytest.raises(ValueError, match="same shape"):
        best_decision(z[:, :3], y, "f1")
    with pytest.raises(ValueError, match="0 or 1"):
        best_decision(z, y + 1, "f1")
    with pytest.raises(ValueError, match="prevalence is for classes"):
        best_decision(z, y, "f1", prevalence=0.5)
