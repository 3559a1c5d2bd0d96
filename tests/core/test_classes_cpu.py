"""The CPU kernel of exclusive classes, at once and in blocks, against loops over the samples."""

import pytest
import torch
from class_oracle import IMAGES, PIXELS, ROWS, compare, make

from metricfit import MetricLoss, steps
from metricfit.core.kernels import classes, classes_cpu, soft_classes
from metricfit.core.kernels.classes import closed_class_counts
from metricfit.core.kernels.soft_classes import StepAt, decisions, sum_decisions

STEPS = [steps.Linear(0.2), steps.Linear(0.4), steps.Identity()]

every_step = pytest.mark.parametrize("step", STEPS, ids=repr)
every_layout = pytest.mark.parametrize("layout", [ROWS, PIXELS, IMAGES], ids=["rows", "pixels", "images"])


class PlainOperations:
    """What every step, target and device can take, under the names of a kernel."""

    @staticmethod
    def counts(x, y, w, step, layout):
        return sum_decisions(decisions(x, step, step.threshold, layout), y, w, layout)

    @classmethod
    def gradient(cls, x, y, w, grad, *settings):
        return torch.func.vjp(lambda logits: cls.counts(logits, y, w, *settings), x)[1](grad)[0]


@pytest.fixture(params=[2**18, 20], ids=["at once", "blocks"])
def any_block(request, monkeypatch):
    monkeypatch.setattr(soft_classes, "BLOCK", request.param)


@every_step
@every_layout
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_counts_and_gradients(step, layout, weighted, any_block, naive):
    x, y, w = make(layout, (17, 4) if layout == ROWS else (2, 4, 9))
    compare(classes, naive, x, y, w if weighted else None, step, layout)


@every_step
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_rows_that_are_not_transposed(step, weighted, any_block, naive, monkeypatch):
    monkeypatch.setattr(classes_cpu, "FEW", 3)
    x, y, w = make(ROWS, (17, 4))
    compare(classes, naive, x, y, w if weighted else None, step, ROWS)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_many_classes(weighted, any_block, naive, monkeypatch):
    monkeypatch.setattr(classes_cpu, "FEW", 0)
    monkeypatch.setattr(classes_cpu, "MANY", 2)
    x, y, w = make(ROWS, (17, 4))
    compare(classes, naive, x, y, w if weighted else None, steps.Linear(0.2), ROWS)


@pytest.mark.parametrize("threshold", [0.01, 0.3, 0.7, 0.99])
def test_fixed_thresholds(threshold, naive):
    compare(PlainOperations, naive, *make(PIXELS, (2, 4, 9)), steps.Linear(0.2), PIXELS, threshold, tolerance=1e-4)


@pytest.mark.parametrize("step", [steps.Sigmoid(k=12), steps.RaisedCosine(width=0.25)], ids=repr)
@every_layout
def test_steps_without_a_kernel(step, layout, naive):
    compare(PlainOperations, naive, *make(layout, (17, 4) if layout == ROWS else (2, 4, 9)), step, layout)


def test_two_classes(any_block, naive):
    compare(classes, naive, *make(PIXELS, (2, 2, 9)), steps.Linear(0.2), PIXELS)


@pytest.mark.parametrize("step", [steps.Linear(0.2), steps.Linear(0.001)], ids=repr)
def test_more_classes_than_are_compared_in_turn(step, any_block, naive):
    compare(classes, naive, *make(PIXELS, (2, classes_cpu.FEW_CLASSES + 1, 9)), step, PIXELS)


@pytest.mark.parametrize("step", [steps.Linear(0.2), steps.Identity()], ids=repr)
def test_blocks_of_several_threads(step, naive, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(soft_classes, "BLOCK", 20)
    x, y, w = make(PIXELS, (5, 4, 9))
    assert 20 < soft_classes.block_size(x, PIXELS, StepAt(step.kind, step.number, None)) < x.numel()
    compare(classes, naive, x, y, w, step, PIXELS)


@pytest.mark.parametrize("layout", [PIXELS, IMAGES], ids=["pixels", "images"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_probabilities_of_identity_are_kept_for_the_gradient(layout, weighted, monkeypatch):
    monkeypatch.setattr(soft_classes, "BLOCK", 80)  # two images
    x, y, w = make(layout, (5, 4, 9))
    w, at = w if weighted else None, StepAt("identity", 0, 0.5)
    logits = x.clone().requires_grad_()
    assert classes.keeps_probabilities(logits, at, layout)
    counts = closed_class_counts(logits, y, w, at, layout)
    torch.testing.assert_close(counts.detach(), classes.counts(x, y, w, at, layout))
    grad = torch.randn(counts.shape, generator=torch.Generator().manual_seed(1))
    wanted = classes.gradient(x, y, w, grad, at, layout)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(counts, logits, grad, retain_graph=True)[0], wanted)


def test_second_derivatives_of_identity():
    x, y, w = make(PIXELS, (2, 3, 4), torch.float64)
    at = StepAt("identity", 0, 0.5)
    assert torch.autograd.gradgradcheck(
        lambda x: closed_class_counts(x, y, w.double(), at, PIXELS).square(), x.requires_grad_()
    )


def test_a_small_false_positive_count_does_not_cancel(any_block):
    x = torch.zeros(1, 3, 50)
    x[:, 0] = 40.0  # the other two have a probability of 4e-18, far below the rounding error of a sum of ones
    counts = classes.counts(x, torch.zeros(1, 50, dtype=torch.long), None, StepAt("identity", 0, 0.5), PIXELS)
    p = torch.softmax(x[0, :, 0].double(), 0)
    torch.testing.assert_close(counts[1, 1:].double(), 50 * p[1:], rtol=1e-5, atol=0)
    torch.testing.assert_close(counts[2, 0].double(), 50 * (p[1] + p[2]), rtol=1e-5, atol=0)


@pytest.mark.parametrize("in_turn", [5, 4], ids=["in turn", "at once"])
@pytest.mark.parametrize("equal", [2, 3, 4])
@pytest.mark.parametrize("above", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("step", [steps.Linear(0.2)], ids=repr)
def test_equal_logits_share_the_gradient_of_the_threshold(step, above, equal, in_turn, naive, monkeypatch):
    """The result is the mean of the gradients at which one or two of the equal logits are a little larger."""
    monkeypatch.setattr(classes_cpu, "FEW_CLASSES", in_turn)
    x = torch.full((1, 5, 1), -3.0)
    x[:, :equal] = 0.0
    if above:
        x[:, 4] = 1.0
    y, at = torch.zeros(1, 1, dtype=torch.long), StepAt(step.kind, step.number, None)
    grad = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    given = classes.gradient(x, y, None, grad, at, PIXELS)
    choices = torch.combinations(torch.arange(equal), 1 if above else 2)
    expected = torch.zeros(1, 5, 1, dtype=torch.float64)
    for chosen in choices:
        nearby = x.double()
        nearby[:, chosen] += 1e-9
        expected += classes.gradient(nearby, y, None, grad.double(), at, PIXELS) / len(choices)
    torch.testing.assert_close(given.double(), expected, rtol=1e-4, atol=1e-6)


def test_channels_last_and_padded_images(any_block):
    x = torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.randint(3, (2, 6, 5), generator=torch.Generator().manual_seed(1))

    def loss_and_gradient(logits):
        logits = logits.detach().requires_grad_()
        loss = MetricLoss("f1")(logits, y)
        return loss.detach(), torch.autograd.grad(loss, logits)[0]

    value, wanted = loss_and_gradient(x)
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))[:, :, 1:-1, 1:-1]
    for logits in (x.to(memory_format=torch.channels_last), padded):
        given, result = loss_and_gradient(logits)
        torch.testing.assert_close(given, value)
        torch.testing.assert_close(result, wanted)
