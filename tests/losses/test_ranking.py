"""Losses over pairs, against loops over pairs."""

from itertools import pairwise

import pytest
import torch

from metricfit import Counts, curves, steps
from metricfit.core import pairs
from metricfit.losses import MBAUCLoss, PairHingeLoss, SoftAUROCLoss, WMWLoss, backward_in_chunks

LOSSES = {
    "hinge": (PairHingeLoss(margin=1.5, power=1), lambda a, b: max(0.0, 1.5 - (a - b)), False),
    "squared": (PairHingeLoss(), lambda a, b: max(0.0, 1 - (a - b)) ** 2, False),
    "wmw": (WMWLoss(gamma=0.2, power=3), lambda a, b: max(0.0, 0.2 - (a - b)) ** 3, True),
    "mbauc": (MBAUCLoss(), lambda a, b: (1 - (a - b)) ** 2, True),
}
every = pytest.mark.parametrize("name", LOSSES)


def batch(n=14, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    x[1], x[4] = x[0], x[3]
    return x, (torch.rand(n, generator=generator) < 0.4).long(), torch.rand(n, generator=generator, dtype=torch.float64)


@every
@pytest.mark.parametrize("few", [0, 1000], ids=["sorted", "all pairs"])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_is_the_mean_over_pairs(name, few, weighted, monkeypatch):
    monkeypatch.setattr(pairs, "FEW", few)
    loss, of_pair, on_probabilities = LOSSES[name]
    x, y, w = batch()
    score = (torch.sigmoid(x) if on_probabilities else x).tolist()
    weight = w.tolist() if weighted else [1.0] * len(x)
    chosen = [(i, j) for i in range(len(x)) for j in range(len(x)) if y[i] == 1 and y[j] == 0]
    total = sum(weight[i] * weight[j] for i, j in chosen)
    expected = sum(weight[i] * weight[j] * of_pair(score[i], score[j]) for i, j in chosen) / total
    assert loss(x, y, weight=w if weighted else None).item() == pytest.approx(expected, rel=1e-10)


@every
def test_gradient_by_differences(name, monkeypatch):
    monkeypatch.setattr(pairs, "FEW", 0)
    x, y, w = batch(9, seed=3)
    x = (x + 0.01 * torch.arange(9)).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: LOSSES[name][0](given, y, w), x)


@every
def test_a_batch_without_pairs_gives_0_and_a_finite_gradient(name):
    for target in (torch.zeros(4), torch.ones(4)):
        x = torch.randn(4, requires_grad=True)
        value = LOSSES[name][0](x, target)
        value.backward()
        assert value.item() == 0
        assert x.grad.isfinite().all()


def test_soft_auroc_tends_to_the_auroc_of_many_thresholds():
    x, y, _ = batch(200, seed=5)
    many = [k / 500 for k in range(1, 500)]
    loss = SoftAUROCLoss(many, steps.Sigmoid(k=5000))
    assert 1 - loss(x, y).item() == pytest.approx(curves.auroc(x, y), abs=0.01)


def test_soft_auroc_is_the_trapezoid_over_the_closed_curve():
    x, y, _ = batch()
    points = [(1.0, 1.0)]
    for t in (0.25, 0.5, 0.75):
        c = Counts.soft(x, y, threshold=t)
        points.append(((c.fp / c.negatives).item(), (c.tp / c.positives).item()))
    points.append((0.0, 0.0))
    area = sum((a[0] - b[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    assert SoftAUROCLoss([0.5, 0.25, 0.75])(x, y).item() == pytest.approx(1 - area)


def test_losses_of_sums_accumulate_exactly():
    model = torch.nn.Linear(3, 1).double()
    x, y = torch.randn(10, 3).double(), torch.tensor([0, 1] * 5)
    for loss in (MBAUCLoss(), SoftAUROCLoss()):
        model.zero_grad()
        loss(model(x), y).backward()
        expected = model.weight.grad.clone()
        model.zero_grad()
        backward_in_chunks(model, loss, [(x[:3], y[:3]), (x[3:], y[3:])])
        torch.testing.assert_close(model.weight.grad, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairHingeLoss(margin=0), "needs a finite margin above 0, got 0"),
        (lambda: WMWLoss(power=4), "needs a power of 1, 2 or 3, got 4"),
        (lambda: SoftAUROCLoss([]), "needs at least one threshold"),
        (lambda: SoftAUROCLoss([0.0, 0.5]), "strictly between 0 and 1"),
        (lambda: PairHingeLoss()(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])), "PairHingeLoss is for binary"),
    ],
)
def test_mistakes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
