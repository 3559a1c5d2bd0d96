"""Thresholds chosen on logits and given back as probabilities: the decisions are the ones that were measured."""

import math

import pytest
import torch

from metricfit import Counts, get_metric, metrics
from metricfit.core.numerics import is_positive
from metricfit.curves import InfeasibleError, best_threshold
from metricfit.metrics.curves import as_requirements, best_of_sweep
from metricfit.train.label_thresholds import probability_sweep


def best_probability_threshold(logits, target, metric, subject_to=None):
    return best_of_sweep(probability_sweep(logits, target), get_metric(metric), as_requirements(subject_to))


def value_at(logits, target, threshold, metric=metrics.f1):
    return metric(Counts.from_labels(is_positive(logits, threshold).long(), target)).item()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0, 30.0, 500.0])
def test_the_threshold_reproduces_the_decisions_it_was_chosen_for(dtype, scale):
    generator = torch.Generator().manual_seed(3)
    logits = (scale * torch.randn(300, generator=generator)).to(dtype)
    target = (logits.double() / scale + torch.randn(300, generator=generator) > 0.5).long()
    best = best_probability_threshold(logits, target, "f1")
    assert 0 < best.threshold < 1
    assert value_at(logits, target, best.threshold) == pytest.approx(best.value, abs=1e-12)
    if scale <= 8:
        assert best.value == pytest.approx(best_threshold(logits, target, "f1").value, abs=1e-12)


def test_large_logits_are_told_apart():
    logits, target = torch.tensor([30.0, 25.0, 20.0, 18.5]), torch.tensor([1, 1, 0, 0])
    best = best_probability_threshold(logits, target, "f1")
    assert best.value == 1.0
    assert value_at(logits, target, best.threshold) == 1.0


def test_the_threshold_lies_halfway_between_two_logits():
    best = best_probability_threshold(torch.tensor([2.0, 1.0, -3.0]), torch.tensor([1, 1, 0]), "f1")
    assert best.threshold == pytest.approx(1 / (1 + math.e))


def test_logits_that_no_probability_separates_are_decided_alike():
    logits, target = torch.tensor([50.0, 40.0]), torch.tensor([1, 0])
    best = best_probability_threshold(logits, target, "f1")
    assert best.value == pytest.approx(2 / 3)
    assert value_at(logits, target, best.threshold) == pytest.approx(2 / 3)


def test_calling_nothing_positive_is_a_probability_too():
    logits, target = torch.tensor([3.0, 1.0]), torch.tensor([0, 0])
    best = best_probability_threshold(logits, target, "accuracy")
    assert best.value == 1.0
    assert 1 / (1 + math.exp(-3)) < best.threshold < 1


@pytest.mark.parametrize("logit", [-2000.0, -745.0, -3.0, 3.0, 36.5, 2000.0])
def test_one_logit_has_a_threshold(logit):
    best = best_probability_threshold(torch.tensor([logit, logit]), torch.tensor([1, 0]), "accuracy")
    assert best.value == 0.5
    assert 0 < best.threshold < 1


def test_what_is_infeasible_is_reported_in_probabilities():
    logits, target = torch.tensor([5.0, 1.0, -3.0]), torch.tensor([0, 1, 1])
    with pytest.raises(InfeasibleError, match=r"nearest threshold is 0\.\d+"):
        best_probability_threshold(logits, target, "f1", ["precision >= 0.9", "recall >= 0.9"])
