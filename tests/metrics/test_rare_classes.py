"""What is left of a metric in float32 where one class is nearly everything: found by trying to break it."""

import pickle

import pytest
import torch

from metricfit import Counts, MetricLoss, RunningCounts, curves, metric, metrics
from metricfit.losses import MAELoss, Mix


@metric
def own_scaled_share(c, scale):
    return scale * c.tp / c.n


@metric
def own_hits(c):
    return c.tp / c.n


@pytest.mark.parametrize("name", ["mcc", "kappa", "balanced_accuracy", "f1"])
@pytest.mark.parametrize("rare", [5, 1000])
def test_float32_agrees_with_float64_where_one_class_is_nearly_all(name, rare):
    generator = torch.Generator().manual_seed(0)
    n = 2**17
    y = torch.zeros(n, dtype=torch.long)
    y[:rare], y[rare : 2 * rare] = 1, 2
    x = torch.randn(n, 3, generator=generator)
    x[:, 0] += 6
    x[:rare, 1] += 6
    x[rare : 2 * rare, 2] += 6
    single, double = x.requires_grad_(), x.detach().double().requires_grad_()
    values = [MetricLoss(name)(given, y) for given in (single, double)]
    gradients = [torch.autograd.grad(value, given)[0] for value, given in zip(values, (single, double), strict=True)]
    assert values[0].item() == pytest.approx(values[1].item(), rel=2e-4)
    error = (gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max()
    assert error < 2e-3


def test_a_confidently_wrong_negative_keeps_its_float32_gradient():
    for logit in (10.0, 17.0, 30.0):
        given = torch.tensor([logit, logit, -1.0, 1.0])
        target = torch.tensor([0, 0, 1, 1])
        single, double = given.clone().requires_grad_(), given.double().requires_grad_()
        MetricLoss("precision")(single, target).backward()
        MetricLoss("precision")(double, target).backward()
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-5, atol=0)


def test_rates_at_a_bound_forgive_the_rounding_of_weights():
    scores, target = [6, 5, 4, 3, 2, 1.0], [1, 0, 1, 0, 1, 0]
    weight = [0.1] * 6
    assert curves.fpr_at_fn(scores, target, 1) == pytest.approx(curves.fpr_at_fn(scores, target, 0.1, weight=weight))


def test_ties_are_relative_to_the_values():
    scores, target = [0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0]
    small = curves.best_threshold(scores, target, "cost(fp=1e-13, fn=1e-13)")
    assert small.threshold == curves.best_threshold(scores, target, "cost(fp=1, fn=1)").threshold


def test_a_memory_keeps_float32_in_a_half_precision_module():
    loss = MetricLoss("f1", memory=RunningCounts())
    x = torch.randn(100_000, requires_grad=True)
    loss(x, x.detach() > 0)
    before = loss.memory.total.clone()
    loss.half()
    assert loss.memory.total.dtype == torch.float32
    assert torch.equal(loss.memory.total, before)


def test_a_compiled_member_of_a_mix_gets_its_weight():
    x, y, w = torch.randn(8), torch.tensor([0, 1] * 4), torch.rand(8)
    plain = Mix((MetricLoss("f1"), 1.0), (MAELoss(), 1.0))(x, y, w)
    compiled = Mix((torch.compile(MetricLoss("f1"), backend="eager"), 1.0), (MAELoss(), 1.0))(x, y, w)
    torch.testing.assert_close(compiled, plain)


@pytest.mark.parametrize(
    "given", [own_scaled_share(scale=-2.0), own_hits, own_hits[0], own_scaled_share, metrics.fbeta]
)
def test_metrics_and_factories_are_pickled(given):
    loaded = pickle.loads(pickle.dumps(given))
    assert loaded is given or loaded == given


def test_a_loss_is_pickled_between_forward_and_backward_and_after_vmap():
    loss = MetricLoss("f1")
    x = torch.randn(3, 8, requires_grad=True)
    y = torch.tensor([0, 1] * 4)
    loss(x[0], y)
    pickle.loads(pickle.dumps(loss))
    torch.func.vmap(loss, in_dims=(0, None))(x.detach(), y)
    pickle.loads(pickle.dumps(loss))
    assert loss.left_out() == []


def test_gradcheck_with_undefined_gradients():
    y = torch.tensor([0, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda x: MetricLoss("f1")(x, y), torch.randn(4).double().requires_grad_())


def test_a_memory_under_vmap_says_what_it_needs():
    with pytest.raises(RuntimeError, match="RunningCounts under vmap needs its 'total' for each member"):
        torch.func.vmap(MetricLoss("f1", memory=RunningCounts()), in_dims=(0, None))(torch.randn(3, 4), torch.ones(4))


def test_counts_add_up_with_sum_and_refuse_other_shapes():
    counts = Counts(1, 2, 3, 4)
    assert sum([counts, counts]).tp == 2
    with pytest.raises(ValueError, match=r"counts of shapes \(1,\) and \(3,\) do not add"):
        counts + Counts.from_labels(torch.tensor([0]), torch.tensor([0]), num_classes=3)


def test_what_a_metric_needs_is_checked():
    assert metric(needs="positives")(lambda c: c.tp).needs == {"positives"}
    with pytest.raises(ValueError, match="needs is any of 'positives' and 'negatives', got"):
        metric(needs=["postives"])(lambda c: c.tp)
