"""MetricLoss of several classes: those absent from a batch, averages, memory, metrics of the whole matrix."""

import warnings

import pytest
import task_twins as twins
import torch

from metricfit import Counts, MetricLoss, RunningCounts, metrics

WHOLE = ["accuracy", "mcc", "kappa", "balanced_accuracy"]
NEEDS_POSITIVES = [each for each in twins.PER_CLASS if "positives" in each.needs]
NEEDS_NONE = [each for each in twins.PER_CLASS if "positives" not in each.needs]


def lacking(task, absent=(1, 3), n=10):
    """A batch without a true sample of some classes."""
    given = twins.make(task, n)
    if task == "multilabel":
        given.target[:, list(absent)] = 0
    else:
        there = [k for k in range(given.c) if k not in absent]
        given.target = torch.tensor(there)[torch.arange(n) % len(there)]
    return given


def loss_and_gradient(loss, given, **settings):
    x = given.logits.clone().requires_grad_()
    value = loss(x, given.target, **settings)
    value.backward()
    return value.detach(), x.grad


@pytest.mark.parametrize("metric", NEEDS_POSITIVES, ids=str)
def test_classes_without_a_true_sample_are_left_out_and_named(metric, task, twin):
    given, loss = lacking(task), MetricLoss(metric, task=task)
    value, grad = loss_and_gradient(loss, given)
    expected = twin.values(metric, twin.counts(task, given.logits, given.target))
    expected = (expected[0] + expected[2]) / 2
    assert value.item() == pytest.approx((expected if metric.minimize else 1 - expected).item(), abs=1e-12)
    torch.testing.assert_close(grad, twin.gradient(metric, task, given.logits, given.target), rtol=1e-9, atol=1e-12)
    assert loss.left_out() == [1, 3]


@pytest.mark.parametrize("metric", NEEDS_NONE, ids=str)
def test_metrics_that_need_no_positives_leave_nothing_out(metric, task, twin):
    if task == "multiclass" and metric == metrics.selection_rate:
        pytest.skip("every row is called one of the classes, so the mean over classes is constant and teaches nothing")
    given, loss = lacking(task), MetricLoss(metric, task=task)
    value, _ = loss_and_gradient(loss, given)
    expected = sum(twin.values(metric, twin.counts(task, given.logits, given.target))) / given.c
    assert value.item() == pytest.approx((expected if metric.minimize else 1 - expected).item(), abs=1e-12)
    assert loss.left_out() == []


def test_nothing_is_left_out_of_a_full_batch_of_other_averages_or_of_binary(task):
    given, loss = twins.make(task), MetricLoss("f1", task=task)
    assert loss.left_out() == []
    loss_and_gradient(loss, given)
    assert loss.left_out() == []
    for average in ("micro", "weighted"):
        loss = MetricLoss("f1", task=task, average=average)
        loss_and_gradient(loss, lacking(task))
        assert loss.left_out() == []
    for name in WHOLE:
        loss = MetricLoss(name, task=task)
        loss_and_gradient(loss, lacking(task))
        assert loss.left_out() == []
    loss = MetricLoss("f1")
    loss(torch.randn(4), torch.zeros(4))
    assert loss.left_out() == []


def test_left_out_follows_the_last_batch(task):
    loss = MetricLoss("f1", task=task)
    loss_and_gradient(loss, lacking(task, (0,)))
    assert loss.left_out() == [0]
    loss_and_gradient(loss, lacking(task, (1, 2)))
    assert loss.left_out() == [1, 2]
    loss_and_gradient(loss, twins.make(task))
    assert loss.left_out() == []


def test_left_out_of_several_thresholds_and_images():
    loss = MetricLoss("f1", threshold=[0.3, 0.5])
    loss_and_gradient(loss, lacking("multiclass"))
    assert loss.left_out() == [1, 3]
    given = twins.make("multiclass", 2, c=3, shape=(2, 2))
    given.target = torch.tensor([[[0, 0], [0, 0]], [[2, 2], [2, 0]]])
    loss = MetricLoss("f1", per_image=True)
    value, _ = loss_and_gradient(loss, given)
    assert loss.left_out() == [1]
    each = [MetricLoss("f1")(given.logits[i : i + 1], given.target[i : i + 1]).item() for i in range(2)]
    assert value.item() == pytest.approx(sum(each) / 2)


@pytest.mark.parametrize("metric", NEEDS_POSITIVES, ids=str)
def test_no_class_remaining_gives_value_0_attached_with_a_zero_gradient(metric):
    given, loss = twins.make("multilabel"), MetricLoss(metric, task="multilabel")
    given.target.zero_()
    x = given.logits.clone().requires_grad_()
    value = loss(x, given.target)
    assert value.requires_grad
    assert value.item() == (0.0 if metric.minimize else 1.0)
    value.backward()
    assert (x.grad == 0).all()
    assert loss.left_out() == [0, 1, 2, 3]


@pytest.mark.parametrize("per_class", [False, True])
def test_a_remembered_class_is_there_again(task, per_class, twin):
    metric = metrics.fbeta(beta=[0.5, 1, 2, 5]) if per_class else metrics.f1
    first, second = twins.make(task, seed=1), lacking(task)
    loss = MetricLoss(metric, task=task, memory=RunningCounts(decay=0.9))
    loss_and_gradient(loss, first)
    assert loss.left_out() == []
    value, grad = loss_and_gradient(loss, second)
    assert loss.left_out() == []
    x = second.logits.clone().requires_grad_()
    remembered = twin.counts(task, first.logits, first.target)
    expected = 1 - twin.value(metric, 0.9 * remembered + twin.counts(task, x, second.target))
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(grad, x.grad, rtol=1e-9, atol=1e-12)
    assert grad.abs().max() > 1e-6


def test_memory_is_kept_per_class_and_not_touched_by_evaluation(task):
    given, loss = twins.make(task), MetricLoss("f1", task=task, memory=RunningCounts(decay=0.5))
    loss_and_gradient(loss, given)
    before = loss.memory.total.clone()
    assert before.shape == (4, given.c)
    with torch.no_grad():
        loss(given.logits, given.target)
    loss.eval()(given.logits, given.target)
    assert torch.equal(loss.memory.total, before)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
def test_averages_of_a_batch_with_absent_classes(task, average, twin):
    given = lacking(task)
    x = given.logits.clone().requires_grad_()
    losses = MetricLoss("f1", task=task, average=average)(x, given.target)
    counts = twin.counts(task, given.logits, given.target)
    if average is None:
        assert losses.tolist() == pytest.approx([1 - v.item() for v in twin.values(metrics.f1, counts)], abs=1e-12)
        assert losses[1] == losses[3] == 1
    else:
        assert losses.item() == pytest.approx(1 - twin.value(metrics.f1, counts, average).item(), abs=1e-12)
    losses.sum().backward()
    assert x.grad.isfinite().all()


def test_weighted_shares_carry_no_gradient():
    """Shares are of true samples, here of soft targets that are learnt."""
    given = twins.make("multiclass", 8)
    shares = torch.softmax(given.logits.roll(1, 0), 1).requires_grad_()
    value = MetricLoss("f1", task="multiclass", average="weighted")(given.logits, shares)
    (grad,) = torch.autograd.grad(value, shares)
    fixed = shares.detach().requires_grad_()
    counts = Counts.soft(given.logits, fixed, task="multiclass")
    weights = fixed.detach().sum(0)
    expected = 1 - (metrics.f1(counts) * weights).sum() / weights.sum()
    torch.testing.assert_close(grad, torch.autograd.grad(expected, fixed)[0])


@pytest.mark.parametrize("metric", [each for each in twins.PER_CLASS if twins.is_per_class(each)], ids=str)
def test_a_parameter_per_class_has_no_micro_average(metric):
    with pytest.raises(ValueError, match="has a parameter per class, which average='micro' has no classes for"):
        MetricLoss(metric, average="micro")
    with pytest.raises(ValueError, match="has a parameter per class"):
        metrics.averaged(metric, Counts.hard(torch.randn(5, 4), torch.arange(5) % 4), "micro")


def test_a_parameter_per_class_of_other_classes_is_refused():
    with pytest.raises(ValueError, match=r"fbeta\(beta=\[1, 2\]\) has 2 values of beta, the counts have 4 classes"):
        MetricLoss(metrics.fbeta(beta=[1, 2]))(torch.randn(5, 4), torch.arange(5) % 4)


def test_an_average_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="average must be 'macro', 'micro', 'weighted' or None, got 'samples'"):
        MetricLoss("f1", average="samples")


@pytest.mark.parametrize("settings", [{}, {"threshold": 0.3}, {"threshold": [0.2, 0.4, 0.6]}], ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_whole_matrix_metrics_ignore_the_average(name, settings):
    given = lacking("multiclass")
    values = [
        MetricLoss(name, average=average, **settings)(given.logits, given.target)
        for average in ("macro", "micro", "weighted", None)
    ]
    assert all(value.shape == () for value in values)
    assert len({value.item() for value in values}) == 1


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_matrix_metrics_per_image_are_the_mean_over_images(name, average):
    given = twins.make("multiclass", 3, shape=(4, 4))
    value = MetricLoss(name, per_image=True, average=average)(given.logits, given.target)
    each = [MetricLoss(name)(given.logits[i : i + 1], given.target[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(value, torch.stack(each).mean())


@pytest.mark.parametrize("name", ["mcc", "kappa"])
def test_a_batch_of_one_class_raises_no_alarm_about_the_step(name):
    """Of one class alone these are 0/0, whatever the step: a warning would send the user after the wrong thing."""
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MetricLoss(name)(x, torch.ones(6, dtype=torch.long)).backward()


def test_higher_beta_of_one_class_favours_its_recall():
    """Per-class beta is what the multiclass soft set is for (its Eq. 6; its Sec. 6.4 has beta the wrong way round)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    y = ((x[:, 0] + torch.randn(300, generator=generator)).clamp(-1.4, 1.4) + 1.5).long()
    recalls = []
    for beta in ([1, 1, 0.2], [1, 1, 5]):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 3)
        optimiser, loss = torch.optim.Adam(model.parameters(), 0.1), MetricLoss(metrics.fbeta(beta=beta))
        for _ in range(60):
            optimiser.zero_grad()
            loss(model(x), y).backward()
            optimiser.step()
        recalls.append(metrics.recall(Counts.hard(model(x), y))[2].item())
    assert recalls[1] > recalls[0] + 0.05
