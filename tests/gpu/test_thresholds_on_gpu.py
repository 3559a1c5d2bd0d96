"""Thresholds on a CUDA device against those on the CPU."""

import math

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


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        best_threshold(torch.tensor([0.0, math.nan], device="cuda"), torch.tensor([0, 1], device="cuda"), "f1")
    with pytest.raises(ValueError, match="target must hold 0 and 1 only"):
        best_threshold(torch.tensor([0.0, 1.0], device="cuda"), torch.tensor([0, 2], device="cuda"), "f1")
