"""An ordinary batch has the value and the gradient that the plain path gives, for all metrics, steps and types."""

import copy
import random

import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jvp

from metricfit import MetricLoss, metrics, steps
from metricfit.core import batch_counts
from metricfit.core.batch_counts import OrdinaryColumns
from metricfit.core.kernels import binary_cpu, classes_cpu
from metricfit.core.validation import DivergedError
from metricfit.errors import InvalidValueError

STEPS = [steps.Linear(0.1), steps.Linear(0.4), steps.Sigmoid(k=12), steps.Identity(), steps.RaisedCosine(width=0.25)]
NAMES = [name for name in metrics.names() if name not in ("fbeta", "tversky", "cost", "cost_matrix", "weighted_kappa")]
NAMES += ["fbeta(beta=2)", "tversky(alpha=0.3, beta=0.7)", "cost(fp=1, fn=3)", "2*tp/(2*tp + fp + fn)", "jaccard"]
#: torch itself compiles derivatives for forward mode in a way that it deprecates.
forward_mode = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture
def plain(monkeypatch):
    """Return a function that computes as if no batch was ordinary."""

    def compute(loss, *batch):
        with monkeypatch.context() as patch:
            patch.setattr(batch_counts, "_is_plain", lambda *tensors: False)
            return value_and_gradient(loss, *batch)

    return compute


def value_and_gradient(loss, logits, target, weight=None):
    x = logits.clone().requires_grad_()
    value = loss(x, target, weight)
    return value.detach(), *torch.autograd.grad(value, x)


def make_batch(shape, dtype, target_dtype, weighted, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    target = torch.rand(shape, generator=generator) < 0.3
    target = torch.rand(shape, generator=generator) if target_dtype == "soft" else target.to(target_dtype)
    weight = torch.rand(shape, generator=generator).to(dtype) if weighted else None
    return logits.to(dtype), target, weight


def was_fused(loss):
    """Whether the last batch was counted by numbers, which dual numbers are made of."""
    return not isinstance(loss._watch.last[0][0], torch.Tensor)


@pytest.mark.parametrize(
    ("name", "label", "of_nothing"), [("recall", 0, 1.0), ("fnr", 0, 1.0), ("specificity", 1, 1.0)]
)
@pytest.mark.parametrize("zero_division", [None, 0, 1, "skip"])
def test_a_binary_metric_that_is_0_over_0_is_what_zero_division_says(name, label, of_nothing, zero_division, plain):
    loss = MetricLoss(name, zero_division=zero_division)
    logits, target = torch.tensor([0.5, -1.0, 2.0]), torch.full((3,), label)
    value, gradient = value_and_gradient(loss, logits, target)
    metric = of_nothing if zero_division == 1 else 0.0
    assert value.item() == (metric if loss.metric.minimize else 1 - metric)
    torch.testing.assert_close((value, gradient), plain(loss, logits, target))


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_has_the_plain_value_and_gradient(name, plain):
    choice = random.Random(name)
    for seed in range(6):
        shape = choice.choice([(40,), (40, 1), (40, 5), (8, 1, 3, 3)])
        dtype = choice.choice([torch.float32, torch.float64])
        target_dtype = choice.choice([torch.float32, torch.int64, torch.bool, torch.float64, "soft"])
        step, threshold = choice.choice([None, *STEPS]), choice.choice([None, 0.5, 0.2, 0.7, 0.9, 1e-6])
        average = choice.choice(["macro", "micro", "weighted"])
        batch = make_batch(shape, dtype, target_dtype, choice.random() < 0.3, seed)
        task = "multilabel" if shape == (40, 5) else "binary"
        loss = MetricLoss(name, step=step, threshold=threshold, average=average, task=task)
        value, slope = value_and_gradient(loss, *batch)
        assert was_fused(loss), (shape, dtype, target_dtype, average)
        expected, expected_slope = plain(loss, *batch)
        tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 2e-7}
        torch.testing.assert_close(value, expected, **tolerance)
        torch.testing.assert_close(slope, expected_slope, **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_of_exclusive_classes_has_the_plain_value_and_gradient(name, plain, monkeypatch):
    choice = random.Random(name)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        dtype, classes = choice.choice([torch.float32, torch.float64]), choice.choice([2, 3, 7])
        x = (2 * torch.randn(30, classes, generator=generator, dtype=torch.float64)).to(dtype)
        y = torch.randint(classes - 1, (30,), generator=generator).to(choice.choice([torch.int64, torch.uint8]))
        step = choice.choice([None, steps.Linear(0.4), steps.Identity()])
        loss = MetricLoss(name, step=step, average=choice.choice(["macro", "micro", "weighted"])).eval()
        if seed == 3:
            monkeypatch.setattr(classes_cpu, "SMALL", 0)
        value, slope = value_and_gradient(loss, x, y)
        assert was_fused(loss)
        expected, expected_slope = plain(loss, x, y)
        tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 2e-6}
        torch.testing.assert_close(value, expected, **tolerance)
        torch.testing.assert_close(slope, expected_slope, **tolerance)


@pytest.mark.parametrize(("samples", "classes"), [(6_000, 10), (500, 120), (260, 250)])
@pytest.mark.parametrize("distance", [0.0, 8.0], ids=["random", "separated"])
@pytest.mark.parametrize("name", ["f1", "mcc", "npv", "gmean"])
def test_thousands_of_samples_and_hundreds_of_classes_have_the_plain_value_and_gradient(
    name, distance, samples, classes, plain
):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (samples,), generator=generator)
    x = torch.randn(samples, classes, generator=generator).scatter_add(
        1, y[:, None], torch.full((samples, 1), distance)
    )
    loss = MetricLoss(name)
    value, slope = value_and_gradient(loss, x, y)
    assert was_fused(loss)
    expected, expected_slope = plain(loss, x.double(), y)
    assert value.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    assert (slope - expected_slope).abs().max() <= 1e-4 * expected_slope.abs().max()


@pytest.mark.parametrize("name", ["kappa", "mcc", "p4", "fnr"])
def test_few_missed_samples_of_saturated_classes_keep_their_digits(name):
    y = torch.arange(20_000) % 3
    x = 18.0 * torch.nn.functional.one_hot(y, 3)
    loss = MetricLoss(name, task="multiclass")
    gradients = [value_and_gradient(loss, x.to(dtype), y)[1].double() for dtype in (torch.float32, torch.float64)]
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-3 * gradients[1].abs().max()


@pytest.mark.parametrize("settings", [{}, {"threshold": [0.3, 0.6]}, {"ignore_index": -1}, {"average": None}], ids=str)
def test_other_batches_take_the_plain_path(settings):
    loss = MetricLoss("f1", **settings)
    x, y = torch.randn(9), torch.tensor([0, 1, 0] * 3)
    assert loss(x, y).isfinite().all()
    for given in (x.half(), torch.randn(18)[::2]):
        assert MetricLoss("f1")(given, y).isfinite()


def test_a_function_of_a_user_is_called_each_time():
    factor = [1.0]
    loss = MetricLoss(lambda c: factor[0] * c.tp / (c.tp + c.fp))
    x, y = torch.randn(9), torch.tensor([0, 1, 0] * 3)
    once = 1 - loss(x, y)
    factor[0] = 0.5
    assert (1 - loss(x, y)).item() == pytest.approx(once.item() / 2)


def test_a_changed_average_is_recorded_anew(plain):
    loss = MetricLoss("f1", task="multilabel")
    batch = make_batch((30, 4), torch.float64, torch.int64, False, seed=2)
    loss(*batch)
    loss.average = "micro"
    torch.testing.assert_close(loss(*batch), plain(loss, *batch)[0])


def test_errors_are_those_of_the_plain_path(plain):
    x, y = torch.tensor([0.0, 1.0, float("nan")]), torch.tensor([0.0, 1.0, 1.0])
    for logits, target, weight in [
        (x, y, None),
        (y, y - 1, None),
        (y, 2 * y, None),
        (y, x, None),
        (y, y, -y),
        (y, torch.tensor([0, 1]), None),
        (torch.zeros(3, 2), torch.tensor([0, 1, 2]), None),
        (torch.stack([x, y], 1), torch.tensor([0, 1, 1]), None),
    ]:
        messages = []
        for compute in (value_and_gradient, plain):
            with pytest.raises((InvalidValueError, DivergedError)) as caught:
                compute(MetricLoss("f1"), logits, target, weight)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
    with pytest.raises(InvalidValueError):
        MetricLoss("tp/(fp - fp)")(y, y)


def test_left_out_and_copies():
    classes = MetricLoss("recall")
    classes(torch.randn(6, 3), torch.tensor([0, 2] * 3))
    assert classes.left_out() == [1]
    loss = MetricLoss("recall", task="multilabel")
    loss(torch.randn(6, 3), torch.tensor([[1, 0, 0], [1, 1, 0]] * 3))
    assert loss.left_out() == [2]
    assert copy.deepcopy(loss).left_out() == [2]


def twin(x, y):
    """The loss of the default step, written down."""
    p = torch.sigmoid(x)
    h = torch.where(p < 0.25, 0.4 * p, torch.where(p > 0.75, 0.6 + 0.4 * p, 1.6 * p - 0.3))
    tp, fp, fn = (y * h).sum(), ((1 - y) * h).sum(), (y * (1 - h)).sum()
    return 1 - 2 * tp / (2 * tp + fp + fn)


@forward_mode
def test_forward_mode_and_second_derivatives_are_the_twins():
    generator = torch.Generator().manual_seed(3)
    x, v = torch.randn(2, 12, generator=generator, dtype=torch.float64)
    y = (torch.rand(12, generator=generator) < 0.5).double()
    loss = MetricLoss("f1")
    expected = jvp(lambda z: twin(z, y), (x,), (v,))
    torch.testing.assert_close(jvp(lambda z: loss(z, y), (x,), (v,)), expected)
    second = hessian(lambda z: twin(z, y))(x)
    torch.testing.assert_close(hessian(lambda z: loss(z, y))(x), second)
    torch.testing.assert_close(torch.autograd.functional.hessian(lambda z: loss(z, y), x), second)
    torch.testing.assert_close(grad(lambda z: loss(z, y))(x), grad(lambda z: twin(z, y))(x))
    with torch.autograd.forward_ad.dual_level():
        dual = loss(torch.autograd.forward_ad.make_dual(x, v), y)
        tangent = torch.autograd.forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(tangent, expected[1])


@forward_mode
def test_forward_mode_works_for_exclusive_classes():
    x, y = torch.randn(12, 3, dtype=torch.float64), torch.arange(12) % 3
    loss = MetricLoss("f1")
    direction = torch.randn_like(x)
    slope = torch.func.grad(lambda z: loss(z, y))(x)
    torch.testing.assert_close(jvp(lambda z: loss(z, y), (x,), (direction,))[1], (slope * direction).sum())
    z = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(z, y), z, create_graph=True)
    (second,) = torch.autograd.grad((slope * direction).sum(), z)
    full = hessian(lambda z: loss(z, y))(x)
    torch.testing.assert_close(second, torch.einsum("abcd,cd->ab", full, direction))


def test_several_gradients_at_once():
    x, y = torch.randn(9, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 0] * 3)
    loss = MetricLoss("f1")(x, y)
    scales = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (both,) = torch.autograd.grad(loss, x, scales, is_grads_batched=True, retain_graph=True)
    (one,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(both, scales[:, None] * one)


def test_the_kernel_of_small_batches_is_that_of_large_ones(monkeypatch):
    x, y, w = make_batch((50, 3), torch.float64, torch.float64, True, seed=4)
    for step in STEPS:
        kind = OrdinaryColumns(3, step.kind, step.number, 0.6)
        numbers, kept = kind.sums(x, y, w)
        of_counts = np.array([[0.1, 0.2, 0.3], [1.0, 0.5, 0.2], [-1.0, 0.3, 0.4], [0.0, 0.0, 2.0]])
        small = kind.gradient(x, y, w, kept, of_counts)
        with monkeypatch.context() as patch:
            patch.setattr(binary_cpu, "FEW", 0)
            large_numbers, nothing = kind.sums(x, y, w)
            assert nothing is None
            torch.testing.assert_close(kind.gradient(x, y, w, None, of_counts), small)
        torch.testing.assert_close(torch.tensor(numbers), torch.tensor(large_numbers))


@pytest.mark.parametrize("wrong", [2.0, -1.0, float("nan"), float("inf"), 255.0, 1.0000001])
@pytest.mark.parametrize("shape", [(9,), (3, 3)])
def test_labels_out_of_range_are_refused_among_soft_ones(wrong, shape):
    """Sums of y (1 - y) would cancel: 2 gives -2, and eight labels of 1/2 give 2."""
    target = torch.tensor([wrong, *[0.5] * 8]).view(shape)
    with pytest.raises(InvalidValueError):
        MetricLoss("f1", task="multilabel" if len(shape) > 1 else None)(torch.zeros(shape), target)


def test_the_public_apply_of_torch_gives_the_same(monkeypatch):
    """The base class of autograd functions is torch's own; without its ``apply`` the public one is taken."""
    batch = make_batch((40,), torch.float32, torch.float32, False, 0)
    expected = value_and_gradient(MetricLoss("f1"), *batch)
    calls = []

    class WithoutBase(batch_counts._ValueOfBatch):
        @classmethod
        def apply(cls, *given):
            calls.append(1)
            return super().apply(*given)

    monkeypatch.setattr(batch_counts, "getattr", lambda owner, name, default: default, raising=False)
    monkeypatch.setattr(batch_counts, "_ValueOfBatch", WithoutBase)
    monkeypatch.setattr(batch_counts, "_apply", batch_counts._find_apply())
    torch.testing.assert_close(value_and_gradient(MetricLoss("f1"), *batch), expected)
    assert calls


@pytest.mark.parametrize("shape", [(8,), (8, 3)])
@pytest.mark.parametrize("error", [ValueError, IndexError, RuntimeError, KeyError])
def test_an_error_of_a_users_formula_is_raised_and_not_tried_again(error, shape):
    calls = []

    def broken(c):
        calls.append(type(c.tp))
        raise error("this formula has a fault")

    with pytest.raises(error, match="this formula has a fault"):
        MetricLoss(broken, task="multilabel" if len(shape) > 1 else None)(torch.zeros(shape), torch.ones(shape))
    assert len(calls) == 1


def test_a_formula_of_torch_functions_is_evaluated_with_tensors():
    def smooth(c):
        return torch.sigmoid(c.tp) / torch.add(c.tp + c.fp, c.fn)

    value, gradient = value_and_gradient(MetricLoss(smooth), torch.tensor([1.0, -1.0]), torch.tensor([1, 0]))
    assert value.isfinite()
    assert (gradient != 0).all()


def test_a_fault_of_type_in_a_users_formula_is_raised_from_tensors():
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'recall'"):
        MetricLoss(lambda c: c.tp.recall)(torch.zeros(4), torch.ones(4))
