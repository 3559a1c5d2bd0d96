"""Values and gradients under torch's transforms for every task, against plain autograd twins."""

import pytest
import task_twins as twins
import torch
from torch.func import grad, jacrev, vmap

from metricfit import MetricLoss, steps
from metricfit.metrics import confusion_matrix

STEPS = {
    "default": lambda: None,
    "sigmoid": lambda: steps.Sigmoid(k=10),
    "raised_cosine": lambda: steps.RaisedCosine(0.3),
    "annealed": lambda: steps.Annealed(steps.Identity(), steps.Sigmoid(k=20)),
    "through": lambda: steps.StraightThrough(steps.Linear(0.2)),
}
KINDS = {
    "multiclass": ("multiclass", 9, 4, ()),
    "multilabel": ("multilabel", 9, 4, ()),
    "segmentation": ("multiclass", 2, 3, (3, 2)),
    "binary segmentation": ("multilabel", 2, 1, (3, 3)),
}
TRIALS = 3


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=STEPS)
def step(request):
    return STEPS[request.param]()


@pytest.fixture
def trials(kind):
    """Three trials: logits, targets and weights with a leading axis."""
    task, n, c, shape = KINDS[kind]
    each = [twins.make(task, n, c, shape=shape, seed=seed) for seed in range(TRIALS)]
    for one in each:
        true = torch.nn.functional.one_hot(one.target, c).movedim(-1, 1) if task == "multiclass" else one.target
        one.logits += 2 * true
    return tuple(torch.stack([getattr(one, name) for one in each]) for name in ("logits", "target", "weight"))


@pytest.fixture
def loss(kind, step):
    task = "binary" if kind == "binary segmentation" else KINDS[kind][0]
    return MetricLoss("jaccard", step=step, task=task)


@pytest.fixture
def plain(kind, step, twin, naive):
    """The loss of one trial in plain operations."""
    task = KINDS[kind][0]
    step = step or (steps.Identity() if "segmentation" in kind else None)

    def value(x, y, w):
        if kind == "binary segmentation":
            return naive.loss("jaccard", x.reshape(-1), y.reshape(-1).double(), w.reshape(-1), step)
        rows = x.movedim(1, -1).reshape(-1, x.shape[1])
        y = y.reshape(-1) if task == "multiclass" else y.movedim(1, -1).reshape(-1, x.shape[1])
        return twin.loss("jaccard", task, rows, y, w.reshape(-1), step)

    if isinstance(step, steps.StraightThrough) and task == "multilabel":

        def value(x, y, w):
            """Hard counts with the gradient of the inner step's."""
            c = x.shape[1]
            rows = [each.movedim(1, 0).reshape(c, -1) for each in (x, y.double(), w.unsqueeze(1).expand_as(x))]
            soft = naive.counts(*rows, step.step, 0.5)
            hard = naive.counts(*rows, step, 0.5).detach() + (soft - soft.detach())
            return 1 - sum(tp / (tp + fp + fn) for tp, fp, fn, _ in hard.unbind(1)) / c

    return value


@pytest.fixture
def expected(plain, trials):
    values, grads = [], []
    for x, y, w in zip(*trials, strict=True):
        x = x.clone().requires_grad_()
        value = plain(x, y, w)
        values.append(value.detach())
        grads.append(torch.autograd.grad(value, x)[0])
    return torch.stack(values), torch.stack(grads)


def close(given, expected):
    torch.testing.assert_close(given, expected, rtol=1e-8, atol=1e-12)


def test_eager(loss, trials, expected):
    x, y, w = (each[0] for each in trials)
    x = x.clone().requires_grad_()
    value = loss(x, y, weight=w)
    value.backward()
    close(value.detach(), expected[0][0])
    close(x.grad, expected[1][0])


def test_backward_through_vmap(loss, trials, expected):
    x, y, w = trials
    x = x.clone().requires_grad_()
    values = vmap(loss)(x, y, w)
    values.sum().backward()
    close(values.detach(), expected[0])
    close(x.grad, expected[1])


def test_vmap_of_grad(loss, trials, expected):
    close(vmap(grad(loss))(*trials), expected[1])


def test_func_grad(loss, trials, expected):
    close(grad(loss)(*(each[0] for each in trials)), expected[1][0])


def test_vmap_over_another_axis_with_one_target_for_all(loss, trials, plain):
    x, y, w = trials
    moved = x.movedim(0, 1).clone().requires_grad_()
    vmap(lambda z: loss(z, y[1], weight=w[1]), in_dims=1)(moved).sum().backward()
    for i in range(TRIALS):
        z = x[i].clone().requires_grad_()
        close(moved.grad[:, i], torch.autograd.grad(plain(z, y[1], w[1]), z)[0])


def test_vmap_of_targets_alone(loss, trials, plain):
    x, y, w = trials
    given = x[0].clone().requires_grad_()
    vmap(lambda target: loss(given, target, weight=w[0]))(y).sum().backward()
    z = x[0].clone().requires_grad_()
    close(given.grad, torch.autograd.grad(sum(plain(z, target, w[0]) for target in y), z)[0])


def test_double_backward(loss, trials, plain):
    x, y, w = (each[0] for each in trials)
    x = x.clone().requires_grad_()
    direction = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).reshape(x.shape)

    def second(value):
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad((first * direction).sum(), x)[0]

    close(second(loss.eval()(x, y, weight=w)), second(plain(x, y, w)))


def test_hessian_by_two_reverse_passes(kind, trials, plain, loss, step):
    x, y, w = (each[0] for each in trials)
    found = jacrev(jacrev(loss.eval()))(x, y, w)
    close(found, torch.autograd.functional.hessian(lambda z: plain(z, y, w), x))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_cpu_autocast_counts_in_float32(loss, trials, plain, step, half):
    x, y, w = (each[0] for each in trials)
    c = x.shape[1]
    layer = torch.nn.Linear(c, c, bias=False) if x.dim() == 2 else torch.nn.Conv2d(c, c, 1, bias=False)
    torch.nn.init.dirac_(layer.weight) if x.dim() > 2 else torch.nn.init.eye_(layer.weight)
    x = x.float().requires_grad_()
    with torch.autocast("cpu", dtype=half):
        logits = layer(x)
        value = loss(logits, y, weight=w.float())
    assert logits.dtype == half
    assert value.dtype == torch.float32
    value.backward()
    rounded = logits.detach().double().requires_grad_()
    expected = plain(rounded, y, w.float().double())
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    torch.testing.assert_close(x.grad.double(), rounded.grad, rtol=2e-2, atol=1e-5)


def test_cpu_autocast_leaves_the_matrix_exact():
    """bf16 cannot count past 256."""
    given = twins.make("multiclass", 2000, c=3, dtype=torch.float32)
    expected = [confusion_matrix(given.logits, given.target, soft=soft) for soft in (False, True)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [confusion_matrix(given.logits, given.target, soft=soft) for soft in (False, True)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["mcc", "kappa", "accuracy", "balanced_accuracy"])
def test_whole_matrix_metrics_under_vmap_of_grad(name, twin):
    each = [twins.make("multiclass", 9, seed=seed) for seed in range(2)]
    found = vmap(grad(MetricLoss(name)))(
        *(torch.stack([getattr(one, a) for one in each]) for a in ("logits", "target"))
    )
    close(found, torch.stack([twin.gradient(name, "multiclass", one.logits, one.target) for one in each]))


def test_inference_mode_gives_the_value(loss, trials, expected):
    with torch.inference_mode():
        value = loss(*(each[0] for each in trials))
    close(value.clone(), expected[0][0])


def test_left_out_after_vmap_does_not_break():
    each = [twins.make("multiclass", 9, seed=seed) for seed in range(2)]
    loss = MetricLoss("jaccard")
    vmap(loss)(*(torch.stack([getattr(one, a) for one in each]) for a in ("logits", "target")))
    loss.left_out()
    loss(each[0].logits, torch.zeros(9, dtype=torch.long))
    assert loss.left_out() == [1, 2, 3]
