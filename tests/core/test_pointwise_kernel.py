"""The kernels of pointwise losses against the losses' own formulas in plain operations."""

import math

import pytest
import torch
from torch.autograd import forward_ad

from metricfit import SurrogateFBetaLoss
from metricfit.core.kernels import pointwise
from metricfit.core.validation import DivergedError
from metricfit.losses import (
    ClassBalanced,
    EffectiveNumberBCELoss,
    FocalLoss,
    MAELoss,
    MarginLoss,
    MSFELoss,
    WeightedBCELoss,
)
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.pointwise import PointwiseLoss
from metricfit.losses.surrogate import SurrogateTverskyLoss

LOSSES = {
    "bce": WeightedBCELoss(3.0),
    "effective": EffectiveNumberBCELoss(0.99, (90, 10)),
    "focal": FocalLoss(2.0),
    "focal_by_a_power": FocalLoss(1.3),
    "focal_asymmetric": FocalLoss(2.0, asymmetric=True),
    "focal_0": FocalLoss(0.0),
    "margin": MarginLoss(0.5),
    "margin_asymmetric": MarginLoss(2.0, asymmetric=True),
    "mae": MAELoss(),
    "surrogate": SurrogateFBetaLoss(2.0, prior=0.1),
    "surrogate_with_q": SurrogateTverskyLoss(0.3, 0.7, prior=0.1, q=0.5),
    "balanced": ClassBalanced(FocalLoss(2.0), prior=0.1),
}


def batch(n, labels="hard"):
    generator = torch.Generator().manual_seed(n)
    logits = 4 * torch.randn(n, generator=generator, dtype=torch.float64)
    target = (torch.rand(n, generator=generator) < 0.3).double()
    if labels == "soft":
        target = target * 0.8 + 0.1
    return logits, target


def plain(loss, logits, target):
    """The mean and its gradient in plain operations."""
    leaf = logits.clone().requires_grad_()
    value = loss._plain_sum(leaf, target, None) / leaf.numel()
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def fast(loss, logits, target):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, target)
    assert "WeightedSum" in type(value.grad_fn).__name__, "the kernel was not used"
    return value.detach(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("labels", ["hard", "soft"])
@pytest.mark.parametrize("n", [7, pointwise.SHORT + 1])
def test_value_and_gradient_are_those_of_plain_operations(name, labels, n):
    given = batch(n, labels)
    torch.testing.assert_close(fast(LOSSES[name], *given), plain(LOSSES[name], *given), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", LOSSES)
def test_blocks_add_up_to_the_whole(name, monkeypatch):
    given = batch(pointwise.SHORT + 5)
    expected = fast(LOSSES[name], *given)
    monkeypatch.setattr(pointwise, "BLOCK", 1000)
    torch.testing.assert_close(fast(LOSSES[name], *given), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_small_gradients_of_float32_are_exact(name):
    """A well classified sample has a gradient of 1e-9 or so, which 1 - sigmoid(x) in float32 would round to 0."""
    logits, target = torch.tensor([22.0, 18.0, -22.0, -18.0, 0.5, -0.5]), torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    _, gradient = fast(LOSSES[name], logits, target)
    _, expected = plain(LOSSES[name], logits.double(), target.double())
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_can_be_differentiated_again_and_again_and_for_several_at_once(name):
    logits, target = batch(6)
    leaf = logits.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: LOSSES[name](x, target), leaf)
    value = LOSSES[name](leaf, target)
    first, second = (torch.autograd.grad(value, leaf, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)
    factors = torch.tensor([1.0, -2.0], dtype=torch.float64)
    several = torch.autograd.grad(value, leaf, factors, is_grads_batched=True)[0]
    torch.testing.assert_close(several, factors[:, None] * first)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own forward mode
@pytest.mark.parametrize("name", ["bce", "focal", "surrogate"])
def test_forward_mode_and_hessians_take_the_plain_path(name):
    logits, target = batch(5)
    loss = LOSSES[name]
    direction = torch.ones_like(logits)
    _, gradient = plain(loss, logits, target)
    _, tangent = torch.func.jvp(lambda x: loss(x, target), (logits,), (direction,))
    torch.testing.assert_close(tangent, gradient.sum())
    with forward_ad.dual_level():
        dual = loss(forward_ad.make_dual(logits, direction), target)
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, gradient.sum())
    leaf = logits.clone().requires_grad_()
    expected = torch.autograd.functional.hessian(lambda x: loss._plain_sum(x, target, None) / 5, leaf)
    torch.testing.assert_close(torch.func.hessian(lambda x: loss(x, target))(logits), expected)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("labels", ["hard", "soft"])
def test_weights_are_those_of_plain_operations(name, labels):
    logits, target = batch(40, labels)
    weight = torch.arange(40, dtype=torch.float64) % 4
    leaf, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = LOSSES[name](leaf, target, weight), LOSSES[name]._plain_sum(other, target, weight) / weight.sum()
    assert "WeightedSum" in type(value.grad_fn).__name__, "the kernel was not used"
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v, x in ((value, leaf), (expected, other))))


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_weights_that_are_no_weights_are_refused(bad):
    with pytest.raises(ValueError, match="weights must be finite and at least 0"):
        FocalLoss(2.0)(torch.zeros(3), torch.ones(3), torch.tensor([1.0, bad, 1.0]))


def test_a_factor_on_the_loss_is_a_factor_on_the_gradient():
    logits, target = batch(8)
    leaf = logits.clone().requires_grad_()
    (3 * FocalLoss(2.0)(leaf, target)).backward()
    torch.testing.assert_close(leaf.grad, 3 * fast(FocalLoss(2.0), logits, target)[1])


@pytest.mark.parametrize("n", [3, pointwise.SHORT + 1])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_logit_that_is_not_finite_is_reported_even_if_its_loss_is_0(n, bad):
    logits, target = torch.zeros(n), torch.zeros(n)
    logits[1] = bad
    for label in (0.0, 1.0):
        target[1] = label
        with pytest.raises(DivergedError, match="NaN" if math.isnan(bad) else "infinite"):
            WeightedBCELoss()(logits, target)


@pytest.mark.parametrize("n", [3, pointwise.SHORT + 1])
@pytest.mark.parametrize("bad", [2.0, -1.0, math.inf, math.nan])
def test_a_label_out_of_range_is_refused(n, bad):
    target = torch.zeros(n)
    target[0] = bad
    with pytest.raises(ValueError, match=r"binary labels must be 0 or 1|target holds NaN"):
        FocalLoss(2.0)(torch.zeros(n), target)


def test_a_subclass_with_its_own_terms_is_computed_from_them():
    class Doubled(FocalLoss):
        def of_positive(self, logits):
            return 2 * super().of_positive(logits)

    class Own(PointwiseLoss):
        def of_positive(self, logits):
            return -logits

        def of_negative(self, logits):
            return logits

    logits = torch.tensor([0.7, -0.2])
    positives = torch.ones(2)
    torch.testing.assert_close(Doubled(2.0)(logits, positives), 2 * FocalLoss(2.0)(logits, positives))
    assert Own()(logits, positives).item() == pytest.approx(-0.25)


def test_settings_may_change_after_construction():
    loss = FocalLoss(2.0)
    loss.gamma = 0.0
    logits, target = batch(9)
    torch.testing.assert_close(loss(logits, target), WeightedBCELoss()(logits, target))


def test_nothing_is_computed_for_a_gradient_that_nobody_wants(monkeypatch):
    asked = []
    original = pointwise._sum_and_gradient
    monkeypatch.setattr(pointwise, "_sum_and_gradient", lambda *args: asked.append(args[-1]) or original(*args))
    logits, target = batch(9)
    with torch.no_grad():
        WeightedBCELoss()(logits.requires_grad_(), target)
    WeightedBCELoss()(logits.detach(), target)
    assert asked == [False, False]


def test_cross_entropy_of_ignored_classes_alone_is_0():
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = WeightedCrossEntropyLoss()(logits, torch.tensor([-100, -100]))
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


@pytest.mark.parametrize("labels", ["hard", "soft"])
def test_the_two_sums_of_squared_errors_can_be_differentiated_twice(labels):
    logits, target = batch(6, labels)
    leaf = logits.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: MSFELoss()(x, target), leaf)
    assert torch.isfinite(MSFELoss()(torch.tensor([math.inf, -math.inf]), torch.tensor([1.0, 0.0])))


@pytest.mark.parametrize("name", LOSSES)
def test_many_equal_logits_are_summed_accurately(name):
    loss = LOSSES[name]
    logits, target = torch.full((2**18,), 0.0371), (torch.arange(2**18) % 3 == 0).float()
    assert loss(logits, target).item() == pytest.approx(loss(logits.double(), target.double()).item(), rel=5e-6)
