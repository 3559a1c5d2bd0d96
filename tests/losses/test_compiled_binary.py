"""A compiled binary loss: one operation of the graph, with the values and gradients of the eager loss."""

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, RunningCounts, get_metric, steps
from metricfit.losses import compiled_binary

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own

STEPS = [None, steps.Linear(0.3), steps.Sigmoid(k=12), steps.Identity(), steps.RaisedCosine(width=0.25)]


@pytest.fixture(autouse=True)
def no_earlier_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Backend:
    """Runs graphs as they are, and lists what they call."""

    def __init__(self):
        self.called = []

    def __call__(self, graph, _):
        self.called.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return torch._dynamo.lookup_backend("aot_eager")(graph, _)

    @property
    def has_the_operation(self):
        return compiled_binary.loss_of_batch in self.called[-1]


def make_batch(shape=(40,), dtype=torch.float32, weighted=False):
    generator = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(shape, generator=generator)).to(dtype)
    target = (torch.rand(shape, generator=generator) < 0.3).long()
    return logits.requires_grad_(), target, torch.rand(shape, generator=generator) if weighted else None


def compare(loss, compiled, logits, target, weight=None, tolerance=1e-5):
    value = compiled(logits, target, weight)
    expected = loss(logits.double(), target, None if weight is None else weight.double())
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    (gradient,), (wanted,) = (torch.autograd.grad(each, logits) for each in (value, expected))
    torch.testing.assert_close(gradient, wanted, rtol=10 * tolerance, atol=tolerance * wanted.abs().max().item())


@pytest.mark.parametrize("name", ["f1", "mcc", "fbeta(beta=2)", "cost(fp=1, fn=2)"])
@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_it_is_one_operation_with_the_value_and_gradient_of_the_eager_loss(name, step):
    backend = Backend()
    for threshold, weighted, shape in ((None, False, (40,)), (0.3, True, (40, 1)), (0.7, False, (40, 1))):
        loss = MetricLoss(name, step=step, threshold=threshold)
        compiled = torch.compile(loss, fullgraph=True, backend=backend)
        compare(loss, compiled, *make_batch(shape, weighted=weighted))
        assert backend.has_the_operation


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float16, 3e-3), (torch.bfloat16, 2e-2)]
)
def test_other_types(dtype, tolerance):
    loss, backend = MetricLoss("f1"), Backend()
    compare(loss, torch.compile(loss, fullgraph=True, backend=backend), *make_batch(dtype=dtype), tolerance=tolerance)
    assert backend.has_the_operation


def test_autocast_does_not_reach_the_counts():
    loss, model = MetricLoss("f1"), nn.Linear(3, 1)
    x, (_, target, _) = torch.randn(40, 3), make_batch((40, 1))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def both(x, target):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            return logits, loss(logits, target)

    logits, value = both(x, target)
    assert logits.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(loss(logits.double(), target).item(), abs=1e-5)


def test_settings_that_change_after_compiling_are_noticed():
    loss = MetricLoss("f1")
    compiled, batch = torch.compile(loss, backend="aot_eager"), make_batch()
    for name, setting in {
        "threshold": 0.3,
        "step": steps.Sigmoid(k=12),
        "metric": get_metric("fbeta(beta=2)"),
        "memory": RunningCounts(),
    }.items():
        before = compiled(*batch).item()
        setattr(loss, name, setting)
        value = compiled(*batch).item()
        if name == "memory":  # the second of two equal batches, whose counts are remembered
            loss.memory = None
        assert value == pytest.approx(loss(*batch).item(), abs=1e-6), name
        assert value != before or name == "memory"
    loss.step.k = 30
    assert compiled(*batch).item() == pytest.approx(loss(*batch).item(), abs=1e-6)


def test_sizes_that_change_from_call_to_call():
    loss = MetricLoss("f1")
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for n in (12, 13, 40, 1):
        compare(loss, compiled, *make_batch((n,)))


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": [0.3, 0.5]},
        {"threshold": torch.tensor(0.3)},
        {"step": steps.StraightThrough(steps.Linear())},
        {"ignore_index": -1},
        {"zero_division": 1},
        {"average": None},
    ],
    ids=str,
)
def test_other_settings_are_compiled_from_their_parts(settings):
    loss, backend = MetricLoss("f1", **settings), Backend()
    compare(loss, torch.compile(loss, backend=backend), *make_batch())
    assert not backend.has_the_operation


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's, after the compiler has given up
def test_a_formula_of_a_user_is_compiled_from_its_parts():
    loss, backend = MetricLoss("2*tp/(2*tp + fp + fn)"), Backend()
    compare(loss, torch.compile(loss, backend=backend), *make_batch())
    assert not any(compiled_binary.loss_of_batch in called for called in backend.called)


def test_a_subclass_is_compiled_from_its_parts():
    class Doubled(MetricLoss):
        def value(self, statistics):
            return 2 * super().value(statistics)

    loss = Doubled("f1")
    compare(loss, torch.compile(loss, backend="aot_eager"), *make_batch())


def test_weights_and_targets_with_a_gradient_have_it():
    logits, target, weight = make_batch(weighted=True)
    weight, soft = weight.requires_grad_(), (0.8 * target + 0.1).requires_grad_()
    loss = MetricLoss("f1")
    for compiled in (loss, torch.compile(loss, backend="aot_eager")):
        gradients = torch.autograd.grad(compiled(logits, soft, weight), (logits, soft, weight))
        if compiled is loss:
            expected = gradients
    for gradient, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-7)


def test_under_transforms_it_is_plain():
    loss, (logits, target, _) = MetricLoss("f1"), make_batch((3, 40))
    x, y = logits.detach(), target

    def gradients(x, y):
        return torch.vmap(torch.func.grad(loss))(x, y)

    compiled = torch.compile(gradients, backend="aot_eager")(x, y)
    rows = [torch.autograd.grad(loss(row, labels), row)[0] for row, labels in zip(logits, y, strict=True)]
    torch.testing.assert_close(compiled, torch.stack(rows), rtol=1e-4, atol=1e-6)
