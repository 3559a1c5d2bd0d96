"""The operator that torch.compile calls for a loss of exclusive classes; here with a stand-in for Triton on the CPU."""

import sys
from pathlib import Path

import pytest
import torch

from metricfit import MetricLoss, get_metric
from metricfit.core.class_loss import ClassSettings
from metricfit.core.kernels import classes_triton
from metricfit.losses import compiled_classes

sys.path.insert(0, str(Path(__file__).parent.parent / "core"))
import triton_stand_in

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own

MODULES = "triton_source", "classes_triton_source", "classes_triton_large"
ARGUMENTS = ("f1", "macro", "linear", 0.2, None, -1)


@pytest.fixture
def also_on_cpu(monkeypatch):
    torch._dynamo.reset()
    torch.compile(torch.neg, backend="aot_eager")(torch.ones(1))  # the compiler must not import the stand-in
    triton_stand_in.install(monkeypatch, *MODULES)
    monkeypatch.setattr(classes_triton, "handles", lambda logits: logits.dtype == torch.float32)
    compiled_classes._program.cache_clear()
    yield
    compiled_classes._program.cache_clear()
    triton_stand_in.remove(*MODULES)
    torch._dynamo.reset()


def samples(weighted=False):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 5, generator=generator), torch.randint(5, (12,), generator=generator)
    return x.requires_grad_(), y, torch.rand(12, generator=generator) if weighted else None


def compiled(name, average="macro", **settings):
    metric, how = get_metric(name), ClassSettings(**dict.fromkeys(ClassSettings._fields) | settings)

    def loss(x, y, w):
        value = compiled_classes.evaluate_compiled(metric, average, x, y, w, how)
        return x.sum() * torch.nan if value is None else 3 * value

    return torch.compile(loss, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("name", ["f1", "mcc", "fbeta(beta=2)", "cost(fp=1, fn=2)", "2*tp/(2*tp + fp + fn)"])
def test_values_and_gradients_are_those_of_plain_operations(name, also_on_cpu):
    for weighted, settings in ((False, {}), (True, {"ignore_index": 2})):
        x, y, w = samples(weighted)
        value = compiled(name, **settings)(x, y, w)
        expected = 3 * MetricLoss(name, **settings)(x.double(), y, None if w is None else w.double())
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
        (gradient,), (wanted,) = (torch.autograd.grad(loss, x) for loss in (value, expected))
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_sizes_that_change_from_call_to_call(also_on_cpu):
    """The compiler then makes a graph for sizes that it does not know."""
    loss, generator = compiled("f1"), torch.Generator().manual_seed(0)
    for n, classes in ((12, 70), (13, 70), (40, 70), (9, 5), (9, 6), (9, 71)):
        x = torch.randn(n, classes, generator=generator).requires_grad_()
        y = torch.randint(classes, (n,), generator=generator)
        value, expected = loss(x, y, None), 3 * MetricLoss("f1")(x.double(), y)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-6)
        (gradient,), (wanted,) = (torch.autograd.grad(result, x) for result in (value, expected))
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_operators_keep_what_they_promise(also_on_cpu):
    x, y, _ = samples()
    checks = ("test_schema", "test_faketensor")
    operator = torch.ops.metricfit.class_loss_forward.default
    torch.library.opcheck(operator, (x.detach(), y, None, *ARGUMENTS), test_utils=checks)
    batch = x.detach(), y, None, torch.randn(4, 5), torch.empty(0), torch.tensor(2.0)
    operator = torch.ops.metricfit.class_loss_gradient.default
    torch.library.opcheck(operator, (*batch, *ARGUMENTS[2:]), test_utils=checks)


def test_other_batches_are_left_to_plain_operations(also_on_cpu):
    x, y, w = samples()
    assert compiled("f1", task="multilabel")(x, y, w).isnan()
    assert compiled("f1", threshold=(0.3, 0.5))(x, y, w).isnan()
    assert compiled("fbeta(beta=[1, 1, 2, 2, 5])")(x, y, w).isnan()
    assert compiled("f1[4]")(x, y, w).isnan()
    assert compiled("f1")(x, torch.eye(5)[y], w).isnan()
    assert compiled("f1")(x.detach(), y, torch.ones(12, requires_grad=True)).isnan()
