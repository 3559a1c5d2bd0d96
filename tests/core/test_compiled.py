"""Gradients under torch.compile, in value: a custom backward can get lost there without a word."""

import pytest
import torch
from torch.func import grad, vmap

from metricfit import MetricLoss, metrics, steps

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own

STEP = steps.Sigmoid(k=10)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def trials(batch):
    return batch(13, rows=3, dtype=torch.float32)


@pytest.fixture
def expected(trials, naive):
    rows = zip(trials.logits, trials.target, trials.weight, strict=True)
    return torch.stack([naive.gradient("f1", x, y, w, STEP) for x, y, w in rows])


def compiled(function, backend="aot_eager"):
    return torch.compile(function, fullgraph=True, backend=backend)


def close(given, expected):
    torch.testing.assert_close(given.double(), expected, rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_compiled_loss(trials, expected, naive, backend):
    x = trials.logits[0].requires_grad_()
    value = compiled(MetricLoss("f1", step=STEP), backend)(x, trials.target[0], trials.weight[0])
    rows = (given[0].detach().double() for given in (trials.logits, trials.target, trials.weight))
    close(value.detach(), naive.loss("f1", *rows, STEP))
    value.backward()
    close(x.grad, expected[0])


def test_compiled_vmap(trials, expected):
    x = trials.logits.requires_grad_()
    compiled(vmap(MetricLoss("f1", step=STEP)), "inductor")(x, trials.target, trials.weight).sum().backward()
    close(x.grad, expected)


def test_compiled_grad(trials, expected):
    given = compiled(grad(MetricLoss("f1", step=STEP)))(trials.logits[0], trials.target[0], trials.weight[0])
    close(given, expected[0])


def test_compiled_vmap_of_grad(trials, expected):
    close(compiled(vmap(grad(MetricLoss("f1", step=STEP))))(trials.logits, trials.target, trials.weight), expected)


def test_compiled_vmap_of_second_derivatives(trials, naive):
    direction, loss = torch.linspace(-1, 1, 13), MetricLoss("f1", step=STEP)

    def along(x, y, w):
        return grad(loss)(x, y, w) @ direction

    given = compiled(vmap(grad(along)))(trials.logits, trials.target, trials.weight)
    for row, x, y, w in zip(given, trials.logits, trials.target, trials.weight, strict=True):
        x = x.double().requires_grad_()
        twin = naive.loss("f1", x, y.double(), w.double(), STEP)
        (first,) = torch.autograd.grad(twin, x, create_graph=True)
        torch.testing.assert_close(
            row.double(), torch.autograd.grad(first @ direction.double(), x)[0], rtol=1e-3, atol=1e-5
        )


def test_compiled_model_and_loss_together(batch, naive):
    given = batch(13, dtype=torch.float32)
    layer = torch.nn.Linear(1, 1)
    loss = MetricLoss("mcc", step=steps.Linear(), threshold=[0.3, 0.6])
    value = compiled(lambda x, y: loss(layer(x), y))(given.logits.unsqueeze(1), given.target)
    value.backward()
    w, b = (each.detach().double().requires_grad_() for each in layer.parameters())
    logits = (given.logits.double().unsqueeze(1) @ w.T + b).squeeze(1)
    y = given.target.double()
    twin = sum(naive.loss("mcc", logits, y, None, steps.Linear(), t) for t in (0.3, 0.6)) / 2
    close(value.detach(), twin.detach())
    for each, twins in zip(layer.parameters(), torch.autograd.grad(twin, (w, b)), strict=True):
        close(each.grad, twins)


def test_compiled_straight_through_and_annealed(batch, naive):
    given = batch(13, dtype=torch.float32)
    step = steps.Annealed(steps.StraightThrough(steps.Identity()), steps.Sigmoid(k=10))
    run = compiled(MetricLoss("recall", step=step))
    for fraction in (0.25, 0.75):
        step.advance(fraction)
        x = given.logits.clone().requires_grad_()
        value = run(x, given.target)
        value.backward()
        double = given.logits.double(), given.target.double()
        close(value.detach(), naive.loss("recall", *double, None, step))
        inner = [naive.gradient("recall", *double, None, each) for each in (steps.Identity(), steps.Sigmoid(k=10))]
        close(x.grad, (1 - fraction) * inner[0] + fraction * inner[1])


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("name", ["f1", "mcc", "gmean", "cost(fp=1, fn=3)"])
def test_a_compiled_formula_has_the_eager_value_and_gradient(name, task):
    generator = torch.Generator().manual_seed(0)
    shape = (40,) if task == "binary" else (40, 3)
    x = torch.randn(shape, generator=generator)
    y = torch.randint(3, (40,), generator=generator) if task == "multiclass" else (x > 0.5).long()
    loss, results = MetricLoss(name, task=task), []
    for function in (loss, compiled(loss)):
        leaf = x.clone().requires_grad_()
        value = function(leaf, y)
        results.append((value.detach(), torch.autograd.grad(3.0 * value, leaf)[0]))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 1), (4, 3)])
def test_the_operator_of_formulas_is_as_torch_wants_it(shape):
    counts = (10 * torch.rand(shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    torch.library.opcheck(torch.ops.metricfit.loss_of_counts.default, (counts, "f1", "macro", True))


@pytest.mark.parametrize("label", [0, 1])
def test_a_compiled_formula_of_one_class_is_finite(label):
    x = torch.full((6,), -90.0, requires_grad=True)
    value = compiled(MetricLoss("mcc"))(x, torch.full((6,), label))
    (gradient,) = torch.autograd.grad(value, x)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_a_metric_that_is_set_later_is_the_compiled_one():
    loss = MetricLoss("f1")
    loss.metric = metrics.recall
    x, y = torch.randn(8), torch.arange(8) % 2
    torch.testing.assert_close(compiled(loss)(x, y), MetricLoss("recall")(x, y))
