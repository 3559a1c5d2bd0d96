"""The Triton kernels against the plain formulas in float64, on a CUDA device."""

import pytest
import torch
from torch.func import grad, vmap

from metricfit import Counts, MetricLoss, steps
from metricfit.core.kernels import binary

triton_kernel = pytest.importorskip("metricfit.core.kernels.triton.binary")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STEPS = [steps.Linear(0.1), steps.Sigmoid(k=12), steps.Identity(), steps.RaisedCosine(width=0.25)]
SIZES = [1, 5, 1023, triton_kernel.PART - 1, triton_kernel.PART, triton_kernel.PART + 1, 10_007]
UPSTREAM = torch.tensor([1.3, -0.4, 0.0, 0.0])  # the gradient of the counts

every_kind = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.kind)
either_weight = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


@pytest.fixture
def cuda_batch(batch):
    return lambda n, **settings: batch(n, device="cuda", **({"dtype": torch.float32} | settings))


def weight_of(given, weighted):
    return given.weight if weighted else None


def doubled(*tensors):
    return [None if given is None else given.detach().double() for given in tensors]


def close(given, expected, rtol=2e-4):
    scale = expected.abs().max().item() if expected.numel() else 0.0
    spacing = torch.finfo(given.dtype).smallest_normal * torch.finfo(given.dtype).eps  # of the smallest numbers
    torch.testing.assert_close(given.double(), expected, rtol=rtol, atol=rtol * 1e-2 * scale + spacing + 1e-12)


@every_kind
@either_weight
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft targets"])
def test_counts(step, weighted, soft, cuda_batch, naive):
    for n in SIZES:
        for t in (0.2, 0.5, 0.7):
            given = cuda_batch(n, seed=n, soft=soft)
            weight = weight_of(given, weighted)
            assert binary.takes_triton(given.logits)
            counts = triton_kernel.counts(given.logits, given.target, weight, step.kind, step.number, t)
            close(counts, naive.counts(*doubled(given.logits, given.target, weight), step, t), rtol=1e-5)


@every_kind
@either_weight
def test_gradient_of_given_masses(step, weighted, cuda_batch, naive):
    for n in SIZES:
        for t in (0.2, 0.5, 0.7):
            given = cuda_batch(n, seed=n, soft=True)
            weight = weight_of(given, weighted)
            result = triton_kernel.gradient(
                given.logits, given.target, weight, UPSTREAM.cuda(), step.kind, step.number, t
            )
            x, y, w = doubled(given.logits, given.target, weight)
            x.requires_grad_()
            tp, fp, _, _ = naive.counts(x, y, w, step, t)
            close(result, torch.autograd.grad(1.3 * tp - 0.4 * fp, x)[0])


@every_kind
@either_weight
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_loss_and_its_gradient(step, weighted, dtype, cuda_batch, naive):
    for n in (5, 10_007):
        given = cuda_batch(n, dtype=dtype)
        weight = weight_of(given, weighted)
        x = given.logits.requires_grad_()
        value = MetricLoss("f1", step=step)(x, given.target, weight=weight)
        value.backward()
        assert x.grad.dtype == dtype
        twin = doubled(given.logits, given.target, weight)
        close(value.detach(), naive.loss("f1", *twin, step), rtol=1e-5)
        expected = naive.gradient("f1", *twin, step).to(dtype).double()
        close(x.grad, expected, rtol={torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 2e-4))


TYPES = [
    (torch.float32, torch.uint8, False),
    (torch.float32, torch.float16, True),
    (torch.bfloat16, torch.uint8, False),
    (torch.bfloat16, torch.bool, True),
    (torch.float16, torch.int64, False),
]


@pytest.mark.parametrize(("dtype", "target", "weighted"), TYPES, ids=str)
def test_logits_and_targets_are_read_in_their_own_types(dtype, target, weighted, cuda_batch, naive):
    step = steps.Linear(0.1)
    for n in (1, 10_007):
        given = cuda_batch(n)
        x, y, weight = given.logits.to(dtype), given.target.to(target), weight_of(given, weighted)
        assert binary.takes_triton(x)
        counts = triton_kernel.counts(x, y, weight, step.kind, step.number, 0.4)
        result = triton_kernel.gradient(x, y, weight, UPSTREAM.cuda(), step.kind, step.number, 0.4)
        x64, y64, w64 = doubled(x, y, weight)
        expected = naive.counts(x64.requires_grad_(), y64, w64, step, 0.4)
        close(counts, expected.detach(), rtol=1e-5)
        assert result.dtype == dtype
        (wanted,) = torch.autograd.grad(1.3 * expected[0] - 0.4 * expected[1], x64)
        close(result, wanted, rtol={torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 2e-4))


@every_kind
@either_weight
def test_rows_of_a_vmapped_axis(step, weighted, cuda_batch, naive):
    for n in (5, triton_kernel.PART + 1):
        given = cuda_batch(n, rows=3)
        x = given.logits.requires_grad_()
        loss = MetricLoss("f1", step=step)
        inputs = (x, given.target, given.weight) if weighted else (x, given.target)
        vmap(loss)(*inputs).sum().backward()
        mapped = vmap(grad(loss))(*(each.detach() for each in inputs))
        for row in range(3):
            weight = given.weight[row] if weighted else None
            expected = naive.gradient("f1", given.logits[row], given.target[row], weight, step)
            close(x.grad[row], expected)
            close(mapped[row], expected)


@every_kind
def test_one_target_for_all_rows(step, cuda_batch, naive):
    given = cuda_batch(1000, rows=3)
    x = given.logits.requires_grad_()
    vmap(MetricLoss("f1", step=step), in_dims=(0, None))(x, given.target[0]).sum().backward()
    for row in range(3):
        close(x.grad[row], naive.gradient("f1", given.logits[row], given.target[0], None, step))


@every_kind
def test_logits_that_are_not_dense(step, cuda_batch, naive):
    given = cuda_batch(3000)
    x = given.logits[::3].requires_grad_()
    (result,) = torch.autograd.grad(MetricLoss("f1", step=step)(x, given.target[::3]), x)
    close(result, naive.gradient("f1", given.logits[::3], given.target[::3], None, step))


@every_kind
def test_several_backward_passes_at_once(step, cuda_batch, naive):
    given = cuda_batch(50)
    losses = [MetricLoss("f1", step=step, threshold=t) for t in (0.3, 0.5)]
    jacobian = torch.autograd.functional.jacobian(
        lambda x: torch.stack([loss(x, given.target) for loss in losses]), given.logits, vectorize=True
    )
    for row, t in zip(jacobian, (0.3, 0.5), strict=True):
        close(row, naive.gradient("f1", given.logits, given.target, None, step, t))


@every_kind
def test_double_backward(step, cuda_batch, naive):
    given = cuda_batch(50)
    direction = torch.linspace(-1, 1, 50, device="cuda", dtype=torch.float64)

    def second(value, x):
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad(first.double() @ direction, x)[0]

    x = given.logits.requires_grad_()
    twin = given.logits.detach().double().requires_grad_()
    expected = second(naive.loss("f1", twin, given.target.double(), None, step), twin)
    close(second(MetricLoss("f1", step=step)(x, given.target), x), expected, rtol=1e-3)


@every_kind
def test_class_totals_with_a_million_samples(step, cuda_batch):
    given = cuda_batch(2**20 + 3)
    given.logits[::5] *= 20
    counts = Counts.soft(given.logits, given.target, step=step, weight=given.weight)
    positives = (given.weight.double() * given.target.double()).sum().item()
    assert counts.positives.item() == pytest.approx(positives, rel=1e-6)
    assert counts.n.item() == pytest.approx(given.weight.double().sum().item(), rel=1e-6)


@pytest.mark.parametrize("metric", ["f1", "precision", "mcc", "gmean"])
@every_kind
def test_extreme_logits_stay_finite(metric, step):
    for sign in (-1, 1):
        x = torch.tensor([1e4, -1e4, 90.0, -90.0, 30.0, 0.0], device="cuda").mul(sign).requires_grad_()
        value = MetricLoss(metric, step=step)(x, torch.tensor([1, 0, 0, 1, 0, 1], device="cuda"))
        value.backward()
        assert value.isfinite()
        assert x.grad.isfinite().all()


def test_an_empty_batch():
    x = torch.empty(0, device="cuda", requires_grad=True)
    value = MetricLoss("f1")(x, torch.empty(0, device="cuda"))
    value.backward()
    assert value.item() == 1
    assert x.grad.shape == (0,)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled(cuda_batch, naive):
    given, step = cuda_batch(10_007), steps.Sigmoid(k=12)
    x = given.logits.requires_grad_()
    torch._dynamo.reset()
    torch.compile(MetricLoss("f1", step=step), fullgraph=True)(x, given.target, given.weight).backward()
    close(x.grad, naive.gradient("f1", given.logits, given.target, given.weight, step))


def test_steep_sigmoid_keeps_its_gradient_in_float32(naive):
    x = torch.logit(torch.tensor([0.9, 0.9], device="cuda")).requires_grad_()
    MetricLoss("f1", step=steps.Sigmoid(k=73))(x, torch.tensor([1, 0], device="cuda")).backward()
    p = torch.sigmoid(x.detach().double())
    tail = 73 * torch.exp(-73 * (p - 0.5)) * p * (1 - p)  # h'(p) p (1-p) where h is within 1e-12 of 1
    close(x.grad, tail * torch.tensor([-4 / 9, 2 / 9], device="cuda", dtype=torch.float64))


EXTREME = [1e-300, 1e-40, 1e-20, 1e-8, 1e-5, 0.5, 1 - 1e-5, 1 - 1e-8, 1 - 2**-53]


@pytest.mark.parametrize("step", [*STEPS, steps.Linear(0.4)], ids=repr)
@either_weight
def test_counts_at_extreme_thresholds_stay_in_their_range_and_add_up(step, weighted):
    values = torch.cat([torch.linspace(-40, 40, 8001), torch.tensor([-1e4, -100.0, 100.0, 1e4])]).cuda()
    x, n = values.repeat(2), len(values)
    y = (torch.arange(2 * n, device="cuda") < n).float()
    w = torch.full_like(x, 0.5) if weighted else None
    upstream = torch.tensor([1.0, -1.0, 0.0, 0.0], device="cuda")
    for t in EXTREME:
        counts = triton_kernel.counts(x, y, w, step.kind, step.number, t)
        total = n / 2 if weighted else n
        tp, fp, fn, tn = counts.tolist()
        assert 0 <= min(tp, fp, fn, tn) <= max(tp, fp, fn, tn) <= total, t
        assert tp + fn == pytest.approx(total, rel=1e-6), t
        assert fp + tn == pytest.approx(total, rel=1e-6), t
        assert triton_kernel.gradient(x, y, w, upstream, step.kind, step.number, t).isfinite().all(), t


@pytest.mark.parametrize("t", [1e-8, 1e-5, 0.03, 0.97, 1 - 1e-5, 1 - 1e-8])
@pytest.mark.parametrize("delta", [0.1, 0.4])
def test_linear_near_0_and_1_is_that_of_the_cpu_in_float64(t, delta):
    x = torch.linspace(-30, 30, 2407, device="cuda")
    y = (torch.arange(len(x), device="cuda") % 3 == 0).float()
    counts = triton_kernel.counts(x, y, None, "linear", delta, t)
    wide = x.double().cpu().requires_grad_()
    expected = Counts.soft(wide, y.cpu(), step=steps.Linear(delta), threshold=t)
    close(counts.cpu(), torch.stack(tuple(expected)).detach().squeeze(-1), rtol=1e-5)
    result = triton_kernel.gradient(x, y, None, UPSTREAM.cuda(), "linear", delta, t)
    (wanted,) = torch.autograd.grad((1.3 * expected.tp - 0.4 * expected.fp).sum(), wide)
    close(result.cpu(), wanted)


@pytest.mark.parametrize("metric", ["precision", "markedness", "fowlkes_mallows", "f1", "mcc"])
@pytest.mark.parametrize("gap", [93, 100, 106])
def test_gradients_are_finite_if_a_class_is_hardly_ever_predicted(metric, gap):
    x = torch.tensor([[gap, 0.0, 0.0]] * 3 + [[0.0, 3.0, gap]], device="cuda", requires_grad=True)
    value = MetricLoss(metric)(x, torch.tensor([0, 0, 1, 2], device="cuda"))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
