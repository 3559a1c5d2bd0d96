"""Thresholds of several labels under requirements, against each label alone and against all pairs of thresholds."""

import pytest
import torch

from metricfit.decide import best_decision
from metricfit.decide import labels as label_module
from metricfit.errors import InvalidValueError
from metricfit.metrics.feasibility import InfeasibleError


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(label_module, "FEWEST", 2)
    monkeypatch.setattr(label_module, "MOST", 2)


def rows(n=200, labels=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, labels, generator=generator) < torch.tensor([0.4, 0.25, 0.15][:labels])).long()
    return torch.randn(n, labels, generator=generator).double() + 1.5 * y, y


@pytest.mark.parametrize("rule", ["plugin", "empirical"])
@pytest.mark.parametrize("confidence", [None, 0.9])
def test_each_label_is_decided_as_if_it_were_alone(rule, confidence):
    z, y = rows(150)
    settings = {"rule": rule, "calibrate": False}
    both = best_decision(z, y, "f1", subject_to="recall >= 0.8", confidence=confidence, **settings)
    share = None if confidence is None else 1 - (1 - confidence) / 2
    for label in range(2):
        alone = best_decision(z[:, label], y[:, label], "f1", subject_to="recall >= 0.8", confidence=share, **settings)
        assert float(both.thresholds[label]) == pytest.approx(alone.threshold)
        assert both.evidence.requirements[f"recall[{label}] >= 0.8"] == alone.evidence.requirements["recall >= 0.8"]
    assert both.evidence.confidence == confidence


@pytest.mark.parametrize("average", ["micro", "samples"])
def test_joint_averages_take_no_requirements(average):
    z, y = rows(30)
    with pytest.raises(InvalidValueError, match="for average='macro' or 'weighted'"):
        best_decision(z, y, "f1", subject_to="recall[1] >= 0.9", average=average)


def test_a_label_that_cannot_meet_them_is_named():
    z, y = rows(200)
    decision = best_decision(z, y, "f1", subject_to=["precision[1] >= 0.99", "recall >= 0.9"])
    assert decision.evidence.not_reachable.startswith(
        "no threshold gives precision[1] >= 0.99 and recall[1] >= 0.9 together"
    )
    assert decision.evidence.requirements["recall[0] >= 0.9"].met
    assert not all(result.met for result in decision.evidence.requirements.values())


def test_the_error_is_shared_among_the_labels_that_have_requirements():
    z, y = rows(60, labels=3)
    with pytest.raises(InfeasibleError, match=r"recall\[0\] >= 0.9 .* \(90 % for all 3 labels is 96.6667 % for each\)"):
        best_decision(z, y, "f1", subject_to="recall >= 0.9", confidence=0.9)
    with pytest.raises(ValueError, match="weights void"):
        best_decision(z, y, "f1", subject_to="recall >= 0.5", confidence=0.9, weight=torch.linspace(1, 2, 60))
