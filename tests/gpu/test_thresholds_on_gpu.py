"""Thresholds on a CUDA device against those on the CPU."""

import math
import warnings

import pytest
import torch

from metricfit import best_threshold
from metricfit.curves import best_thresholds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", ["f1", "mcc", "balanced_accuracy", "cost(fp=1, fn=10)"])
def test_thresholds_are_those_of_the_cpu(name):
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(5000, 4, generator=generator) < 0.2).long()
    scores = (8 * torch.randn(5000, 4, generator=generator)).round() / 8 + target
    found, expected = best_thresholds(scores.cuda(), target.cuda(), name), best_thresholds(scores, target, name)
    assert found.thresholds.tolist() == expected.thresholds.tolist()
    assert found.values.tolist() == pytest.approx(expected.values.tolist(), abs=1e-12)
    single = best_threshold(scores[:, 0].cuda(), target[:, 0].cuda(), name)
    assert single == (expected.thresholds[0].item(), pytest.approx(expected.values[0].item(), abs=1e-12))


@pytest.mark.parametrize("name", ["f1", "mcc", "p4", "minimize(fp + 0.1*fn)"])
@pytest.mark.parametrize("n", [1, 1023, 1024, 300_000])
def test_thresholds_of_one_column_are_those_of_the_cpu(name, n):
    generator = torch.Generator().manual_seed(n)
    target = torch.rand(n, generator=generator) < 0.2
    for scores, labels in (
        (torch.randn(n, generator=generator) + target, target.float()),
        ((8 * torch.randn(n, generator=generator)).round().half() / 8, target),
    ):
        found, expected = best_threshold(scores.cuda(), labels.cuda(), name), best_threshold(scores, labels, name)
        assert found == (expected.threshold, pytest.approx(expected.value, rel=1e-12))


def test_a_search_waits_once():
    scores, target = torch.randn(10**6, device="cuda"), torch.rand(10**6, device="cuda") < 0.2
    best_threshold(scores, target, "f1")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            best_threshold(scores, target, "f1")
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert sum("called a synchronizing" in str(wait.message) for wait in waits) <= 3


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        best_threshold(torch.tensor([0.0, math.nan], device="cuda"), torch.tensor([0, 1], device="cuda"), "f1")
    with pytest.raises(ValueError, match="target must hold 0 and 1 only"):
        best_threshold(torch.tensor([0.0, 1.0], device="cuda"), torch.tensor([0, 2], device="cuda"), "f1")
