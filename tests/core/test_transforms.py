"""Gradients under torch's transforms, in value: eager, vmap, grad, their mixtures, double backward, autocast."""

import pytest
import torch
from torch.func import grad, jacrev, vmap

from metricfit import MetricLoss, steps
from metricfit.core.kernels.binary import soft_counts

STEPS = {
    "linear": lambda: steps.Linear(0.1),
    "sigmoid": lambda: steps.Sigmoid(k=10),
    "identity": steps.Identity,
    "raised_cosine": lambda: steps.RaisedCosine(0.3),
}


@pytest.fixture(params=STEPS)
def step(request):
    return STEPS[request.param]()


@pytest.fixture
def trials(batch):
    return batch(17, rows=3)


@pytest.fixture
def expected(trials, naive, step):
    rows = zip(trials.logits, trials.target, trials.weight, strict=True)
    return torch.stack([naive.gradient("f1", x, y, w, step) for x, y, w in rows])


@pytest.fixture
def loss(step):
    return MetricLoss("f1", step=step)


def close(given, expected):
    torch.testing.assert_close(given, expected, rtol=1e-9, atol=1e-13)


def test_eager(loss, trials, expected):
    x = trials.logits[0].requires_grad_()
    loss(x, trials.target[0], weight=trials.weight[0]).backward()
    close(x.grad, expected[0])


def test_backward_through_vmap(loss, trials, expected, naive, step):
    x = trials.logits.requires_grad_()
    losses = vmap(loss)(x, trials.target, trials.weight)
    rows = zip(trials.logits, trials.target, trials.weight, strict=True)
    close(losses, torch.stack([naive.loss("f1", *row, step) for row in rows]))
    losses.sum().backward()
    close(x.grad, expected)


def test_vmap_with_one_target_for_all_trials(loss, trials, naive, step):
    x = trials.logits.requires_grad_()
    vmap(loss, in_dims=(0, None))(x, trials.target[1]).sum().backward()
    close(x.grad, torch.stack([naive.gradient("f1", row, trials.target[1], None, step) for row in trials.logits]))


def test_vmap_over_the_last_axis(loss, trials, expected):
    x = trials.logits.T.contiguous().requires_grad_()
    vmap(loss, in_dims=(1, 1, 1))(x, trials.target.T, trials.weight.T).sum().backward()
    close(x.grad, expected.T)


def test_vmap_over_the_last_axis_of_the_counts_themselves(trials, naive, step):
    counts = vmap(lambda *row: soft_counts(*row, step, 0.5), in_dims=1, out_dims=1)(
        trials.logits.T, trials.target.T, trials.weight.T
    )
    close(counts, naive.counts(trials.logits, trials.target, trials.weight, step, 0.5))


def test_vmap_of_targets_alone(loss, trials, naive, step):
    x = trials.logits[0].requires_grad_()
    vmap(loss, in_dims=(None, 0))(x, trials.target).sum().backward()
    close(x.grad, sum(naive.gradient("f1", trials.logits[0], target, None, step) for target in trials.target))


def test_nested_vmap(loss, trials, expected):
    def twice(given):
        return torch.stack([given, given])

    x = twice(trials.logits).requires_grad_()
    vmap(vmap(loss))(x, twice(trials.target), twice(trials.weight)).sum().backward()
    close(x.grad, twice(expected))


def test_func_grad(loss, trials, expected):
    close(grad(loss.eval())(trials.logits[0], trials.target[0], trials.weight[0]), expected[0])


def test_vmap_of_grad(loss, trials, expected):
    close(vmap(grad(loss))(trials.logits, trials.target, trials.weight), expected)


def test_double_backward(loss, trials, naive, step):
    x, y, w = trials.logits[0].requires_grad_(), trials.target[0], trials.weight[0]
    direction = torch.linspace(-1, 1, 17, dtype=torch.float64)

    def second(value):
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad(first @ direction, x)[0]

    close(second(loss.eval()(x, y, weight=w)), second(naive.loss("f1", x, y, w, step)))


def test_gradient_with_create_graph_is_the_same(loss, trials, expected):
    x = trials.logits[0].requires_grad_()
    value = loss.eval()(x, trials.target[0], weight=trials.weight[0])
    (given,) = torch.autograd.grad(value, x, create_graph=True)
    close(given.detach(), expected[0])


def test_hessian_by_two_reverse_passes(loss, trials, naive, step):
    x, y, w = trials.logits[0], trials.target[0], trials.weight[0]
    given = jacrev(jacrev(loss.eval()))(x, y, w)
    close(given, torch.autograd.functional.hessian(lambda x: naive.loss("f1", x, y, w, step), x))


@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian_of_several_thresholds(step, trials, naive, vectorize):
    thresholds = [0.3, 0.5, 0.6]
    x, y = trials.logits[0], trials.target[0]
    losses = [MetricLoss("f1", step=step, threshold=t) for t in thresholds]
    given = torch.autograd.functional.jacobian(
        lambda x: torch.stack([loss(x, y) for loss in losses]), x, vectorize=vectorize
    )
    close(given, torch.stack([naive.gradient("f1", x, y, None, step, t) for t in thresholds]))


def test_cpu_autocast_counts_in_float32(loss, trials, naive, step):
    x = trials.logits[0].float().requires_grad_()
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(layer.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(x.unsqueeze(1))
        value = loss(logits, trials.target[0].float())
    assert logits.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    value.backward()
    rounded = logits.detach().double().squeeze(1)
    assert value.item() == pytest.approx(naive.loss("f1", rounded, trials.target[0], None, step).item(), rel=1e-5)
    expected = naive.gradient("f1", rounded, trials.target[0], None, step)
    torch.testing.assert_close(x.grad.double(), expected, rtol=2e-2, atol=1e-6)


def test_inference_mode_gives_the_value(loss, trials, naive, step):
    with torch.inference_mode():
        value = loss(trials.logits[0], trials.target[0])
    close(value.clone(), naive.loss("f1", trials.logits[0], trials.target[0], None, step))


def test_composed_steps_under_vmap(trials, naive):
    annealed = steps.Annealed(steps.Identity(), steps.Sigmoid(k=20))
    annealed.advance(0.5)
    given = vmap(grad(MetricLoss("f1", step=annealed)))(trials.logits, trials.target)
    rows = zip(trials.logits, trials.target, strict=True)
    close(given, torch.stack([naive.gradient("f1", x, y, None, annealed) for x, y in rows]))

    through = steps.StraightThrough(steps.Linear())
    given = vmap(MetricLoss("f1", step=through))(trials.logits, trials.target)
    rows = zip(trials.logits, trials.target, strict=True)
    close(given, torch.stack([naive.loss("f1", x, y, None, through) for x, y in rows]))


@pytest.mark.parametrize("transform", ["create_graph", "func.grad"])
def test_training_mode_does_not_warn_when_differentiated_twice(batch, transform):
    given, loss = batch(17), MetricLoss("f1")
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        if transform == "create_graph":
            x = given.logits.requires_grad_()
            torch.autograd.grad(loss(x, given.target), x, create_graph=True)
        else:
            grad(loss)(given.logits, given.target)
    finally:
        torch.set_warn_always(before)
