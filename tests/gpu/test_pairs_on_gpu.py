"""Sums over pairs on a CUDA device: against all pairs, against the CPU, and in at most 100 bytes per sample."""

import importlib

import pytest
import torch
from torch.func import grad, vmap
from waiting import forbid_waiting

from metricfit import RankingConstraint
from metricfit.core.kernels import pairs
from metricfit.losses import AveragePrecisionLoss, MBAUCLoss, PairHingeLoss, PairSquareLoss, WMWLoss
from metricfit.losses.ranking import PartialAUCLoss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LOSSES = [
    PairHingeLoss(power=1),
    PairHingeLoss(),
    WMWLoss(),
    PairSquareLoss(),
    MBAUCLoss(),
    PartialAUCLoss(0.9, 0.5),
    AveragePrecisionLoss(),
]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
MILLION = 10**6
TYPES_AND_POWERS = [(torch.float32, 1), (torch.float32, 2), (torch.float32, 3), (torch.float64, 2)]
types_and_powers = pytest.mark.parametrize(("dtype", "power"), TYPES_AND_POWERS, ids=str)


@pytest.fixture
def programs():
    """The module of Triton's programs, which is imported only where there is Triton."""
    return importlib.import_module("metricfit.core.kernels.triton.pairs")


def samples(n, device="cuda", dtype=torch.float32, seed=0):
    """Scores, labels of which a tenth is positive, and weights."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) < 0.1).long()
    x, w = torch.randn(n, generator=generator, dtype=torch.float64) + y, torch.rand(n, generator=generator)
    return x.to(device, dtype), y.to(device), w.to(device, torch.promote_types(dtype, torch.float32))


def value_and_gradient(loss, x, y, w):
    x = x.detach().requires_grad_()
    value = loss(x, y, w)
    return value.detach(), torch.autograd.grad(value, x)[0]


@types_and_powers
@pytest.mark.parametrize("kind", ["normal", "ties", "far from 0", "outliers", "no margin"])
def test_programs_are_the_plain_operations_in_float64(programs, kind, dtype, power, monkeypatch):
    """Each sum and each gradient to 1e-5 of itself, or 1e-11 in float64, in rows of one block and of several."""
    monkeypatch.setattr(programs, "PARTS", 16)  # then the longest row has parts of four blocks
    margin = 0.0 if kind == "no margin" else 0.7
    loose = 1e-5 if dtype == torch.float32 else 1e-11
    for rows, n in [(1, 1), (3, 5), (2, programs.BLOCK), (1, programs.BLOCK + 1), (2, 3001), (1, 70_001)]:
        x, _, w = (given.reshape(rows, n) for given in samples(rows * n, dtype=dtype, seed=n))
        if kind == "outliers":
            x[:, : n // 3 : 7] *= 1e6
        x = {"ties": x.mul(4).round() / 4, "far from 0": x + 1000}.get(kind, x)
        upstream = torch.rand_like(x)
        assert pairs._takes_triton(x)
        sums, *rest = programs.sums(x, w, margin, power)
        gradient = programs.gradient(upstream, *rest, margin, power)
        leaf, weight = x.double().requires_grad_(), w.double()
        expected = pairs.violations(leaf, weight, margin, power)
        torch.testing.assert_close(sums.double(), expected.detach(), rtol=loose, atol=0)
        (of_score,) = torch.autograd.grad(expected, leaf, upstream.double())
        # A gradient is a difference of two such sums.
        of_query = upstream.double() * pairs.violations(x.double(), weight, margin, power - 1)
        assert ((gradient.double() - of_score).abs() <= loose * (of_score.abs() + 2 * power * of_query)).all()


@types_and_powers
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most_pairs", [0, 10**9], ids=["sorted", "direct"])
def test_means_and_their_gradients(programs, most_pairs, weighted, dtype, power, monkeypatch):
    monkeypatch.setattr(programs, "_most_pairs", lambda _: most_pairs)
    for rows, n in [(1, 1), (3, 5), (2, programs.FEW_POINTS), (1, 4001), (20, 700)]:
        x, y, w = (given.reshape(rows, n) for given in samples(rows * n, dtype=dtype, seed=n))
        positive, negative = (w * y, w * (1 - y)) if weighted else (y.to(dtype), None)
        leaf = x.double().requires_grad_()
        expected = pairs._plain_means(
            leaf, positive.double(), None if negative is None else negative.double(), 0.7, power
        )
        (gradient,) = torch.autograd.grad(expected.sum(), leaf)
        loose = 5e-6 if dtype == torch.float32 else 1e-11
        found = programs.means(x, positive, negative, 0.7, power)
        torch.testing.assert_close(found[0].double(), expected.detach(), rtol=loose, atol=0)
        largest = gradient.abs().max().item()
        torch.testing.assert_close(found[1].double(), gradient, rtol=loose, atol=loose * largest)


@pytest.mark.parametrize("n", [300, 30_000])
@pytest.mark.parametrize("target", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_labels_of_any_type(target, n):
    x, y, _ = samples(n)
    for loss in (PairHingeLoss(), WMWLoss()):
        found = value_and_gradient(loss, x, y.to(target), None)
        torch.testing.assert_close(found, value_and_gradient(loss, x, y, torch.ones_like(x)), rtol=1e-5, atol=1e-9)


def test_losses_of_few_and_many_pairs_do_not_wait_for_the_device():
    for n in (1000, 30_000):
        x, y, _ = samples(n)
        x.requires_grad_()
        value_and_gradient(PairHingeLoss(), x, y, None)
        with forbid_waiting():
            value_and_gradient(PairHingeLoss(), x, y, None)


def test_gradients_of_second_order_and_of_weights():
    x, _, w = samples(30, dtype=torch.float64)
    leaves = x.requires_grad_(), w.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda *given: pairs.violations(*given, 0.7, 2), leaves)
    assert torch.autograd.gradgradcheck(lambda *given: pairs.violations(*given, 0.7, 2), leaves)
    y = (torch.arange(30, device="cuda") % 3 == 0).long()
    assert torch.autograd.gradgradcheck(lambda x: PairHingeLoss()(x, y), leaves[:1])


@pytest.mark.parametrize("per", ["positive", "negative", "pair"])
def test_ranking_constraint_is_that_of_the_cpu(per):
    x, y, _ = samples(5000)
    results = []
    for device in ("cuda", "cpu"):
        constraint = RankingConstraint(per=per, size=5000).to(device)
        leaf = x.to(device).requires_grad_()
        value = constraint(leaf, y.to(device), torch.tensor(0.3, device=device))
        results.append((value.detach().cpu(), torch.autograd.grad(value, leaf)[0].cpu()))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1000.0], ids=["near 0", "far from 0"])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_million_samples_in_float32(power, shift):
    """Each sum and each gradient to 1e-5 of itself."""
    score, _, weight = samples(MILLION)
    score = score + shift
    queries, points = score.clone().requires_grad_(), (score + 0.5).requires_grad_()
    upstream = torch.rand(MILLION, device="cuda")
    found = pairs.hinge_sums(queries, points, weight, power)
    of_queries, of_points = torch.autograd.grad(found, (queries, points), upstream)
    x, y, w, g = (given.detach().double() for given in (queries, points, weight, upstream))
    at = torch.cat([score.topk(10).indices, (-score).topk(10).indices, torch.arange(0, MILLION, 20_000).cuda()])
    above, below = (y[None] - x[at][:, None]).clamp(min=0), (y[at][:, None] - x[None]).clamp(min=0)
    expected = {
        found: above**power @ w,
        of_queries: -power * g[at] * ((above ** (power - 1) * (above > 0)) @ w),
        of_points: power * w[at] * ((below ** (power - 1) * (below > 0)) @ g),
    }
    for ours, theirs in expected.items():
        torch.testing.assert_close(ours[at].double(), theirs, rtol=1e-5, atol=0)


@every_loss
@pytest.mark.parametrize("n", [50, 30_000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_losses_are_those_of_the_cpu(loss, n, dtype):
    x, y, w = samples(n, dtype=dtype)
    value, gradient = value_and_gradient(loss, x, y, w)
    on_cpu = value_and_gradient(loss, x.cpu().double(), y.cpu(), w.cpu().double())
    assert value.item() == pytest.approx(on_cpu[0].item(), rel=1e-10 if dtype == torch.float64 else 1e-4)
    assert gradient.dtype == dtype
    loose = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 1e-2, torch.float16: 1e-2}[dtype]
    smallest = torch.finfo(dtype).tiny if dtype == torch.float16 else 0.0  # float16 has nothing between it and 0
    scale = on_cpu[1].abs().max().item()
    torch.testing.assert_close(gradient.cpu().double(), on_cpu[1], rtol=loose, atol=loose * scale + smallest)


@every_loss
def test_rows_of_a_population(loss):
    x, y, _ = (given.reshape(4, 1000) for given in samples(4000))
    found = vmap(grad(loss))(x, y)
    for row in range(4):
        torch.testing.assert_close(found[row], grad(loss)(x[row], y[row]), rtol=1e-4, atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@every_loss
def test_compiled(loss):
    x, y, w = samples(5000)
    torch._dynamo.reset()
    compiled = value_and_gradient(torch.compile(loss, fullgraph=True), x, y, w)
    eager = value_and_gradient(loss, x, y, w)
    torch.testing.assert_close(compiled[0], eager[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(compiled[1], eager[1], rtol=1e-3, atol=1e-4 * eager[1].abs().max().item())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("n", [50, 5000, 30_000])
def test_scores_that_are_not_finite_give_nan(bad, n):
    x, y, w = samples(n)
    x[3] = bad
    value, gradient = value_and_gradient(PairHingeLoss(), x, y, w)
    assert value.isnan()
    assert gradient.isnan().any()


def test_ten_million_samples_in_one_pass_and_memory_that_grows_linearly():
    loss, needed = PairHingeLoss(), {}
    for n in (3 * 10**4, 10**5, MILLION, 10**7):
        x, y, w = samples(n)
        value_and_gradient(loss, x, y, w)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        value, gradient = value_and_gradient(loss, x, y, w)
        torch.cuda.synchronize()
        needed[n] = torch.cuda.max_memory_allocated() - before
        assert value.isfinite()
        assert gradient.isfinite().all()
    a_sample = [size / n for n, size in needed.items()]
    assert max(a_sample[1:]) <= 1.2 * min(a_sample[1:]), needed
    assert a_sample[-1] <= 1.2 * a_sample[0], needed
    assert a_sample[-1] <= 100, needed
