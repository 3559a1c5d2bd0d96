"""Gradients through the dynamic threshold: finite differences, plain autograd, in blocks, in every layout."""

import pytest
import task_twins as twins
import torch
from torch.autograd import gradcheck, gradgradcheck

from metricfit import Counts, MetricLoss, steps
from metricfit.core.kernels import soft_classes
from metricfit.metrics import confusion_matrix

SHAPES = {"rows": (), "images": (3, 5), "volumes": (2, 3, 2)}


def flat(x):
    """Samples by classes."""
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def random_directions(seed=1):
    return torch.randn(4, twins.CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_counts_by_finite_differences(smooth_step, threshold):
    given = twins.make("multiclass", 5, seed=3)

    def counted(x):
        counts = Counts.soft(x, given.target, step=smooth_step, threshold=threshold, weight=given.weight)
        return torch.stack(tuple(counts))

    assert gradcheck(counted, given.logits.requires_grad_())
    assert gradgradcheck(counted, given.logits, fast_mode=True)


@pytest.mark.parametrize("threshold", [None, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [None, 1, 16, 40], ids=["whole", "1", "16", "40"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_any_gradient_of_the_counts_in_any_blocks(any_step, shape, block, weighted, threshold, twin, monkeypatch):
    if block is not None:
        monkeypatch.setattr(soft_classes, "BLOCK", block)
    given = twins.make("multiclass", 7 if not shape else 3, shape=shape)
    weight, directions = given.weight if weighted else None, random_directions()
    x = given.logits.clone().requires_grad_()
    counts = torch.stack(tuple(Counts.soft(x, given.target, step=any_step, threshold=threshold, weight=weight)))
    (counts * directions).sum().backward()

    plain = flat(given.logits).clone().requires_grad_()
    weights = None if weight is None else weight.reshape(-1)
    expected = twin.counts("multiclass", plain, given.target.reshape(-1), weights, any_step, threshold)
    torch.testing.assert_close(counts.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    (expected * directions).sum().backward()
    torch.testing.assert_close(flat(x.grad), plain.grad, rtol=1e-9, atol=1e-12)
    assert plain.grad.abs().max() > 1e-3


@pytest.mark.parametrize("block", [None, 1, 24, 70], ids=["whole", "1", "24", "70"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 2)], ids=["images", "volumes"])
def test_counts_per_image_are_those_of_each_image_alone(any_step, shape, block, twin, monkeypatch):
    if block is not None:
        monkeypatch.setattr(soft_classes, "BLOCK", block)
    given = twins.make("multiclass", 5, shape=shape)
    x = given.logits.clone().requires_grad_()
    counts = torch.stack(tuple(Counts.soft(x, given.target, step=any_step, weight=given.weight, per_image=True)))
    directions = torch.randn(counts.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (counts * directions).sum().backward()
    for i in range(5):
        plain = flat(given.logits[i : i + 1]).clone().requires_grad_()
        expected = twin.counts("multiclass", plain, given.target[i].reshape(-1), given.weight[i].reshape(-1), any_step)
        torch.testing.assert_close(counts[:, i].detach(), expected.detach(), rtol=1e-10, atol=1e-12)
        (expected * directions[:, i]).sum().backward()
        torch.testing.assert_close(flat(x.grad[i : i + 1]), plain.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_blocks_of_the_usual_size(dtype, twin):
    given = twins.make("multiclass", 60, c=10_007, dtype=dtype, seed=5)  # 60 x 10,007 is more than a block
    assert given.logits.numel() > soft_classes.BLOCK
    x = given.logits.requires_grad_()
    value = MetricLoss("f1", average="weighted")(x, given.target, weight=given.weight)
    value.backward()
    plain = x.detach().double().requires_grad_()
    tp, fp, fn, _ = twin.counts("multiclass", plain, given.target, given.weight)
    share = (tp + fn).detach()
    expected = 1 - (share * 2 * tp / (2 * tp + fp + fn)).sum() / share.sum()
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(x.grad.double(), plain.grad, rtol=1e-3, atol=1e-9)


def test_matrix_entries_by_finite_differences(smooth_step):
    given = twins.make("multiclass", 4, seed=3)

    def entries(x):
        return confusion_matrix(x, given.target, soft=True, step=smooth_step, weight=given.weight)

    assert gradcheck(entries, given.logits.requires_grad_())


def test_straight_through_matrix_agrees_with_its_counts_in_value_and_gradient():
    given = twins.make("multiclass", 12)
    given.logits[0, 1] = given.logits[0, 0] = 9.0  # a tie: the first is decided
    step = steps.StraightThrough(steps.Linear(0.2))
    for threshold in (None, 0.3):
        x, y = (given.logits.clone().requires_grad_() for _ in range(2))
        matrix = confusion_matrix(x, given.target, soft=True, step=step, threshold=threshold)
        counts = Counts.soft(y, given.target, step=step, threshold=threshold)
        torch.testing.assert_close(matrix.diagonal(), counts.tp)
        torch.testing.assert_close(matrix.sum(0), counts.predicted)
        torch.autograd.backward([matrix.diagonal(), counts.tp], [torch.arange(4.0).double()] * 2)
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_gradients_with_shares_of_classes_as_target(any_step, threshold, twin):
    given = twins.make("multiclass", 10)
    given.logits += 2 * torch.nn.functional.one_hot(given.target, 4)  # hits of each class, for the twin's rates
    generator = torch.Generator().manual_seed(4)
    share = torch.rand(10, 1, generator=generator, dtype=torch.float64)  # mixup
    hot = torch.nn.functional.one_hot(given.target, 4).double()
    mixed = share * hot + (1 - share) * hot.roll(1, 0)
    x = given.logits.clone().requires_grad_()
    loss = MetricLoss("f1", step=any_step, threshold=threshold, task="multiclass")
    loss(x, mixed, weight=given.weight).backward()
    expected = twin.gradient("f1", "multiclass", given.logits, mixed, given.weight, any_step, threshold)
    torch.testing.assert_close(x.grad, expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_reaches_targets_weights_and_a_threshold():
    given = twins.make("multiclass", 5, seed=3)
    shares = torch.softmax(given.logits.flip(0), 1).requires_grad_()
    t, w, x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True), given.weight.requires_grad_(), given.logits

    def counted(x, shares, w, t):
        return torch.stack(
            tuple(Counts.soft(x, shares, task="multiclass", weight=w, threshold=t, step=steps.Sigmoid(8)))
        )

    assert gradcheck(counted, (x.requires_grad_(), shares, w, t), fast_mode=True)


@pytest.mark.parametrize("name", ["f1", "accuracy", "mcc"])
def test_float32_gradients_of_sure_samples_are_the_float64_ones(name, closed_form_step, twin):
    given = twins.make("multiclass", 40, scale=6.0)
    x = given.logits.float().requires_grad_()
    MetricLoss(name, step=closed_form_step).eval()(x, given.target).backward()
    expected = twin.gradient(name, "multiclass", x.detach().double(), given.target, step=closed_form_step)
    torch.testing.assert_close(x.grad.double(), expected, rtol=2e-3, atol=1e-6)


def test_a_hundred_thousand_classes():
    n, c = 6, 10**5
    x = torch.randn(n, c, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.tensor([0, 5, 99_999, 5, 31_337, 2])
    loss = MetricLoss("f1")
    value = loss(x, y)
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    counts = Counts.soft(x.detach(), y)
    expected = twins.python_decision_of(twins.python_softmax(x.detach()[2].double().tolist()), steps.Linear(0.2))
    assert counts.tp[99_999].item() == pytest.approx(expected[99_999], rel=1e-3)
    assert counts.n.tolist()[:3] == pytest.approx([6.0] * 3, rel=1e-5)
    assert Counts.hard(x, y).predicted.sum() == 6
