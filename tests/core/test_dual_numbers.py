"""One formula for every kind of number: dual numbers have the values and the derivatives that tensors have."""

import math
import operator

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from metricfit import Counts, get_metric, metrics
from metricfit.core.arrays import to_numpy
from metricfit.core.batch_counts import value_and_slopes
from metricfit.core.numerics import (
    Dual,
    clip,
    constant,
    duals,
    maximum,
    minimum,
    ratio,
    root,
    share,
    where,
    without_tiny,
)
from metricfit.metrics.average import loss_of_counts

NAMES = [name for name in metrics.names() if name not in ("fbeta", "tversky", "cost", "cost_matrix", "weighted_kappa")]
NAMES += ["fbeta(beta=2)", "fbeta(beta=0)", "fbeta(beta=inf)", "tversky(alpha=0.3, beta=0.7)", "cost(fp=1, fn=3)"]
NAMES += ["2*tp/(2*tp + fp + fn)", "minimize(fp + 5*fn)"]
PER_CLASS = ["fbeta(beta=[0, 1, 3])", "tversky(alpha=[0, 1, 2], beta=[1, 1, 0])", "cost(fp=[1, 2, 3], fn=1)"]
BINARY = [(3.0, 1.0, 2.0, 4.0), (0.0, 1.0, 0.0, 9.0), (0.0, 0.0, 0.0, 5.0), (4.0, 0.0, 0.0, 0.0), (0.0,) * 4]
BINARY += [(0.0, 0.0, 3.0, 4.0), (2.5, 0.0, 0.0, 1e6), (1e-3, 1e-9, 1e3, 1e9), (1e-300, 0.0, 0.0, 1.0)]
CLASSES = [
    ((3.0, 2.0, 1.0), (1.0, 2.0, 0.5), (2.0, 1.0, 0.5), (4.0, 5.0, 8.0)),
    ((3.0, 0.0, 1.0), (1.0, 0.0, 0.5), (0.5, 0.0, 1.0), (4.0, 8.5, 6.0)),
    ((0.0, 0.0, 0.0),) * 4,
]


def compare(name, cells, average, exclusive):
    metric = get_metric(name)
    leaf = torch.tensor(cells, dtype=torch.float64).reshape(4, -1).requires_grad_()

    def loss(counts):
        return loss_of_counts(metric, counts, average)

    expected = loss(Counts(*leaf, exclusive=exclusive))
    (wanted,) = torch.autograd.grad(expected, leaf)
    numbers = list(cells) if isinstance(cells[0], float) else np.array(cells)
    results = [value_and_slopes(loss, kind, exclusive) for kind in (numbers, torch.tensor(cells, dtype=torch.float64))]
    for result in results:
        compare_one(result, expected, wanted, metric, exclusive)


def compare_one(result, expected, wanted, metric, exclusive):
    if result is None:  # such as a metric of the whole matrix of several labels
        assert metric.whole_matrix
        assert not exclusive
        return
    assert float(result.value) == pytest.approx(expected.item(), rel=1e-12, abs=1e-15)
    slopes = torch.as_tensor(result.slopes, dtype=torch.float64).reshape(4, -1).expand_as(wanted)
    torch.testing.assert_close(slopes, wanted, rtol=1e-9, atol=1e-12 * max(1.0, wanted.abs().max().item()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cells", BINARY, ids=str)
def test_binary_metrics(name, cells):
    compare(name, cells, "macro", exclusive=True)


@pytest.mark.parametrize("name", NAMES + PER_CLASS)
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("exclusive", [True, False], ids=["classes", "labels"])
@pytest.mark.parametrize("cells", CLASSES, ids=["usual", "one empty", "nothing"])
def test_metrics_of_classes(name, average, exclusive, cells):
    if name in PER_CLASS and average == "micro":
        pytest.skip("a parameter per class has no micro average")
    compare(name, cells, average, exclusive)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_differences(name):
    metric = get_metric(name)
    cells = [torch.tensor([number], dtype=torch.float64, requires_grad=True) for number in BINARY[0]]
    assert gradcheck(lambda *cells: metric(Counts(*cells)), cells)


PAIRS = [(2.0, 3.0), (0.0, 3.0), (2.0, 0.0), (0.0, 0.0), (3.0, 3.0), (1e-250, 1e-250)]
FUNCTIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "numbers": lambda x, y: 2 - x + 3 * y - (-x) / 4 + np.float64(0.5) * x,
    "power": lambda x, y: x**3 + y**0 + (x + 1) ** 0.5,
    "absolute": lambda x, y: abs(x - y),
    "ratio": ratio,
    "ratio of a number": lambda x, y: ratio(2.0, x) + ratio(y, 4.0),
    "divide": lambda x, y: x / (y + 1) + 1 / (x + 1),
    "share": share,
    "share of a sum": lambda x, y: share(x + y, 2 * y),
    "root": lambda x, y: root(x * y),
    "minimum": lambda x, y: minimum(x, y) + minimum(x, 2.5),
    "maximum": lambda x, y: maximum(x, y) + maximum(1.0, y),
    "where": lambda x, y: where(x > y, x, 2 * y) + where(x == y, x * y, 0.0),
    "clip": lambda x, y: clip(x, 0.5, 2.5) * y,
    "constant": lambda x, y: constant(x) * y,
    "tiny": lambda x, y: without_tiny(x) + y,
    "sum": lambda x, y: ratio((x * y).sum(-1), (x + y).sum(-1)) + x[..., 1],
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_on_every_kind_of_number(function):
    compute = FUNCTIONS[function]
    x, y = (torch.tensor(column, dtype=torch.float64, requires_grad=True) for column in zip(*PAIRS, strict=True))
    expected = compute(x, y)
    wanted = torch.autograd.grad(expected.sum(), (x, y), materialize_grads=True)
    arrays = compute(x.detach().numpy(), y.detach().numpy())
    np.testing.assert_allclose(arrays, expected.detach().numpy(), rtol=1e-12)
    first, second, *_ = duals([list(column) for column in zip(*((*pair, 1.0, 1.0) for pair in PAIRS), strict=True)])
    of_tensors = duals([x.detach(), y.detach(), torch.ones(len(PAIRS)), torch.ones(len(PAIRS))])
    for result in (compute(first, second), compute(*of_tensors[:2])):
        np.testing.assert_allclose(to_numpy(result.value), expected.detach().numpy(), rtol=1e-12)
        for slope, gradient in zip(result.slopes, wanted, strict=False):
            np.testing.assert_allclose(to_numpy(slope) + np.zeros(len(PAIRS)), gradient.numpy(), rtol=1e-12)
    if function == "sum":
        return
    for place, pair in enumerate(PAIRS):
        single = compute(*duals([*pair, 1.0, 1.0])[:2])
        assert single.value == pytest.approx(expected[place].item(), rel=1e-12)
        assert single.slopes[:2] == pytest.approx([gradient[place].item() for gradient in wanted], rel=1e-12)
        assert compute(*pair) == pytest.approx(expected[place].item(), rel=1e-12)


def test_divisions_by_zero_are_those_of_tensors():
    zero, one = duals([0.0, 1.0, 2.0, 3.0])[:2]
    assert (one / zero).value == math.inf
    assert (-one / zero).value == -math.inf
    assert math.isnan((zero / zero).value)


def test_dual_numbers_do_not_mix_with_tensors():
    number = duals([1.0, 2.0, 3.0, 4.0])[0]
    for mix in (operator.add, operator.mul, operator.truediv):
        with pytest.raises(TypeError):
            mix(number, torch.ones(1))
        with pytest.raises(TypeError):
            mix(torch.ones(1), number)
    assert isinstance(np.ones(2) * number, Dual)


@pytest.mark.parametrize(
    "formula",
    [
        lambda c: torch.sqrt(c.tp + 1) / (c.n + 1),
        lambda c: c.tp.clamp(max=2) / c.n,
        lambda c: c.tp / c.n if c.tp.dim() else c.tp,
    ],
    ids=["function", "method", "shape"],
)
def test_formulas_that_need_tensors_get_them(formula):
    from metricfit import MetricLoss

    x, y = torch.tensor([0.5, -1.0, 2.0], requires_grad=True), torch.tensor([1, 0, 1])
    value = MetricLoss(formula)(x, y)
    expected = 1 - formula(Counts.soft(x, y)).squeeze()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(expected, x))
