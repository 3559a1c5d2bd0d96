"""Metrics of the user's own: a function of Counts, with plain divisions."""

import math

import pytest
import torch

from metricfit import Counts, MetricLoss, get_metric, metric, metrics

COUNTS = Counts(tp=3, fp=1, fn=2, tn=4)


def test_a_function_becomes_a_metric_known_by_name():
    @metric
    def own_hit_rate(c):
        return c.tp / c.positives

    assert own_hit_rate(COUNTS).item() == 0.6
    assert get_metric("own_hit_rate") is own_hit_rate
    assert own_hit_rate.name == "own_hit_rate"
    assert not own_hit_rate.minimize
    assert own_hit_rate.bounds == (-math.inf, math.inf)


def test_minimize_bounds_and_needs_are_kept():
    @metric(minimize=True, bounds=(0, 1), needs=["positives"])
    def own_miss_rate(c):
        return c.fn / c.positives

    assert own_miss_rate.minimize
    assert own_miss_rate.bounds == (0, 1)
    assert own_miss_rate.needs == {"positives"}
    logits, target = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([1, 1, 0])
    torch.testing.assert_close(MetricLoss(own_miss_rate)(logits, target), MetricLoss("fnr")(logits, target))


def test_a_function_with_parameters_becomes_a_factory():
    @metric
    def own_weighted_share(c, share, floor=0.5):
        return (share * c.tp + floor) / c.n

    assert own_weighted_share(share=2)(COUNTS).item() == pytest.approx(0.65)
    assert get_metric("own_weighted_share(2, floor=1)") == own_weighted_share(share=2.0, floor=1)
    assert own_weighted_share(2).name == "own_weighted_share(share=2, floor=0.5)"
    with pytest.raises(TypeError, match=r"own_weighted_share.*missing a required argument: 'share'"):
        own_weighted_share()


def test_bounds_may_depend_on_the_parameters_and_only_then_be_a_function():
    @metric(bounds=lambda top: (0, top))
    def own_scaled(c, top):
        return top * c.tp / c.n

    assert own_scaled(5).bounds == (0, 5)
    with pytest.raises(TypeError, match="bounds can be a function only of the formula's parameters"):
        metric(bounds=lambda: (0, 1))(lambda c: c.tp)


def test_0_over_0_is_0_with_a_finite_gradient_which_does_not_hurt_the_others():
    @metric
    def own_precision_over_recall(c):
        return (c.tp / c.predicted) / (c.tp / c.positives)

    given = [torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True) for _ in range(4)]
    value = own_precision_over_recall(Counts(*given))
    assert value.tolist() == [0.0, 1.0]
    value.sum().backward()
    for cell in given[:3]:
        assert cell.grad.isfinite().all()
        assert cell.grad[0] == 0
    # (tp + fn) / (tp + fp) at 2, 2, 2
    torch.testing.assert_close(given[1].grad[1], torch.tensor(-0.25, dtype=torch.float64))
    torch.testing.assert_close(given[2].grad[1], torch.tensor(0.25, dtype=torch.float64))


def test_a_whole_matrix_formula_at_0_over_0_has_a_finite_gradient_too():
    @metric(whole_matrix=True)
    def own_share_of_hits(c):
        return c.tp.sum(-1) / c.n[..., 0]

    given = [torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    value = own_share_of_hits(Counts(*given))
    assert value == 0
    value.backward()
    assert all(cell.grad is None or cell.grad.isfinite().all() for cell in given)


def test_as_a_loss_a_batch_without_positives_gives_finite_gradients():
    logits = torch.randn(6, requires_grad=True)
    value = MetricLoss(lambda c: c.tp / (c.tp + c.fn)).eval()(logits, torch.zeros(6))
    value.backward()
    assert value == 1
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["f1", "recall", "dice", "fbeta", "youden"])
def test_a_name_of_the_librarys_is_refused(name):
    def formula(c):
        return c.tp

    formula.__name__ = name
    with pytest.raises(ValueError, match=f"'{name}' is the name of a metric of this library; give yours another"):
        metric(formula)
    assert get_metric(name if name != "fbeta" else "fbeta(2)").user_defined is False


def test_defining_it_again_replaces_it_as_in_a_notebook():
    def define(k):
        @metric
        def own_redefined(c):
            return k * c.tp

        return own_redefined

    first, second = define(1), define(2)
    assert get_metric("own_redefined") is second
    assert first != second


def test_a_users_metric_is_not_among_the_librarys_names():
    metric_names = metrics.names()

    @metric
    def own_not_listed(c):
        return c.tp

    assert metrics.names() == metric_names


def test_a_formula_that_returns_no_array_is_refused():
    with pytest.raises(TypeError, match="must return an array, got float"):
        get_metric(lambda c: 0.5)(COUNTS)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="a metric is made from a function of Counts, got int"):
        metric(minimize=True)(3)


def test_an_infinite_value_is_refused_by_the_loss_with_the_remedy():
    loss = MetricLoss(lambda c: c.n / (c.tp + c.fn))
    with pytest.raises(ValueError, match=r"is not finite.*divide with metricfit\.metrics\.ratio"):
        loss(torch.randn(4), torch.zeros(4))


def test_ratio_and_root_are_0_at_0_with_zero_gradients():
    x = torch.zeros(2, requires_grad=True)
    (metrics.ratio(x, x) + metrics.root(x)).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    assert metrics.ratio(torch.tensor(3.0), torch.tensor(2.0)) == 1.5
    assert metrics.root(torch.tensor(9.0)) == 3.0
