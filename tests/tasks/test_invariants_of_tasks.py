"""Every invariant of a binary metric, for every metric of exclusive classes and of several labels."""

import pytest
import task_twins as twins
import torch
from torch.autograd import gradcheck, gradgradcheck

from metricfit import Counts, MetricLoss, metrics, steps

pytestmark = pytest.mark.filterwarnings(
    "ignore::metricfit.losses.gradient_watch.DeadGradientWarning"
)  # some batches here are dead


# The twins' whole matrix is of exclusive classes; of multilabel counts see test_scikit_learn_averages.
defined = pytest.mark.parametrize(
    ("task", "every_metric"),
    [
        (task, each)
        for task in twins.TASKS
        for each in twins.EVERY_METRIC
        if task == "multiclass" or not each.whole_matrix
    ],
    ids=str,
)
ONE_NUMBER = [each for each in twins.PER_CLASS if not twins.is_per_class(each)]
FEW_STEPS = {"linear": steps.Linear(0.2), "sigmoid": steps.Sigmoid(10), "through": steps.StraightThrough()}
few_steps = pytest.mark.parametrize("step", FEW_STEPS.values(), ids=FEW_STEPS.keys())


def value_of(metric, given, step=None, weight=None, keep=slice(None)):
    counts = Counts.soft(
        given.logits[keep],
        given.target[keep],
        task=given.task,
        step=step,
        weight=None if weight is None else weight[keep],
    )
    return metric(counts)


def loss_of(metric, given, logits, step=None, weight=None, **settings):
    return MetricLoss(metric, step=step, task=given.task, **settings)(logits, given.target, weight=weight)


@few_steps
def test_values_stay_within_the_metrics_bounds(every_metric, task, step):
    low, high = every_metric.bounds
    for seed, scale in enumerate((0.1, 1.0, 5.0, 40.0)):
        given = twins.make(task, 9, seed=seed, scale=scale)
        value = value_of(every_metric, given, step, given.weight)
        assert ((value >= low - 1e-12) & (value <= high + 1e-12)).all(), value


def test_the_best_decisions_have_the_best_value(every_metric, task):
    given = twins.make(task, 9)
    right = torch.nn.functional.one_hot(given.target, given.c) if task == "multiclass" else given.target
    best = every_metric(Counts.hard(right * 8.0 - 4.0, given.target, task=task))
    expected = every_metric.bounds[0] if every_metric.minimize else every_metric.bounds[1]
    if (
        every_metric.base_name == "selection_rate"
    ):  # it does not look at the labels, so right decisions select their share
        torch.testing.assert_close(best, right.double().mean(0).reshape(best.shape))
        return
    torch.testing.assert_close(best, torch.full_like(best, expected))


@few_steps
def test_order_of_samples_does_not_matter(every_metric, task, step):
    given = twins.make(task, 30)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    value = value_of(every_metric, given, step, given.weight)
    torch.testing.assert_close(value_of(every_metric, given, step, given.weight, order), value)
    assert value.shape == (() if every_metric.whole_matrix and task == "multiclass" else (given.c,))


@few_steps
@pytest.mark.parametrize("metric", ONE_NUMBER, ids=str)
def test_order_of_classes_is_carried_through(metric, task, step):
    given = twins.make(task, 20)
    order = torch.tensor([2, 0, 3, 1])
    moved = order.argsort()[given.target] if task == "multiclass" else given.target[:, order]
    value = metric(Counts.soft(given.logits[:, order], moved, task=task, step=step))
    torch.testing.assert_close(value, value_of(metric, given, step)[order])


@few_steps
def test_integer_weights_equal_repetition_in_value_and_gradient(every_metric, task, step):
    given = twins.make(task, 12, seed=2)
    times = torch.arange(12) % 4
    loss = MetricLoss(every_metric, step=step, task=task)
    weighted, repeated = (given.logits.clone().requires_grad_() for _ in range(2))
    by_weight = loss(weighted, given.target, weight=times)
    by_repetition = loss(repeated.repeat_interleave(times, 0), given.target.repeat_interleave(times, 0))
    torch.testing.assert_close(by_weight, by_repetition)
    by_weight.backward()
    by_repetition.backward()
    torch.testing.assert_close(weighted.grad, repeated.grad)
    assert weighted.grad.abs().sum() > 0


def test_scaling_all_weights_does_not_matter(every_metric, task):
    given = twins.make(task, 20)
    value = value_of(every_metric, given, weight=given.weight)
    torch.testing.assert_close(value_of(every_metric, given, weight=17 * given.weight), value)


@few_steps
def test_counts_of_two_parts_add_up_to_those_of_the_whole(every_metric, task, step):
    given = twins.make(task, 31)
    parts = [
        Counts.soft(given.logits[part], given.target[part], task=task, step=step, weight=given.weight[part])
        for part in (slice(0, 13), slice(13, None))
    ]
    whole = Counts.soft(given.logits, given.target, task=task, step=step, weight=given.weight)
    for of_sum, of_whole in zip(parts[0] + parts[1], whole, strict=True):
        torch.testing.assert_close(of_sum, of_whole)
    torch.testing.assert_close(every_metric(parts[0] + parts[1]), every_metric(whole))
    assert not torch.allclose(every_metric(parts[0]), every_metric(whole))


def test_class_totals_are_those_of_the_labels_to_rounding(task, any_step):
    given = twins.make(task, 40)
    for settings in ({}, {"threshold": 0.3}):
        counts = Counts.soft(given.logits, given.target, task=task, step=any_step, weight=given.weight, **settings)
        y = torch.nn.functional.one_hot(given.target, given.c) if task == "multiclass" else given.target
        positives = (y * given.weight.unsqueeze(1)).sum(0)
        torch.testing.assert_close(counts.positives, positives, rtol=1e-12, atol=0)
        torch.testing.assert_close(counts.negatives, given.weight.sum() - positives, rtol=1e-12, atol=0)


def test_exclusive_decisions_share_out_all_of_the_weight(any_step):
    given = twins.make("multiclass", 40)
    counts = Counts.soft(given.logits, given.target, step=any_step, weight=given.weight)
    assert counts.predicted.sum().item() == pytest.approx(given.weight.sum().item(), rel=1e-12)


@defined
def test_value_and_gradient_are_the_twins(every_metric, task, any_step, twin):
    given = twins.make(task, 25)
    true = torch.nn.functional.one_hot(given.target, given.c) if task == "multiclass" else given.target
    given.logits += true  # some hits of each class: the twin forms rates, and hits of none have no derivative there
    x = given.logits.clone().requires_grad_()
    value = loss_of(every_metric, given, x, any_step, given.weight)
    assert value.item() == pytest.approx(
        twin.loss(every_metric, task, given.logits, given.target, given.weight, any_step).item(), abs=1e-12
    )
    if task == "multilabel" and isinstance(any_step, steps.StraightThrough):
        return  # the twin's hard step has no gradient
    value.backward()
    expected = twin.gradient(every_metric, task, given.logits, given.target, given.weight, any_step)
    torch.testing.assert_close(x.grad, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("average", "metric"),
    [("micro", each) for each in ONE_NUMBER] + [("weighted", each) for each in twins.PER_CLASS],
    ids=str,
)
def test_other_averages_are_the_twins(metric, task, average, twin):
    given = twins.make(task, 25)
    x = given.logits.clone().requires_grad_()
    value = loss_of(metric, given, x, weight=given.weight, average=average)
    rest = {"weight": given.weight, "average": average}
    expected = twin.loss(metric, task, given.logits, given.target, **rest)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    value.backward()
    expected = twin.gradient(metric, task, given.logits, given.target, **rest)
    torch.testing.assert_close(x.grad, expected, rtol=1e-9, atol=1e-12)


def test_without_average_there_is_one_loss_per_class(per_class_metric, task, twin):
    given = twins.make(task, 25)
    x = given.logits.clone().requires_grad_()
    losses = loss_of(per_class_metric, given, x, average=None)
    expected = torch.stack(twin.values(per_class_metric, twin.counts(task, given.logits, given.target)))
    torch.testing.assert_close(losses.detach(), expected if per_class_metric.minimize else 1 - expected)


@pytest.mark.parametrize("step", [None, steps.Sigmoid(10), steps.RaisedCosine(0.3)], ids=str)
def test_gradient_is_that_of_finite_differences(every_metric, task, step):
    given = twins.make(task, 5, seed=3)
    loss = MetricLoss(every_metric, step=step, task=task).eval()
    assert gradcheck(
        lambda x: loss(x, given.target, weight=given.weight), given.logits.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("name", ["f1", "gmean", "p4", "mcc", "kappa", "balanced_accuracy"])
def test_second_derivative_is_that_of_finite_differences(name, task, smooth_step):
    given = twins.make(task, 5, seed=6)
    loss = MetricLoss(name, step=smooth_step, task=task).eval()
    x = given.logits.requires_grad_()
    assert gradgradcheck(lambda x: loss(x, given.target, weight=given.weight), x, fast_mode=True)


def hard_counts_by_hand(given, decided):
    """tp, fp, fn, tn of each class in plain Python, from rows of 0/1 decisions."""
    table = [[0.0] * given.c for _ in range(4)]
    for row, true in zip(decided, given.target.tolist(), strict=True):
        for k in range(given.c):
            y = true[k] if isinstance(true, list) else int(true == k)
            table[(0 if row[k] else 2) + (0 if y else 1)][k] += 1
    return torch.tensor(table, dtype=torch.float64)


def test_a_sharp_step_tends_to_the_metric_of_the_decisions(every_metric, task):
    given = twins.make(task, 60, seed=8)
    p = torch.softmax(given.logits, 1) if task == "multiclass" else torch.sigmoid(given.logits)
    top = p.sort(1).values
    clear = (top[:, -1] - top[:, -2] > 0.05) if task == "multiclass" else ((p - 0.5).abs() > 0.02).all(1)
    given.logits, given.target, p = given.logits[clear], given.target[clear], p[clear]
    assert len(p) > 20
    decided = p == p.max(1, keepdim=True).values if task == "multiclass" else p >= 0.5
    by_hand = hard_counts_by_hand(given, decided.tolist())
    hard = every_metric(Counts(*by_hand, exclusive=task == "multiclass"))
    errors = [(value_of(every_metric, given, steps.Sigmoid(k=k)) - hard).abs().max().item() for k in (5, 100, 5000)] + [
        (value_of(every_metric, given, steps.RaisedCosine(0.02)) - hard).abs().max().item()
    ]
    assert errors[0] > 1e-3
    assert errors[1] < errors[0]
    assert errors[2] < 1e-12
    assert errors[3] < 1e-12
    torch.testing.assert_close(every_metric(Counts.hard(given.logits, given.target, task=task)), hard)


LOGITS = [[1.5, -2, 0.3, 0.1], [-0.2, 4, 0.5, -1], [0.1, 0.2, -0.3, 0.7], [2, -1, 0.4, 0.0], [0.3, 0.1, 1.1, -2]]
LABELS = [0, 1, 2, 3, 1]


def awkward(task):
    """Named batches: logits and labels, or rows of labels."""

    def right(labels, size):
        return [[size if k == label else -size for k in range(4)] for label in labels]

    classes = {
        "absent classes": (LOGITS, [0, 0, 1, 1, 0]),
        "one class only": (LOGITS, [2] * 5),
        "one class only, as predicted": (right([2] * 5, 3.0), [2] * 5),
        "everything predicted one way": (right([1] * 5, 3.0), LABELS),
        "all logits equal": ([[0.0] * 4] * 5, LABELS),
        "ties of two": ([[1.0, 1.0, 0.0, -1.0]] * 5, LABELS),
        "single sample": (LOGITS[:1], [3]),
        "right to 1e4": (right(LABELS, 1e4), LABELS),
        "wrong to 1e4": (right([1, 2, 3, 0, 0], 1e4), LABELS),
        "all at 1e4": ([[1e4] * 4] * 5, LABELS),
        "all at -1e4": ([[-1e4] * 4] * 5, LABELS),
        "two at 1e4": ([[1e4, 1e4, -1e4, -1e4]] * 5, LABELS),
        "rising": ([[-20.0 * i * k for k in range(4)] for i in range(1, 6)], LABELS),
        "empty": ([], []),
    }
    if task == "multiclass":
        return classes
    rows = {name: (x, [[int(k == label) for k in range(4)] for label in y]) for name, (x, y) in classes.items()}
    return rows | {"no positives": (LOGITS, [[0] * 4] * 5), "no negatives": (LOGITS, [[1] * 4] * 5)}


def check_awkward(metric, task, step, dtype):
    low, high = metric.bounds if metric.minimize else (1 - metric.bounds[1], 1 - metric.bounds[0])
    for name, (logits, labels) in awkward(task).items():
        x = torch.tensor(logits, dtype=dtype).reshape(-1, 4).requires_grad_()
        y = torch.tensor(labels, dtype=torch.long).reshape((-1,) if task == "multiclass" else (-1, 4))
        value = MetricLoss(metric, step=step, task=task)(x, y)
        value.backward()
        assert value.isfinite(), name
        assert value.dtype == torch.promote_types(dtype, torch.float32)
        assert x.grad.dtype == dtype
        assert x.grad.isfinite().all(), name
        assert low - 1e-5 <= value.item() <= high + 1e-5, name


@few_steps
def test_finite_on_every_awkward_batch(every_metric, task, step):
    check_awkward(every_metric, task, step, torch.float32)


@pytest.mark.parametrize("name", ["f1", "gmean", "mcc", "kappa", "p4"])
def test_finite_on_every_awkward_batch_at_every_step(name, task, any_step):
    check_awkward(metrics.get_metric(name), task, any_step, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_finite_on_every_awkward_batch_of_other_types(every_metric, task, dtype):
    check_awkward(every_metric, task, steps.Sigmoid(k=73) if dtype == torch.float16 else None, dtype)


@few_steps
def test_an_empty_batch_has_the_worst_value_and_an_empty_gradient(every_metric, task, step):
    x = torch.zeros(0, 4, requires_grad=True)
    target = torch.zeros((0,) if task == "multiclass" else (0, 4), dtype=torch.long)
    value = MetricLoss(every_metric, step=step, task=task)(x, target)
    value.backward()
    assert value == (0.0 if every_metric.minimize else 1.0)
    assert x.grad.shape == (0, 4)


@few_steps
def test_all_weights_zero_give_no_gradient(every_metric, task, step):
    given = twins.make(task, 6)
    x = given.logits.requires_grad_()
    value = loss_of(every_metric, given, x, step, torch.zeros(6))
    value.backward()
    assert value == (0.0 if every_metric.minimize else 1.0)
    assert (x.grad == 0).all()


@defined
def test_batches_of_one_class_have_the_reference_value(every_metric, task, twin):
    for name in ("absent classes", "one class only", "everything predicted one way", "all logits equal"):
        x, y = (torch.tensor(each) for each in awkward(task)[name])
        value = MetricLoss(every_metric, task=task)(x.double(), y)
        expected = twin.loss(every_metric, task, x.double(), y)
        assert value.item() == pytest.approx(float(expected), abs=1e-9), name


@defined
def test_half_precision_gradients_are_the_twins_of_the_rounded_logits(every_metric, task, twin):
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 1e-2)):
        given = twins.make(task, 20, dtype=dtype)
        x = given.logits.requires_grad_()
        loss_of(every_metric, given, x).backward()
        expected = twin.gradient(every_metric, task, given.logits, given.target)
        torch.testing.assert_close(x.grad.double(), expected, rtol=tolerance, atol=2e-5)


@few_steps
def test_ignored_labels_count_for_nothing(every_metric, task, step):
    given = twins.make(task, 20)
    target = given.target.clone()
    target[4:9] = -100
    kept = torch.ones(20, dtype=torch.bool)
    kept[4:9] = False
    loss = MetricLoss(every_metric, step=step, task=task, ignore_index=-100)
    x, alone = given.logits.clone(), given.logits[kept].clone().requires_grad_()
    x[5] = torch.nan
    x.requires_grad_()
    value, expected = loss(x, target), loss(alone, target[kept])
    torch.testing.assert_close(value, expected)
    (grad,), (grad_alone,) = torch.autograd.grad(value, x), torch.autograd.grad(expected, alone)
    torch.testing.assert_close(grad[kept], grad_alone)
    assert (grad[~kept] == 0).all()


def test_raising_the_true_logit_never_worsens_a_monotone_metric(task, smooth_step):
    """Of recall this holds sample by sample whatever the step: its own class's share can only grow."""
    given = twins.make(task, 20)
    x = given.logits.requires_grad_()
    (grad,) = torch.autograd.grad(loss_of(metrics.recall, given, x, smooth_step), x)
    true = torch.nn.functional.one_hot(given.target, 4).bool() if task == "multiclass" else given.target.bool()
    assert (grad[true] <= 1e-15).all()
    assert grad.any()
