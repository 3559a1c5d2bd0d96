"""The published code's losses, sample by sample."""

from itertools import pairwise

import pytest
import torch

from metricfit.steps import Linear, Sigmoid
from metricfit_papers.baselines.as_coded import (
    TENTHS,
    AUROCAsCoded,
    DiceAsCoded,
    MetricAsCoded,
    WMWAsCoded,
    counts_as_coded,
)

STEPS = [Linear(0.2), Sigmoid(10)]


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, generator=generator, dtype=torch.float64) * 2
    return x, (torch.rand(40, generator=generator) < 0.3).double()


def loop(x, y, step, t):
    """tp, fp, fn, tn: of a sample on the wrong side of t the step at 1 - t, of one of the other class the step of 0."""
    tp = fp = fn = tn = 0.0
    for logit, label in zip(x.tolist(), y.tolist(), strict=True):
        p = torch.sigmoid(torch.tensor(logit, dtype=torch.float64))
        none = torch.zeros((), dtype=torch.float64)
        tp += step(p if label else none, t if p > t else 1 - t).item()
        fn += step(1 - p if label else none, 1 - t if p < t else t).item()
        fp += step(none if label else p, t if p < t else 1 - t).item()
        tn += step(none if label else 1 - p, 1 - t if p < t else t).item()
    return tp, fp, fn, tn


@pytest.mark.parametrize("step", STEPS, ids=["linear", "sigmoid"])
def test_counts(samples, step):
    x, y = samples
    counts = counts_as_coded(x, y, None, step, torch.tensor(TENTHS, dtype=torch.float64))
    for at, t in enumerate(TENTHS):
        mine = [getattr(counts, name)[at].item() for name in ("tp", "fp", "fn", "tn")]
        assert mine == pytest.approx(loop(x, y, step, t))
    assert (counts.tp + counts.fn).squeeze().tolist() != pytest.approx([y.sum().item()] * 9)  # the error


@pytest.mark.parametrize("step", STEPS, ids=["linear", "sigmoid"])
def test_the_mean_over_thresholds_and_the_area(samples, step):
    x, y = samples
    every = [loop(x, y, step, t) for t in TENTHS]
    f1 = [2 * tp / (2 * tp + fp + fn) for tp, fp, fn, _ in every]
    assert MetricAsCoded("f1", step)(x, y).item() == pytest.approx(1 - sum(f1) / 9)
    points = sorted((fp / (fp + tn), tp / (tp + fn)) for tp, fp, fn, tn in every)
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    assert AUROCAsCoded(step)(x, y).item() == pytest.approx(1 - area)


def test_weights_multiply_each_samples_share(samples):
    x, y = samples
    twice = torch.cat([x, x[y > 0]]), torch.cat([y, y[y > 0]])
    weight = 1 + y
    assert MetricAsCoded("f1", Linear(0.2))(x, y, weight).item() == pytest.approx(
        MetricAsCoded("f1", Linear(0.2))(*twice).item()
    )


def test_wmw_as_coded_compares_positives_with_positives(samples):
    x, y = samples
    positive = x[y > 0]
    difference = positive.unsqueeze(0) - positive.unsqueeze(1)
    expected = (0.2 - difference).clamp(min=0).pow(3).sum()
    assert WMWAsCoded()(x, y).item() == pytest.approx(expected.item())


def test_dice_of_each_sample_alone(samples):
    x, y = samples
    terms = [a * b / (a * a + b * b + 1e-7) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert DiceAsCoded()(x, y).item() == pytest.approx(1 - sum(terms) / len(terms))


@pytest.mark.parametrize(
    "loss", [MetricAsCoded("f1", Linear(0.2)), AUROCAsCoded(Sigmoid(10)), WMWAsCoded(), DiceAsCoded()]
)
def test_members_of_a_population_equal_separate_losses(samples, loss):
    x, y = samples
    several, labels = torch.stack([x, -x, x / 2]), torch.stack([y, y, 1 - y])
    together = torch.func.vmap(loss)(several, labels)
    alone = torch.stack([loss(*each) for each in zip(several, labels, strict=True)])
    torch.testing.assert_close(together, alone)
