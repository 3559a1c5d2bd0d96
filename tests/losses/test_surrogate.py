"""Lee et al.'s surrogate against its own equations, and the theory that can be tested of it."""

import math

import pytest
import torch

from metricfit import Counts, MetricLoss, SurrogateFBetaLoss, metrics, steps
from metricfit.losses import ClassBalanced, MAELoss, WeightedBCELoss
from metricfit.losses.surrogate import SurrogateTverskyLoss
from metricfit.metrics import fbeta, tversky

BETAS, PRIORS = (0.5, 1.0, 2.0), (0.01, 0.3, 0.5, 0.9)


def batch(n=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return logits, (torch.arange(n) % 3 == 0).long()


def by_hand(logits, target, c, q, prior=None):
    """Eq. 20 at q = 0 and Eq. 25 otherwise, sample by sample; weighted 1/prior and 1/(1-prior) if there is one."""
    total = 0.0
    for x, y in zip(logits.tolist(), target.tolist(), strict=True):
        f = 1 / (1 + math.exp(-x))
        if q == 0:
            positive, negative = -math.log(f), math.log(c + f)
        else:
            positive, negative = (1 - f**q) / q, ((c + f) ** q - 1) / q
        weights = (1, 1) if prior is None else (1 / prior, 1 / (1 - prior))
        total += weights[0] * y * positive + weights[1] * (1 - y) * negative
    return total / len(logits)


@pytest.mark.parametrize("q", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("prior", PRIORS)
def test_it_is_equations_20_and_25(beta, prior, q):
    logits, target = batch()
    c = beta**2 * prior / (1 - prior)
    plain = SurrogateFBetaLoss(beta, prior=prior, q=q, balanced=False)(logits, target)
    assert plain.item() == pytest.approx(by_hand(logits, target, c, q), rel=1e-12)
    balanced = SurrogateFBetaLoss(beta, prior=prior, q=q)(logits, target)
    assert balanced.item() == pytest.approx(by_hand(logits, target, c, q, prior), rel=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.7), (1.0, 1.0), (2.0, 0.5)])
def test_tversky_has_its_own_constant(alpha, beta):
    logits, target = batch()
    c = beta * 0.2 / (alpha * 0.8)
    result = SurrogateTverskyLoss(alpha, beta, prior=0.2)(logits, target)
    assert result.item() == pytest.approx(by_hand(logits, target, c, 0.0, 0.2), rel=1e-12)


def test_a_small_q_tends_to_the_logarithms():
    logits, target = batch()
    limit = SurrogateFBetaLoss(2.0, prior=0.1)(logits, target)
    gaps = [
        abs(SurrogateFBetaLoss(2.0, prior=0.1, q=q)(logits, target) - limit).item() for q in (1e-2, 1e-4, 1e-6, 1e-8)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3]
    assert gaps[3] < 1e-5
    # and linearly, so nothing cancels on the way
    assert gaps[1] / gaps[2] == pytest.approx(100, rel=0.1)


def test_at_q_1_beta_1_and_even_classes_it_is_half_the_mae():
    logits, target = batch()
    surrogate = SurrogateFBetaLoss(1.0, prior=0.5, q=1.0, balanced=False)(logits, target)
    torch.testing.assert_close(surrogate, MAELoss()(logits, target) / 2, rtol=1e-13, atol=0)


def test_jaccard_has_the_surrogate_of_f1():
    logits, target = batch()
    jaccard, f1 = SurrogateTverskyLoss(1, 1, prior=0.1), SurrogateFBetaLoss(1, prior=0.1)
    assert jaccard.log_c == pytest.approx(f1.log_c, abs=1e-14)
    torch.testing.assert_close(jaccard(logits, target), f1(logits, target), rtol=1e-13, atol=0)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("prior", [1e-6, 0.5])
def test_it_is_stable_at_the_ends_in_float32(q, prior):
    logits = torch.tensor([1e4, -1e4, 1e4, -1e4, 100.0, -100.0], requires_grad=True)
    target = torch.tensor([1, 1, 0, 0, 0, 1])
    loss = SurrogateFBetaLoss(prior=prior, q=q)
    value = loss(logits, target)
    value.backward()
    assert value.isfinite()
    assert logits.grad.isfinite().all()
    expected = loss(logits.detach().double(), target)
    torch.testing.assert_close(value.detach().double(), expected, rtol=1e-5, atol=1e-5)


def test_a_very_wrong_positive_still_has_a_gradient():
    logits = torch.tensor([-1e4], requires_grad=True)
    SurrogateFBetaLoss(prior=0.5, balanced=False)(logits, torch.tensor([1])).backward()
    assert logits.grad.item() == pytest.approx(-1.0)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0])
def test_gradients_are_those_of_finite_differences(q):
    logits, target = batch()
    weight = torch.rand(10, dtype=torch.float64)
    loss = SurrogateTverskyLoss(0.3, 0.7, prior=0.2, q=q)
    assert torch.autograd.gradcheck(lambda x: loss(x, target, weight), logits.requires_grad_())


def gradients(metric, loss, seed):
    """grad(-log M) and grad(R) over the parameters of a linear model, with what kappa needs."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    theta = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True)
    target = (torch.arange(40) < 9).long()
    logits = features @ theta
    p = torch.sigmoid(logits)
    q0, q1 = (1 - p)[target == 1].mean(), p[target == 0].mean()
    ratio = -torch.log(1 - q0) + torch.log(math.exp(loss.log_c) + q1)
    minus_log = -torch.log(1 - MetricLoss(metric, step=steps.Identity()).eval()(logits, target))
    of_metric = torch.autograd.grad(minus_log, theta, retain_graph=True)[0]
    return of_metric, torch.autograd.grad(ratio, theta)[0], q0.item(), q1.item()


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("seed", range(4))
def test_minus_log_f_beta_has_kappa_times_the_gradient_of_the_ratio(beta, seed):
    pi = 9 / 40
    loss = SurrogateFBetaLoss(beta, prior=pi)
    of_metric, of_ratio, q0, q1 = gradients(fbeta(beta=beta), loss, seed)
    c = beta**2 * pi / (1 - pi)
    kappa = (1 - pi) * (c + q1) / (pi * beta**2 + pi * (1 - q0) + (1 - pi) * q1)
    torch.testing.assert_close(of_metric, kappa * of_ratio, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.7), (1.0, 1.0), (0.5, 0.5), (2.0, 0.5)])
@pytest.mark.parametrize("seed", range(4))
def test_minus_log_tversky_has_its_kappa_too(alpha, beta, seed):
    """With u = 1 - q0, v = c + q1: T = pi u / ((1-beta) pi u + alpha (1-pi) v), so kappa is the second part's share."""
    pi = 9 / 40
    loss = SurrogateTverskyLoss(alpha, beta, prior=pi)
    of_metric, of_ratio, q0, q1 = gradients(tversky(alpha=alpha, beta=beta), loss, seed)
    second = alpha * (1 - pi) * (beta * pi / (alpha * (1 - pi)) + q1)
    kappa = second / ((1 - beta) * pi * (1 - q0) + second)
    torch.testing.assert_close(of_metric, kappa * of_ratio, rtol=1e-10, atol=1e-12)


def metric_of_rates(metric, recall, fpr, pi):
    """The value of a metric as a function of the two soft rates."""
    counts = pi * recall, (1 - pi) * fpr, pi * (1 - recall), (1 - pi) * (1 - fpr)
    return metric(Counts(*(part.reshape(1) for part in counts))).squeeze()


@pytest.mark.parametrize("seed", range(4))
def test_class_balanced_mae_is_linear_in_the_soft_balanced_accuracy(seed):
    logits, target = batch(30, seed)
    logits.requires_grad_()
    mae = ClassBalanced(MAELoss(), prior=1 / 3)(logits, target)
    metric = MetricLoss("balanced_accuracy", step=steps.Identity()).eval()(logits, target)
    torch.testing.assert_close(mae, 4 * metric, rtol=1e-12, atol=0)
    of_mae, of_metric = (torch.autograd.grad(loss, logits)[0] for loss in (mae, metric))
    torch.testing.assert_close(of_mae, 4 * of_metric, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("seed", range(4))
def test_class_balanced_cross_entropy_bounds_minus_two_log_gmean(seed):
    logits, target = batch(30, seed)
    gmean = MetricLoss("gmean", step=steps.Identity()).eval()
    loss = ClassBalanced(WeightedBCELoss(), prior=1 / 3)
    gaps = []
    for spread in (1.0, 0.1, 0.0):
        # scores that are equal within each class, apart from the spread
        x = (target * 3.0 - 1.0 + spread * logits).requires_grad_()
        value, bound = loss(x, target), -2 * torch.log(1 - gmean(x, target))
        gaps.append((value - bound).item())
    assert gaps[0] > gaps[1] > gaps[2] >= -1e-12
    assert gaps[2] == pytest.approx(0, abs=1e-12)
    of_loss, of_bound = (torch.autograd.grad(each, x)[0] for each in (value, bound))
    torch.testing.assert_close(of_loss, of_bound, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pi", [0.1, 0.4, 0.7])
def test_kappa_is_a_function_of_one_ratio_too(pi):
    d = pi / (1 - 2 * pi)
    recall, fpr = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.7, 0.2))
    of_kappa = torch.autograd.grad(metric_of_rates(metrics.kappa, recall, fpr, pi), (recall, fpr))
    of_ratio = torch.autograd.grad(torch.log(((d + recall) / (d + fpr)).abs()), (recall, fpr))
    assert of_kappa[0] * of_ratio[1] == pytest.approx((of_kappa[1] * of_ratio[0]).item(), rel=1e-10)


@pytest.mark.parametrize(
    ("metric", "separates"),
    [("f1", True), ("jaccard", True), ("kappa", True), ("balanced_accuracy", True), ("gmean", True), ("mcc", False)],
)
def test_which_metrics_have_a_function_that_is_a_sum_over_the_two_rates(metric, separates):
    """They are those whose level curves have a slope that is a function of one rate times one of the other."""

    def slope(recall, fpr):
        rates = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (recall, fpr)]
        by_recall, by_fpr = torch.autograd.grad(metric_of_rates(metrics.get_metric(metric), *rates, 0.2), rates)
        return (by_recall / by_fpr).item()

    cross_ratio = slope(0.9, 0.1) * slope(0.6, 0.3) / (slope(0.9, 0.3) * slope(0.6, 0.1))
    assert (abs(cross_ratio - 1) < 1e-9) == separates


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_prior_outside_0_to_1_is_refused(prior):
    with pytest.raises(ValueError, match="SurrogateFBetaLoss: prior is the share of positives in the training set"):
        SurrogateFBetaLoss(prior=prior)


@pytest.mark.parametrize("beta", [0.0, -1.0, 1e-200, 1e20, 1e200, math.inf, math.nan])
def test_a_beta_out_of_range_is_refused(beta):
    with pytest.raises(ValueError, match="SurrogateFBetaLoss needs a beta from 1e-08 to 1e"):
        SurrogateFBetaLoss(beta, prior=0.5)
    with pytest.raises(
        ValueError, match=r"SurrogateTverskyLoss needs (finite alpha > 0 and beta > 0|alpha and beta that)"
    ):
        SurrogateTverskyLoss(0.5, beta, prior=0.5)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_q_outside_0_to_1_is_refused(q):
    with pytest.raises(ValueError, match=r"SurrogateFBetaLoss needs q in \[0, 1\]"):
        SurrogateFBetaLoss(prior=0.5, q=q)


def test_it_shows_its_arguments():
    assert repr(SurrogateFBetaLoss(2, prior=0.1)) == "SurrogateFBetaLoss(beta=2, prior=0.1, q=0, balanced=True)"
    assert "alpha=0.3, beta=0.7" in repr(SurrogateTverskyLoss(0.3, 0.7, prior=0.1))
