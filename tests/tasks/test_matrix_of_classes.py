"""Metrics of the whole confusion matrix as losses and scores: twins in plain Python, scikit-learn, and invariants."""

import copy
import pickle

import numpy as np
import pytest
import sklearn.metrics as sk
import task_twins as twins
import torch
from torch.autograd import gradcheck, gradgradcheck

from metricfit import (
    AugmentedLagrangian,
    Counts,
    MetricLoss,
    RunningCounts,
    evaluate,
    get_metric,
    metrics,
    parse_requirement,
    steps,
)
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counting import count_soft
from metricfit.core.decisions import count_hard, count_labels
from metricfit.core.settings import CountSettings
from metricfit.losses.accumulation import backward_in_chunks
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.gradient_watch import StalledLossWarning
from metricfit.metrics import averaged

COSTS = [[0, 1, 2, 5], [3, 0, 1, 2], [7, 2, -1, 1], [20, 9, 4, 0]]
MATRIX_METRICS = [
    metrics.cost_matrix(COSTS),
    metrics.weighted_kappa(power=1),
    metrics.weighted_kappa(power=2),
    metrics.weighted_kappa(power=0.5),
]
every = pytest.mark.parametrize("metric", MATRIX_METRICS, ids=lambda metric: metric.name[:20] + metric.name[-4:])
STEPS = {"linear": steps.Linear(0.2), "sigmoid": steps.Sigmoid(10), "through": steps.StraightThrough()}


def python_value(metric, matrix):
    """The textbook definition from the entries, one after the other."""
    c = range(len(matrix))
    n = sum(map(sum, matrix))
    if metric.base_name == "cost_matrix":
        return sum(metric.parameters["costs"][i][j] * matrix[i][j] for i in c for j in c) / n if n else 0.0
    rows, columns = [sum(row) for row in matrix], [sum(matrix[i][j] for i in c) for j in c]
    power = metric.parameters["power"]
    observed = sum(abs(i - j) ** power * matrix[i][j] for i in c for j in c)
    expected = sum(abs(i - j) ** power * rows[i] * columns[j] / n for i in c for j in c) if n else 0.0
    return 1 - observed / expected if expected else 0.0


def python_loss(metric, given, step, threshold=None):
    matrix = twins.python_matrix(given.logits.tolist(), given.target.tolist(), given.weight.tolist(), step, threshold)
    value = python_value(metric, matrix)
    return value if metric.minimize else 1 - value


@every
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_the_loss_is_that_of_a_loop_over_samples(metric, step, threshold):
    given = twins.make("multiclass", 23)
    loss = MetricLoss(metric, step=step, threshold=threshold)(given.logits, given.target, given.weight)
    assert loss.item() == pytest.approx(python_loss(metric, given, step, threshold), abs=1e-12)


@every
def test_several_thresholds_give_the_mean_of_their_values(metric):
    given = twins.make("multiclass", 23)
    loss = MetricLoss(metric, threshold=[0.3, 0.6])(given.logits, given.target, given.weight)
    each = [python_loss(metric, given, steps.Linear(0.2), threshold) for threshold in (0.3, 0.6)]
    assert loss.item() == pytest.approx(np.mean(each), abs=1e-12)


@every
@pytest.mark.parametrize("step", [steps.Sigmoid(10), steps.Identity(), steps.RaisedCosine(0.3)], ids=str)
def test_gradients_are_those_of_finite_differences(metric, step):
    given = twins.make("multiclass", 6, seed=3)
    loss = MetricLoss(metric, step=step).eval()
    x = given.logits.requires_grad_()
    assert gradcheck(lambda x: loss(x, given.target, given.weight), x, fast_mode=True)
    assert gradgradcheck(lambda x: loss(x, given.target, given.weight), x, fast_mode=True)


@pytest.mark.parametrize(("power", "weights"), [(1, "linear"), (2, "quadratic")])
@pytest.mark.parametrize("weighted", [False, True])
def test_weighted_kappa_is_scikit_learns(power, weights, weighted):
    for seed, classes in ((0, 2), (1, 3), (2, 7)):
        given = twins.make("multiclass", 90, classes, seed=seed)
        weight = given.weight if weighted else None
        expected = sk.cohen_kappa_score(
            given.target, given.logits.argmax(1), weights=weights, labels=range(classes), sample_weight=weight
        )
        metric = metrics.weighted_kappa(power=power)
        matrix = metrics.confusion_matrix(given.logits, given.target, weight=weight)
        assert metric(matrix).item() == pytest.approx(expected, abs=1e-12)
        labels = count_labels(given.logits.argmax(1), given.target, num_classes=classes, weight=weight, matrix=True)
        assert metric(labels).item() == pytest.approx(expected, abs=1e-12)


def test_quadratic_kappa_is_scikit_learns_in_evaluate():
    given = twins.make("multiclass", 60)
    found = evaluate(torch.nn.Identity(), (given.logits, given.target), ["weighted_kappa(power=2)", "f1"])
    expected = sk.cohen_kappa_score(given.target, given.logits.argmax(1), weights="quadratic")
    assert found["weighted_kappa(power=2)"] == pytest.approx(expected, abs=1e-12)
    assert found["f1"] == pytest.approx(sk.f1_score(given.target, given.logits.argmax(1), average="macro"))


def test_the_best_threshold_of_two_classes_is_found_in_evaluate():
    logits, target = torch.tensor([-2.0, -1.0, 0.5, 1.0, 2.0]), torch.tensor([0, 1, 0, 1, 1])
    data = logits.sigmoid().logit(), target
    for name, same in (("weighted_kappa(power=2)", "kappa"), ("cost_matrix([[0, 1], [5, 0]])", "cost(fp=1, fn=5)")):
        found = evaluate(torch.nn.Identity(), data, [f"best {name}", f"best {same}"])
        ours, other = found.values.values()
        assert ours == pytest.approx(other)


def test_costs_of_one_are_the_error_rate_and_two_classes_have_the_costs_of_cost():
    given = twins.make("multiclass", 40)
    zero_one = metrics.cost_matrix((1 - np.eye(4)).tolist())
    accuracy = MetricLoss("accuracy")(given.logits, given.target, given.weight)
    torch.testing.assert_close(MetricLoss(zero_one)(given.logits, given.target, given.weight), accuracy)
    binary, y = given.logits[:, 0], (given.target == 0).long()
    two, one = metrics.cost_matrix([[0, 1], [10, 0]]), metrics.cost(fp=1, fn=10)
    torch.testing.assert_close(MetricLoss(two)(binary, y), MetricLoss(one)(binary, y))
    counts = Counts.hard(binary, y)
    assert two(counts).item() == one(counts).item()
    softmax = torch.stack([torch.zeros_like(binary), binary], 1)  # two classes with one logit each
    hard = metrics.confusion_matrix(softmax, y)
    assert two(hard).item() == pytest.approx(one(counts).item())


def test_kappa_of_two_classes_is_cohens_for_every_power():
    given = twins.make("multiclass", 40, 2)
    matrix = metrics.confusion_matrix(given.logits, given.target, weight=given.weight)
    kappa = metrics.kappa(ConfusionMatrix(matrix))
    for power in (0.3, 1, 2, 4):
        torch.testing.assert_close(metrics.weighted_kappa(power=power)(matrix), kappa)


def test_a_matrix_is_counts_of_each_class():
    given = twins.make("multiclass", 40)
    counted = count_hard(given.logits, given.target, weight=given.weight, matrix=True)
    plain = Counts.hard(given.logits, given.target, weight=given.weight)
    for cell, expected in zip(counted, plain, strict=True):
        torch.testing.assert_close(cell, expected)
    for name in ("f1", "mcc", "balanced_accuracy", "accuracy"):
        torch.testing.assert_close(get_metric(name)(counted), get_metric(name)(plain))
    micro = averaged(metrics.f1, counted, "micro")
    torch.testing.assert_close(micro, averaged(metrics.f1, plain, "micro"))
    assert counted.to(torch.float32).matrix.dtype == torch.float32
    torch.testing.assert_close(counted.map(torch.neg).fp, -plain.fp)
    doubled = counted + counted
    assert doubled == sum([counted, counted])
    assert doubled != counted
    assert pickle.loads(pickle.dumps(counted)) == copy.deepcopy(counted) == counted
    assert Counts.stack([counted, doubled]).matrix.shape == (2, 4, 4)
    with pytest.raises(ValueError, match=r"counts of shapes \(4, 4\) and \(4,\) do not add"):
        counted + plain


def test_the_memory_adds_matrices_and_survives_a_checkpoint():
    first, second = (twins.make("multiclass", 20, seed=seed) for seed in (1, 2))
    metric = metrics.weighted_kappa(power=2)
    loss = MetricLoss(metric, memory=RunningCounts(decay=0.5))
    loss(first.logits.requires_grad_(), first.target)
    state = copy.deepcopy(loss.state_dict())
    second_loss = loss(second.logits.requires_grad_(), second.target)
    matrices = [metrics.confusion_matrix(each.logits, each.target, soft=True) for each in (first, second)]
    torch.testing.assert_close(second_loss, 1 - metric(0.5 * matrices[0] + matrices[1]))
    resumed = MetricLoss(metric, memory=RunningCounts(decay=0.5))
    resumed.load_state_dict(state)
    torch.testing.assert_close(resumed(second.logits, second.target), second_loss)


@every
def test_chunks_have_the_gradient_of_the_whole_batch(metric):
    given = twins.make("multiclass", 30, dtype=torch.float64)
    model = torch.nn.Linear(4, 4, dtype=torch.float64)
    backward_in_chunks(model, MetricLoss(metric), zip(given.logits.split(11), given.target.split(11), strict=True))
    chunked, model.weight.grad = model.weight.grad, None
    MetricLoss(metric)(model(given.logits), given.target).backward()
    torch.testing.assert_close(chunked, model.weight.grad)


@every
def test_ignored_labels_and_integer_weights(metric):
    given = twins.make("multiclass", 20)
    target = given.target.clone()
    target[4:9] = -100
    kept = target != -100
    ignored = MetricLoss(metric, ignore_index=-100)(given.logits, target)
    torch.testing.assert_close(ignored, MetricLoss(metric)(given.logits[kept], target[kept]))
    times = torch.arange(20) % 3
    repeated = MetricLoss(metric)(given.logits.repeat_interleave(times, 0), given.target.repeat_interleave(times, 0))
    torch.testing.assert_close(MetricLoss(metric)(given.logits, given.target, times), repeated)


@every
def test_pixels_are_samples_and_images_can_be_measured_alone(metric):
    given = twins.make("multiclass", 3, shape=(4, 5))
    flat_logits, flat_target = given.logits.movedim(1, -1).reshape(-1, 4), given.target.reshape(-1)
    torch.testing.assert_close(
        MetricLoss(metric)(given.logits, given.target),
        MetricLoss(metric, step=steps.Identity())(flat_logits, flat_target),  # the default step of images
    )
    each = [MetricLoss(metric)(x.unsqueeze(0), y.unsqueeze(0)) for x, y in zip(given.logits, given.target, strict=True)]
    per_image = MetricLoss(metric, per_image=True)(given.logits, given.target)
    torch.testing.assert_close(per_image, torch.stack(each).mean())
    hard = count_hard(given.logits, given.target, CountSettings(per_image=True), matrix=True)
    for matrix, x, y in zip(hard.matrix, given.logits, given.target, strict=True):
        torch.testing.assert_close(matrix, metrics.confusion_matrix(x.unsqueeze(0), y.unsqueeze(0)))


def test_groups_have_matrices_of_their_own():
    given = twins.make("multiclass", 30)
    group = torch.arange(30) % 3
    settings = {"weight": given.weight, "group": group, "matrix": True}
    batch = given.logits, given.target, CountSettings(groups=3)
    soft, hard = (count(*batch, **settings).matrix for count in (count_soft, count_hard))
    for k in range(3):
        part = group == k
        inputs = given.logits[part], given.target[part]
        torch.testing.assert_close(hard[k], metrics.confusion_matrix(*inputs, weight=given.weight[part]))
        torch.testing.assert_close(soft[k], metrics.confusion_matrix(*inputs, weight=given.weight[part], soft=True))


@every
def test_soft_targets_are_shares_of_the_rows(metric):
    given = twins.make("multiclass", 15)
    shares = torch.softmax(torch.randn(15, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 1)
    loss = MetricLoss(metric, task="multiclass")(given.logits, shares)
    matrix = twins.python_matrix(given.logits.tolist(), shares.tolist(), [1.0] * 15, steps.Linear(0.2))
    value = python_value(metric, matrix)
    assert loss.item() == pytest.approx(value if metric.minimize else 1 - value, abs=1e-12)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_awkward_batches_are_finite(metric, dtype):
    labels = torch.tensor([0, 1, 2, 3, 1])
    batches = {
        "one class": (torch.randn(5, 4), torch.full((5,), 2)),
        "one class, as predicted": (torch.eye(4)[[2] * 5] * 100, torch.full((5,), 2)),
        "equal": (torch.zeros(5, 4), labels),
        "right": (torch.eye(4)[labels] * 1e4, labels),
        "wrong": (torch.eye(4)[(labels + 1) % 4] * 1e4, labels),
        "empty": (torch.zeros(0, 4), labels[:0]),
    }
    for name, (logits, target) in batches.items():
        x = logits.to(dtype).requires_grad_()
        loss = MetricLoss(metric).eval()(x, target)
        loss.backward()
        assert loss.isfinite(), name
        assert x.grad.isfinite().all(), name
        low, high = metric.bounds if metric.minimize else (1 - metric.bounds[1], 1 - metric.bounds[0])
        assert low - 1e-4 <= loss.item() <= high + 1e-4, name


@every
def test_weights_of_all_sizes_give_the_same_value_in_float32(metric):
    given = twins.make("multiclass", 20, dtype=torch.float32)
    values = [
        MetricLoss(metric).eval()(given.logits, given.target, given.weight.float() * size)
        for size in (1e-15, 1.0, 1e15)
    ]
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(values[2], values[1])


@every
def test_compiled_and_vmapped_losses_are_the_eager_ones(metric):
    given = twins.make("multiclass", 12)
    loss = MetricLoss(metric).eval()
    several = torch.stack([given.logits, -given.logits])
    expected = torch.stack([loss(x, given.target) for x in several])
    torch.testing.assert_close(torch.vmap(lambda x: loss(x, given.target))(several), expected)
    gradients = torch.vmap(torch.func.grad(lambda x: loss(x, given.target)))(several)
    x = given.logits.clone().requires_grad_()
    loss(x, given.target).backward()
    torch.testing.assert_close(gradients[0], x.grad)
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(given.logits, given.target), expected[0])


def test_labels_that_do_not_exclude_each_other_are_refused():
    logits, labels = torch.randn(6, 3), torch.randint(0, 2, (6, 3))
    labels[0], labels[1] = 1, 0
    with pytest.raises(ValueError, match=r"independent labels \(multilabel\)"):
        MetricLoss("weighted_kappa(power=2)")(logits, labels)


def test_counts_without_the_matrix_are_refused():
    counts = Counts.hard(torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))
    with pytest.raises(ValueError, match="needs the whole confusion matrix, and Counts of 3 classes hold only"):
        metrics.weighted_kappa(power=2)(counts)
    with pytest.raises(ValueError, match="costs is for 2 classes, but the confusion matrix has 3"):
        MetricLoss(metrics.cost_matrix([[0, 1], [1, 0]]))(torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]))


@pytest.mark.parametrize(
    "text", ["weighted_kappa(power=2) >= 0.9", "cost_matrix(costs=[[0,1,4],[1,0,1],[4,1,0]]) <= 0.1"]
)
def test_a_requirement_on_the_matrix_moves_its_multiplier(text):
    given = twins.make("multiclass", 40, 3)
    loss = AugmentedLagrangian(WeightedCrossEntropyLoss(), [text], mu=0.5)
    x = given.logits.requires_grad_()
    loss(x, given.target).backward()
    assert x.grad.isfinite().all()
    loss.update()
    requirement = parse_requirement(text)
    violation = float(requirement.violation(ConfusionMatrix(metrics.confusion_matrix(x, given.target))))
    assert violation > 0
    (multiplier,) = (value for name, value in loss.state_dict().items() if name.endswith("multiplier"))
    assert float(multiplier) == pytest.approx(0.5 * violation)


def test_a_gap_between_groups_uses_the_matrices_of_the_groups():
    given = twins.make("multiclass", 40, 3)
    group = torch.arange(40) % 2
    gap = metrics.weighted_kappa(power=2).gap(2)
    counts = count_hard(given.logits, given.target, CountSettings(groups=2), group=group, matrix=gap.needs_matrix)
    values = [
        sk.cohen_kappa_score(given.target[group == k], given.logits[group == k].argmax(1), weights="quadratic")
        for k in range(2)
    ]
    assert gap(counts).item() == pytest.approx(abs(values[0] - values[1]))


def test_a_users_metric_of_counts_works_on_a_matrix():
    own = metrics.get_metric(lambda c: c.tp / c.fp)
    matrix = ConfusionMatrix(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
    assert own(matrix).tolist() == [0.0, 2.0]  # 0 / 0 is 0


def call_often(loss, batches, target):
    for logits in batches:
        loss(logits.clone().requires_grad_(), target)


def test_a_loss_that_stalls_or_gives_up_a_class_says_so():
    metric, target = metrics.weighted_kappa(power=2), torch.tensor([0, 1, 2, 3])
    with pytest.warns(StalledLossWarning, match="it started at"):
        call_often(MetricLoss(metric), [torch.zeros(4, 4)] * 128, target)
    without_class_3 = 20.0 * torch.tensor([[1.0, 0, 0, -1], [0, 1, 0, -1], [0, 0, 1, -1], [0, 0, 1, -1]])
    with pytest.warns(StalledLossWarning, match="class 3 of 4 is hardly ever predicted"):
        call_often(MetricLoss(metric), [torch.zeros(4, 4)] * 10 + [without_class_3] * 118, target)
