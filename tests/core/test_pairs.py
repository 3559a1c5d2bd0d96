"""Sums over all pairs by sorting, against all pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit.core.kernels import pairs
from metricfit.losses import PairHingeLoss

NAN = float("nan")
POWERS = [0, 1, 2, 3]
every_power = pytest.mark.parametrize("power", POWERS)
MILLION = 10**6


def by_pairs(queries, points, weight, power):
    """The twin: every pair."""
    gaps = points[None, :] - queries[:, None]
    return (torch.where(gaps > 0, gaps.clamp(min=0) ** power, 0.0) * weight).sum(1)


# Few distinct values make ties, within the points, within the queries and between them.
SCORES = st.one_of(st.sampled_from((-2.0, -0.5, 0.0, 0.5, 2.0)), st.floats(-1e3, 1e3, width=32))
WEIGHTS = st.one_of(st.just(0.0), st.floats(0.0, 4.0, width=32))
SAMPLES = st.lists(st.tuples(SCORES, st.booleans(), WEIGHTS, st.floats(-1.0, 1.0, width=32)), max_size=14)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(SAMPLES, st.sampled_from((0.0, 0.5, 1.0, 30.0)), st.sampled_from((1, 2, 3)))
@pytest.mark.parametrize("per", ["positive", "negative"])
def test_values_and_gradients_are_those_of_all_pairs(per, samples, margin, power):
    """To 1e-13 n (max|x| + margin)^r, the classes empty or not, weights 0 or not."""
    columns = torch.tensor(samples, dtype=torch.float64).reshape(-1, 4)
    score, positive, weight, upstream = columns.T
    opposite = weight * (1 - positive if per == "positive" else positive)
    ours, twins = ([given.clone().requires_grad_() for given in (score, opposite)] for _ in range(2))
    found = pairs.violations(*ours, margin, power, per)
    f, w = twins
    expected = by_pairs(f, f + margin, w, power) if per == "positive" else by_pairs(-f - margin, -f, w, power)
    largest = score.abs().max().item() if len(samples) else 0.0
    tolerance = 1e-13 * len(samples) * (largest + margin) ** power
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    gradients = (torch.autograd.grad(s, leaves, upstream) for s, leaves in ((found, ours), (expected, twins)))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def million(kind):
    generator = torch.Generator().manual_seed(0)
    score = torch.randn(MILLION, generator=generator)
    if kind == "far from 0":
        score += 1000
    if kind == "outliers":
        score[:4] = torch.tensor([1e6, 1e6 + 1, -1e6, 3e5])
    if kind == "ties":
        score = score.mul(4).round()
    return score, torch.rand(MILLION, generator=generator), torch.rand(MILLION, generator=generator)


@pytest.mark.parametrize("kind", ["normal", "far from 0", "outliers", "ties"])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_million_samples_in_float32(kind, power):
    """Each sum and each gradient to 1e-5 of itself: the largest and smallest scores', where the sums are small, too."""
    score, weight, upstream = million(kind)
    queries, points = score.clone().requires_grad_(), (score + 0.5).requires_grad_()
    found = pairs.hinge_sums(queries, points, weight, power)
    of_queries, of_points = torch.autograd.grad(found, (queries, points), upstream)
    looked_at = torch.cat([score.topk(3).indices, (-score).topk(3).indices, torch.arange(4, MILLION, MILLION // 6)])
    x, y, w, g = (given.detach().double() for given in (queries, points, weight, upstream))
    for i in looked_at.tolist():  # one at a time: all pairs of a query take 8 MB
        above, below = (y - x[i]).clamp(min=0), (y[i] - x).clamp(min=0)
        expected = {
            found: (w * above**power).sum(),
            of_queries: -power * g[i] * (w * above ** (power - 1) * (above > 0)).sum(),
            of_points: power * w[i] * (g * below ** (power - 1) * (below > 0)).sum(),
        }
        for ours, theirs in expected.items():
            assert ours[i].item() == pytest.approx(theirs.item(), rel=1e-5, abs=0)


@pytest.mark.parametrize(("queries", "points"), [((), (3,)), ((3,), ()), ((2, 1), (3,)), ((2, 3), (2, 3))])
def test_leading_axes_broadcast(queries, points):
    x, y = torch.randn(*queries, 4, dtype=torch.float64), torch.randn(*points, 6, dtype=torch.float64)
    w = torch.rand(6, dtype=torch.float64, requires_grad=True)
    found = pairs.hinge_sums(x, y, w, 2)
    rows = torch.broadcast_shapes(queries, points)
    flat = zip(x.expand(*rows, 4).reshape(-1, 4), y.expand(*rows, 6).reshape(-1, 6), strict=True)
    twin = w.detach().clone().requires_grad_()
    expected = torch.stack([by_pairs(*row, twin, 2) for row in flat]).reshape(*rows, 4)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), w), torch.autograd.grad(expected.sum(), twin))


@pytest.mark.parametrize("power", POWERS[1:])
def test_gradients_are_differentiable_again_and_vmapped(power):
    x, y, w = (torch.randn(3, 6, dtype=torch.float64) for _ in range(3))
    single = [pairs.hinge_sums(*row, power) for row in zip(x, y, w, strict=True)]
    torch.testing.assert_close(
        torch.func.vmap(lambda *row: pairs.hinge_sums(*row, power))(x, y, w), torch.stack(single)
    )
    torch.testing.assert_close(pairs.hinge_sums(x, y, w, power), torch.stack(single))
    leaves = tuple(given[0].clone().requires_grad_() for given in (x, y, w))
    assert torch.autograd.gradcheck(lambda *given: pairs.hinge_sums(*given, power), leaves)
    if power > 1:
        assert torch.autograd.gradgradcheck(lambda *given: pairs.hinge_sums(*given, power), leaves)


def test_points_that_all_members_share():
    x, y, w = torch.randn(3, 5, dtype=torch.float64), torch.randn(6, dtype=torch.float64), torch.rand(6)
    found = torch.func.vmap(pairs.hinge_sums, in_dims=(0, None, None, None))(x, y, w, 2)
    torch.testing.assert_close(found, torch.stack([by_pairs(row, y, w, 2) for row in x]))


@pytest.mark.parametrize("wrap", ["plain", "vmap", "grad"])
@pytest.mark.parametrize("power", POWERS[1:])
def test_compiled_values_and_gradients_are_those_of_all_pairs(power, wrap):
    leaves = [torch.randn(2, 7, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    torch._dynamo.reset()

    def sums(x, y, w):
        return pairs.hinge_sums(x, y, w, power)

    def total(*given):
        return sums(*given).sum()

    def options(function):
        return torch.compile(function, fullgraph=True, backend="aot_eager")

    expected = torch.stack([by_pairs(*row, power) for row in zip(*leaves, strict=True)])
    gradients = torch.autograd.grad(expected.sum(), leaves)
    if wrap == "grad":
        found = options(torch.func.grad(total, argnums=(0, 1, 2)))(*(given.detach() for given in leaves))
    else:
        values = options(sums if wrap == "plain" else torch.func.vmap(sums))(*leaves)
        torch.testing.assert_close(values, expected)
        found = torch.autograd.grad(values.sum(), leaves)
    for ours, theirs in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_compiled_gradients_of_many_samples():
    """The compiler differentiates the cumulative sums themselves, where a difference of long sums is taken."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.randn(100_000, generator=generator).requires_grad_() for _ in range(2)]
    weight = torch.rand(100_000, generator=generator)
    torch._dynamo.reset()
    compiled = torch.compile(pairs.hinge_sums, fullgraph=True, backend="aot_eager")
    ours, theirs = (
        torch.autograd.grad(function(*leaves, weight, 2).mean(), leaves) for function in (compiled, pairs.hinge_sums)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert ((a - b).abs().max() / b.abs().max()).item() < 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@every_power
def test_scores_that_are_not_finite_are_never_hidden(power, bad):
    """A bad query spoils its own sum, a bad point its row's, whatever its weight; other rows keep theirs."""
    x, y, w = (torch.randn(2, 5) for _ in range(3))
    clean = pairs.hinge_sums(x, y, w, power)
    for weight in (w, torch.zeros_like(w)):
        spoilt = y.clone()
        spoilt[0, 2] = bad
        found = pairs.hinge_sums(x, spoilt, weight, power)
        assert found[0].isnan().all()
        assert found[1].isfinite().all()
    spoilt = x.clone()
    spoilt[0, 2] = bad
    found = pairs.hinge_sums(spoilt, y, w, power)
    assert found.isnan().sum() == 1
    assert found[0, 2].isnan()
    torch.testing.assert_close(found[1], clean[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_gradients_of_scores_that_are_not_finite_are_nan(bad):
    score = torch.tensor([0.0, 1.0, bad, 2.0], requires_grad=True)
    pairs.violations(score, torch.tensor([1.0, 0.0, 1.0, 0.0]), 1.0, 2).sum().backward()
    assert score.grad.isnan().all()


@pytest.mark.parametrize(
    ("queries", "points", "sums"),
    [
        (torch.float16, torch.float16, torch.float32),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.int64, torch.int32, torch.float64),
        (torch.int16, torch.float32, torch.float64),
        (torch.float32, torch.float64, torch.float64),
    ],
)
def test_types(queries, points, sums):
    x, y, w = torch.tensor([0, 2]).to(queries), torch.tensor([300, 3, 1]).to(points), torch.tensor([1, 2, 0])
    found = pairs.hinge_sums(x, y, w, 3)
    assert found.dtype == sums
    assert found.tolist() == [300**3 + 2 * 27, 298**3 + 2]  # beyond float16


def test_large_whole_numbers_are_distinguished():
    """As float32 both are 2**24."""
    assert pairs.hinge_sums(torch.tensor([2**24]), torch.tensor([2**24 + 1]), torch.ones(1), 1).tolist() == [1]
    found = pairs.hinge_sums(torch.tensor([2**24]), torch.tensor([2.0**25]), torch.ones(1), 1)
    assert found.tolist() == [2**24]


@pytest.mark.parametrize("power", [4, -1, 1.5])
def test_other_powers_are_refused(power):
    with pytest.raises(ValueError, match=f"powers 0, 1, 2 or 3, got {power}"):
        pairs.hinge_sums(torch.randn(2), torch.randn(3), torch.ones(3), power)


HUGE = 1e308


@pytest.mark.parametrize(
    ("queries", "points", "weight", "power", "expected"),
    [
        ([-HUGE], [HUGE], [1.0], 1, [NAN]),
        ([-HUGE], [HUGE], [0.0], 1, [NAN]),  # 0 times an infinite gap
        ([-1.1 * HUGE], [HUGE, 0.0, -HUGE], [0.0, 1.0, 1.0], 1, [NAN]),
        ([-HUGE, 0.9 * HUGE], [HUGE, HUGE], [0.25, 0.25], 1, [NAN, 0.05 * HUGE]),  # the sum of the points overflows
        ([0.0], [HUGE, HUGE], [1.0, 1.0], 1, [NAN]),
        ([0.0, HUGE], [HUGE, 1.0], [1.0, 1.0], 2, [NAN, 0.0]),
        ([-HUGE], [HUGE], [2.0], 0, [2.0]),
    ],
)
def test_overflow_is_nan(queries, points, weight, power, expected):
    found = pairs.hinge_sums(*(torch.tensor(each, dtype=torch.float64) for each in (queries, points, weight)), power)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


def test_half_precision_leaves_get_half_precision_gradients():
    x, y = (torch.tensor(given, dtype=torch.bfloat16, requires_grad=True) for given in ([0.0], [2.0]))
    pairs.hinge_sums(x, y, torch.ones(1), 2).sum().backward()
    assert (x.grad.dtype, x.grad.item(), y.grad.item()) == (torch.bfloat16, -4.0, 4.0)


@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0), (0, 0)])
@every_power
def test_empty_inputs_give_0(m, n, power):
    x, y = torch.randn(2, m, requires_grad=True), torch.randn(2, n, requires_grad=True)
    found = pairs.hinge_sums(x, y, torch.ones(n), power)
    assert found.shape == (2, m)
    assert not found.any()
    for gradient in torch.autograd.grad(found.sum(), (x, y), allow_unused=True, materialize_grads=True):
        assert not gradient.any()


def test_the_margin_is_added_in_float64():
    """1e4 + 0.001 is 1e4 + 0.00098 in float32."""
    score = torch.tensor([1e4, 1e4])
    assert pairs.violations(score, torch.tensor([0.0, 1.0]), 0.001, 1).tolist() == pytest.approx(
        [0.001, 0.001], rel=1e-6
    )


def test_an_unknown_side_is_refused():
    with pytest.raises(ValueError, match=r'per must be "positive" or "negative", got "?\'pair'):
        pairs.violations(torch.randn(3), torch.ones(3), 1.0, 2, per="pair")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [(), (1,), (3,)])
def test_order_of_values(dtype, rows):
    x = torch.randn(*rows, 40_000, dtype=dtype) * 10.0 ** torch.randint(-30, 30, (40_000,))
    x[..., :6] = torch.tensor([0.0, -0.0, 1e-42, -1e-42, float("inf"), -float("inf")])
    torch.testing.assert_close(x.gather(-1, pairs.sorting_order(x)), x.sort(-1).values, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(9,), (2, 9)])
def test_the_operator_that_a_compiler_calls_is_as_torch_wants_it(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    score = torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()
    positive = (torch.rand(shape, generator=generator) < 0.4).to(dtype)
    for negative in (None, 1 - positive):
        torch.library.opcheck(torch.ops.metricfit.pair_means.default, (score, positive, negative, 1.0, 2))


def test_a_compiler_makes_no_sorts_of_its_own_on_the_cpu():
    graphs = []
    loss = torch.compile(PairHingeLoss(), fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph)
    loss(torch.randn(8, requires_grad=True), torch.arange(8) % 2)
    called = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert any("metricfit.pair_means" in name for name in called)
    assert not any("sort" in name for name in called)
