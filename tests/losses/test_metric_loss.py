"""MetricLoss against soft counts added up by hand in float64."""

import copy

import numpy as np
import pytest
import torch

from metricfit import Counts, MetricLoss, RunningCounts, get_metric, losses, metrics, steps

INSTANCES = {
    "fbeta": "fbeta(beta=2)",
    "tversky": "tversky(alpha=0.25, beta=0.75)",
    "cost": "cost(fp=1, fn=10)",
    "cost_matrix": "cost_matrix(costs=[[0, 1], [5, 0]])",
}
MINIMIZED = ("fpr", "fnr", "cost", "cost_matrix")


def batch(seed=0, n=12, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, generator=generator, dtype=dtype)
    target = (torch.rand(n, generator=generator) < 0.4).long()
    target[:2] = torch.tensor([1, 0])
    return logits, target


def soft_table(logits, target, weight=None, threshold=0.5, delta=0.1):
    """tp, fp, fn, tn with the Linear step of Tsoi et al. Eq. 5, by interpolation through its five points."""
    p, y = 1 / (1 + np.exp(-logits.detach().double().numpy())), target.double().numpy()
    half = min(threshold, 1 - threshold) / 2
    points = [0, threshold - half, threshold, threshold + half, 1]
    h = np.interp(p, points, [0, delta, 0.5, 1 - delta, 1])
    w = np.ones_like(p) if weight is None else weight.double().numpy()
    return (w * y * h).sum(), (w * (1 - y) * h).sum(), (w * y * (1 - h)).sum(), (w * (1 - y) * (1 - h)).sum()


def f1(table):
    tp, fp, fn, _ = table
    return 2 * tp / (2 * tp + fp + fn)


def fpr(table):
    return table[1] / (table[1] + table[3])


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_1_minus_the_value_or_the_value_if_lower_is_better(seed):
    logits, target = batch(seed)
    table = soft_table(logits, target)
    assert MetricLoss("f1")(logits, target).item() == pytest.approx(1 - f1(table), abs=1e-12)
    assert MetricLoss("fpr")(logits, target).item() == pytest.approx(fpr(table), abs=1e-12)


@pytest.mark.parametrize("name", [name for name in metrics.names() if name != "selection_rate"])
def test_good_logits_are_a_lower_loss_for_every_metric(name):
    _, target = batch()
    logits = torch.where(target == 1, 3.0, -3.0)
    loss = MetricLoss(INSTANCES.get(name, name))
    assert loss(logits, target) < loss(torch.zeros_like(logits), target) < loss(-logits, target)
    assert loss.metric.minimize == (name in MINIMIZED)


def test_the_selection_rate_falls_with_every_logit_whatever_the_labels_are():
    logits, target = batch()
    loss = MetricLoss("selection_rate")
    assert loss(logits - 1, target) < loss(logits, target) == loss(logits, 1 - target)


def test_a_name_a_metric_and_a_function_are_the_same_loss():
    logits, target = batch()
    expected = MetricLoss("fbeta(beta=2)")(logits, target)
    assert MetricLoss(metrics.fbeta(beta=2))(logits, target) == expected
    own = MetricLoss(lambda c: 5 * c.tp / (5 * c.tp + 4 * c.fn + c.fp))(logits, target)
    torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.7])
def test_a_threshold_moves_the_step(threshold):
    logits, target = batch(1)
    expected = 1 - f1(soft_table(logits, target, threshold=threshold))
    assert MetricLoss("f1", threshold=threshold)(logits, target).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "thresholds",
    [[0.2, 0.5, 0.7], (0.2, 0.5, 0.7), np.array([0.2, 0.5, 0.7]), torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64)],
)
def test_several_thresholds_are_the_mean_of_their_values(thresholds):
    logits, target = batch(2)
    loss = MetricLoss("f1", threshold=thresholds)(logits, target)
    expected = 1 - np.mean([f1(soft_table(logits, target, threshold=t)) for t in (0.2, 0.5, 0.7)])
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_a_tensor_threshold_is_state_and_a_parameter_learns():
    buffer = MetricLoss("f1", threshold=torch.tensor(0.3))
    assert "threshold" in buffer.state_dict()
    parameter = MetricLoss("f1", threshold=torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64)))
    logits, target = batch(3)
    parameter(logits, target).backward()
    assert parameter.threshold.grad.abs() > 0
    assert [name for name, _ in parameter.named_parameters()] == ["threshold"]


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("threshold", [None, [0.3, 0.6]])
def test_a_binary_metric_is_itself_under_every_average(average, threshold):
    logits, target = batch(4)
    expected = MetricLoss("f1", threshold=threshold)(logits, target)
    result = MetricLoss("f1", threshold=threshold, average=average)(logits, target)
    assert result.shape == ((1,) if average is None else ())
    torch.testing.assert_close(result.reshape(()), expected)


def test_soft_targets_are_shares_of_a_sample():
    logits, _ = batch(5)
    target = torch.linspace(0, 1, 12, dtype=torch.float64)
    assert MetricLoss("f1")(logits, target).item() == pytest.approx(1 - f1(soft_table(logits, target)), abs=1e-12)


def test_weights_are_numbers_of_samples():
    logits, target = batch(6)
    weight = torch.arange(12.0, dtype=torch.float64) % 3
    expected = 1 - f1(soft_table(logits, target, weight))
    assert MetricLoss("f1")(logits, target, weight).item() == pytest.approx(expected, abs=1e-12)
    repeated = MetricLoss("f1")(logits.repeat_interleave(weight.long()), target.repeat_interleave(weight.long()))
    torch.testing.assert_close(MetricLoss("f1")(logits, target, weight=weight.long()), repeated)


@pytest.mark.parametrize("weighted", [False, True])
def test_ignored_samples_count_for_nothing_and_learn_nothing(weighted):
    logits, target = batch(7)
    weight = torch.rand(12, dtype=torch.float64) if weighted else None
    kept = torch.arange(12) % 3 != 0
    kept[:2] = True
    given = torch.where(kept, logits, torch.nan).requires_grad_()
    loss = MetricLoss("f1", ignore_index=-100)(given, torch.where(kept, target, -100), weight)
    expected = MetricLoss("f1")(logits[kept], target[kept], None if weight is None else weight[kept])
    torch.testing.assert_close(loss.detach(), expected)
    loss.backward()
    assert (given.grad[~kept] == 0).all()
    assert (given.grad[kept] != 0).any()


@pytest.mark.parametrize("shapes", [((12,), (12, 1)), ((12, 1), (12,)), ((12, 1), (12, 1))])
def test_columns_and_rows_mix_without_broadcasting(shapes):
    logits, target = batch(8)
    expected = MetricLoss("f1")(logits, target)
    assert MetricLoss("f1")(logits.reshape(shapes[0]), target.reshape(shapes[1])) == expected


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32, torch.float64])
def test_targets_of_every_type(dtype):
    logits, target = batch(9)
    assert MetricLoss("f1")(logits, target.to(dtype)) == MetricLoss("f1")(logits, target)


@pytest.mark.parametrize(
    "step",
    [steps.Linear(0.2), steps.Sigmoid(10), steps.Identity(), steps.Annealed(steps.Identity(), steps.Sigmoid(20))],
)
@pytest.mark.parametrize("name", ["f1", "mcc", "cost(fp=1, fn=5)"])
def test_gradients_are_those_of_finite_differences(step, name):
    logits, target = batch(10, n=6)
    weight = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.0, 3.0], dtype=torch.float64)
    loss = MetricLoss(name, step=step, threshold=[0.4, 0.5]).eval()
    assert torch.autograd.gradcheck(lambda x: loss(x, target, weight), logits.requires_grad_())


@pytest.mark.parametrize("name", metrics.names())
@pytest.mark.parametrize("labels", [[], [1, 1, 1], [0, 0, 0]], ids=["empty", "positives", "negatives"])
def test_one_class_and_empty_batches_are_finite(name, labels):
    logits = torch.randn(len(labels), requires_grad=True)
    loss = MetricLoss(INSTANCES.get(name, name)).eval()(logits, torch.tensor(labels))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", metrics.names())
def test_extreme_logits_are_finite_in_float32(name):
    logits = torch.tensor([1e4, -1e4, 3e38, -3e38, torch.inf, -torch.inf, 0.0], requires_grad=True)
    loss = MetricLoss(INSTANCES.get(name, name)).eval()(logits, torch.tensor([1, 1, 0, 0, 1, 0, 1]))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_memory_adds_the_past():
    logits, target = batch(11)
    loss = MetricLoss("f1", memory=RunningCounts(decay=0.5))
    first = loss(logits, target)
    torch.testing.assert_close(first, MetricLoss("f1")(logits, target))
    past, now = np.array(soft_table(logits, target)), np.array(soft_table(-logits, target))
    assert loss(-logits, target).item() == pytest.approx(1 - f1(0.5 * past + now), abs=1e-12)


def test_it_is_a_module_that_copies_and_shows_what_differs():
    loss = MetricLoss("f1", threshold=0.3, step=steps.Sigmoid(20), memory=RunningCounts())
    logits, target = batch(12)
    loss(logits, target)
    twin = copy.deepcopy(loss)
    assert twin(logits, target) == loss(logits, target)
    assert "threshold=0.3" in repr(loss)
    assert "k=20" in repr(loss)
    assert repr(MetricLoss("f1")) == "MetricLoss('f1')"
    assert get_metric("f1") == loss.metric


def test_training_improves_the_metric():
    torch.manual_seed(0)
    features = torch.randn(200, 3)
    target = (features[:, 0] + 0.3 * torch.randn(200) > 1).long()
    model = torch.nn.Linear(3, 1)
    loss, optimiser = MetricLoss("f1"), torch.optim.Adam(model.parameters(), 0.1)
    before = loss(model(features), target).item()
    for _ in range(60):
        optimiser.zero_grad()
        value = loss(model(features), target)
        value.backward()
        optimiser.step()
    assert value.item() < 0.35 < before


def test_the_classes_are_public():
    assert losses.MetricLoss is MetricLoss


def several_labels():
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(40, 4, generator=generator) < 0.3).long()
    return torch.randn(40, 4, generator=generator) + target, target


@pytest.mark.parametrize("name", ["mcc", "kappa", "accuracy", "f1"])
@pytest.mark.parametrize("settings", [{}, {"threshold": (0.3, 0.6)}], ids=["one threshold", "two"])
def test_statistics_have_the_same_value_in_another_loss(name, settings):
    logits, target = several_labels()
    loss = MetricLoss(name, **settings)
    statistics = loss.statistics(logits, target)
    value = MetricLoss(name, **settings).value(statistics).item()
    assert value == pytest.approx(loss(logits, target).item(), rel=1e-6)
    loss(torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]))  # a batch of exclusive classes in between changes nothing
    assert loss.value(statistics).item() == value


def test_statistics_of_batches_add_to_those_of_the_whole():
    logits, target = several_labels()
    loss = MetricLoss("mcc")
    parts = [loss.statistics(*part) for part in zip(logits.split(15), target.split(15), strict=True)]
    assert loss.value(sum(parts)).item() == pytest.approx(loss(logits, target).item(), abs=1e-6)


def test_a_bare_tensor_is_refused_as_statistics():
    logits, target = several_labels()
    with pytest.raises(TypeError, match=r"what statistics\(\) of this loss returns, Counts, got Tensor"):
        MetricLoss("mcc").value(torch.stack(tuple(Counts.soft(logits, target))))
