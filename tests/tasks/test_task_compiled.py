"""Values and gradients under torch.compile for every task: a custom backward can get lost there without a word."""

import pytest
import task_twins as twins
import torch
from torch.func import grad, vmap

from metricfit import MetricLoss, steps

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, backend="aot_eager"):
    return torch.compile(function, fullgraph=True, backend=backend)


def flat(x):
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def check(function, task, given, twin, step=None, name="f1"):
    x = given.logits.clone().requires_grad_()
    value = function(x, given.target, given.weight.float())
    value.backward()
    rows = given.target.reshape(-1) if task == "multiclass" else flat(given.target)
    if given.logits.dim() > 2:
        step = step or steps.Identity()
    rest = rows, given.weight.float().double().reshape(-1), step
    expected = twin.loss(name, task, flat(given.logits.double()), *rest)
    assert value.item() == pytest.approx(expected.item(), rel=1e-4)
    gradient = twin.gradient(name, task, flat(given.logits), *rest)
    torch.testing.assert_close(flat(x.grad).double(), gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "shape", "step"),
    [
        ("multiclass", (), steps.Sigmoid(k=10)),
        ("multiclass", (3, 4), None),
        ("multilabel", (), None),
        ("multilabel", (3, 4), steps.Sigmoid(k=10)),
    ],
)
def test_every_task(task, shape, step, twin):
    given = twins.make(task, 9 if not shape else 2, shape=shape, dtype=torch.float32)
    check(compiled(MetricLoss("f1", step=step, task=task)), task, given, twin, step)


def test_multiclass_by_inductor(twin):
    given = twins.make("multiclass", 9, dtype=torch.float32)
    check(compiled(MetricLoss("f1"), "inductor"), "multiclass", given, twin)


@pytest.mark.parametrize("name", ["mcc", "balanced_accuracy"])
def test_whole_matrix_metrics(name, twin):
    given = twins.make("multiclass", 9, dtype=torch.float32)
    check(compiled(MetricLoss(name)), "multiclass", given, twin, name=name)


def test_compiled_vmap_and_vmap_of_grad(twin):
    task = "multiclass"
    each = [twins.make(task, 9, seed=seed, dtype=torch.float32) for seed in range(2)]
    x, y = (torch.stack([getattr(one, name) for one in each]) for name in ("logits", "target"))
    expected = torch.stack([twin.gradient("f1", task, one.logits, one.target) for one in each])
    loss = MetricLoss("f1", task=task)
    z = x.clone().requires_grad_()
    compiled(vmap(loss))(z, y).sum().backward()
    torch.testing.assert_close(z.grad.double(), expected, rtol=1e-3, atol=1e-6)
    found = compiled(vmap(grad(loss)))(x, y)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)


def test_ignored_pixels_per_image_and_straight_through():
    given = twins.make("multiclass", 3, c=3, shape=(4, 4), dtype=torch.float32)
    target = given.target.clone()
    target[0, 0] = 255
    loss = MetricLoss("f1", ignore_index=255, per_image=True, step=steps.StraightThrough(steps.Linear(0.2)))
    x, y = (given.logits.clone().requires_grad_() for _ in range(2))
    value, expected = compiled(loss)(x, target), loss(y, target)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-6)
