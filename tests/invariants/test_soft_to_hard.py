"""As a step sharpens, the soft metric tends to the metric of the hard decisions."""

import pytest
import torch

from metricfit import Counts, steps


@pytest.fixture
def clear_of(batch):
    """A batch none of whose probabilities is within 0.02 of the threshold, and its hard counts in plain Python."""

    def build(threshold):
        given = batch(60, seed=8)
        keep = (torch.sigmoid(given.logits) - threshold).abs() > 0.02
        logits, target = given.logits[keep], given.target[keep]
        table = [0.0, 0.0, 0.0, 0.0]
        for x, y in zip(logits.tolist(), target.tolist(), strict=True):
            decided = 1 / (1 + 2.718281828459045**-x) >= threshold
            table[(0 if decided else 2) + (0 if y else 1)] += 1
        return logits, target, table

    return build


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_sigmoid_of_growing_k(any_metric, clear_of, naive, threshold):
    logits, target, table = clear_of(threshold)
    hard = naive.metric(any_metric, *table)
    errors = [
        abs(any_metric(Counts.soft(logits, target, step=steps.Sigmoid(k=k), threshold=threshold)).item() - hard)
        for k in (5, 50, 500, 5000)
    ]
    assert errors[0] > 1e-5
    assert errors[2] < 1e-3
    assert errors[3] < 1e-12


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_raised_cosine_of_shrinking_width(any_metric, clear_of, naive, threshold):
    logits, target, table = clear_of(threshold)
    hard = naive.metric(any_metric, *table)
    errors = [
        abs(any_metric(Counts.soft(logits, target, step=steps.RaisedCosine(w), threshold=threshold)).item() - hard)
        for w in (0.9, 0.02)
    ]
    assert errors[0] > 1e-5
    assert errors[1] < 1e-12


def test_annealing_towards_a_sharp_step(any_metric, clear_of, naive):
    logits, target, table = clear_of(0.5)
    step = steps.Annealed(steps.Identity(), steps.Sigmoid(k=5000))
    step.advance(1.0)
    value = any_metric(Counts.soft(logits, target, step=step)).item()
    assert value == pytest.approx(naive.metric(any_metric, *table), abs=1e-12)
