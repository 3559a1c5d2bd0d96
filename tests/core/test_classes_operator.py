"""The operators that torch.compile calls for exclusive classes; here with the CPU's blocks in the place of Triton."""

import pytest
import torch
from torch.func import grad, vmap

from metricfit import MetricLoss
from metricfit.core.kernels import classes

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own

SETTINGS = ("linear", 0.2, None, -2, [-3, -1])


@pytest.fixture
def pixels():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 4, 5, generator=generator)
    return x.requires_grad_(), torch.randint(3, (2, 4, 5), generator=generator)


@pytest.fixture
def also_on_cpu(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(classes, "handles_compiled", lambda *_: not classes.traces_transform())
    yield
    torch._dynamo.reset()


def test_operators_keep_what_they_promise(pixels):
    x, y = pixels[0].detach().flatten(2), pixels[1].flatten(1)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    counts = torch.ops.metricfit.class_counts.default
    torch.library.opcheck(counts, (x.requires_grad_(), y, None, *SETTINGS), test_utils=checks)
    per_image = ("linear", 0.2, None, -2, [-1])
    torch.library.opcheck(counts, (x, y, torch.rand(y.shape), *per_image), test_utils=checks)
    gradient = torch.ops.metricfit.class_gradient.default
    torch.library.opcheck(gradient, (x.detach(), y, None, torch.randn(4, 3), *SETTINGS), test_utils=checks[:2])


@pytest.mark.parametrize("settings", [{}, {"per_image": True}], ids=["batch", "images"])
def test_compiled_values_and_gradients_are_the_eager_ones(settings, pixels, also_on_cpu, monkeypatch):
    calls, operator = [], classes.compiled_counts
    monkeypatch.setattr(classes, "compiled_counts", lambda *args: calls.append(1) or operator(*args))
    x, y = pixels
    loss = MetricLoss("f1", **settings)
    expected = loss(x, y)
    (wanted,) = torch.autograd.grad(expected, x)
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(x, y)
    assert calls
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, x)[0], wanted)


def test_transforms_within_a_compiled_function_get_plain_operations(also_on_cpu):
    x, y, loss = torch.randn(2, 9, 4), torch.randint(4, (2, 9)), MetricLoss("f1")
    given = torch.compile(vmap(grad(loss)), fullgraph=True, backend="aot_eager")(x, y)
    for row in range(2):
        torch.testing.assert_close(given[row], grad(loss)(x[row], y[row]))
