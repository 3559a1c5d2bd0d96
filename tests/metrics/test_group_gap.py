"""The largest difference of a metric between groups, against scikit-learn group by group."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score, precision_score, recall_score
from torch.nn import CrossEntropyLoss, Identity

from metricfit import (
    AugmentedLagrangian,
    Counts,
    MetricClassifier,
    MetricLoss,
    best_threshold,
    get_metric,
    metric,
    metrics,
    parse_requirement,
    score,
)
from metricfit.core.confusion import ConfusionMatrix
from metricfit.decide import best_decision
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.losses.calling import accepted_arguments
from metricfit.metrics import averaged
from metricfit.train import evaluate

SCORES = {"recall": recall_score, "precision": precision_score, "f1": f1_score, "accuracy": accuracy_score}


def rows(n=200, groups=3, classes=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (n,) if classes is None else (n, classes)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64)
    target = torch.randint(2 if classes is None else classes, (n,), generator=generator)
    return logits, target, torch.randint(groups, (n,), generator=generator)


def by_scikit_learn(score, predicted, target, group, **settings):
    values = [score(target[group == k], predicted[group == k], **settings) for k in np.unique(group)]
    return max(values) - min(values)


@pytest.mark.parametrize("name", SCORES)
def test_the_gap_is_the_largest_difference_of_scikit_learns_values(name):
    logits, target, group = rows()
    counts = Counts.hard(logits, target, group=group, groups=3)
    expected = by_scikit_learn(SCORES[name], (logits >= 0).numpy(), target.numpy(), group.numpy())
    assert get_metric(name).gap(3)(counts).tolist() == pytest.approx([expected])
    assert float(averaged(get_metric(f"{name}.gap(3)"), counts)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["recall", "f1", "accuracy"])
def test_of_several_classes_the_average_is_taken_in_each_group_first(name):
    logits, target, group = rows(classes=4)
    counts = Counts.hard(logits, target, group=group, groups=3)
    settings = {} if name == "accuracy" else {"average": "macro"}
    expected = by_scikit_learn(SCORES[name], logits.argmax(1).numpy(), target.numpy(), group.numpy(), **settings)
    assert float(averaged(get_metric(name).gap(3), counts)) == pytest.approx(expected)
    per_class = [recall_score(target[group == k], logits[group == k].argmax(1), average=None) for k in range(3)]
    np.testing.assert_allclose(metrics.recall.gap(3)(counts), np.ptp(per_class, axis=0))
    np.testing.assert_allclose(metrics.recall[1].gap(3)(counts), np.ptp(per_class, axis=0)[1:2])


def test_groups_without_the_needed_samples_are_left_out():
    counts = Counts(tp=[[8], [6], [0]], fp=[[1], [1], [3]], fn=[[2], [4], [0]], tn=[[5], [5], [5]])
    assert metrics.recall.gap(3)(counts).item() == pytest.approx(0.2)  # the third group has no positives
    one_group = counts.map(lambda cell: cell * np.array([[1.0], [0.0], [0.0]]))
    assert metrics.recall.gap(3)(one_group).item() == 0.0


RATES = {
    "precision": lambda tp, fp, fn, tn: (tp, tp + fp),
    "recall": lambda tp, fp, fn, tn: (tp, tp + fn),
    "f1": lambda tp, fp, fn, tn: (2 * tp, 2 * tp + fp + fn),
    "fbeta(beta=2)": lambda tp, fp, fn, tn: (5 * tp, 5 * tp + fp + 4 * fn),
    "jaccard": lambda tp, fp, fn, tn: (tp, tp + fp + fn),
    "accuracy": lambda tp, fp, fn, tn: (tp + tn, tp + fp + fn + tn),
    "selection_rate": lambda tp, fp, fn, tn: (tp + fp, tp + fp + fn + tn),
    "specificity": lambda tp, fp, fn, tn: (tn, tn + fp),
    "fpr": lambda tp, fp, fn, tn: (fp, tn + fp),
    "fnr": lambda tp, fp, fn, tn: (fn, tp + fn),
    "npv": lambda tp, fp, fn, tn: (tn, tn + fn),
    "tp / (tp + fp)": lambda tp, fp, fn, tn: (tp, tp + fp),
}


@pytest.mark.parametrize("name", RATES)
def test_a_group_is_left_out_only_where_the_metric_is_0_over_0(name):
    """fairlearn's differences are the same where no group is 0/0."""
    numbers = np.random.default_rng(0).integers(0, 3, (400, 3, 4)) * [3, 2, 1, 5]
    for groups in numbers.tolist():
        rates = [RATES[name](*cells) for cells in groups]
        values = [over / under for over, under in rates if under]
        expected = max(values) - min(values) if len(values) > 1 else 0.0
        counts = Counts(*torch.tensor(groups, dtype=torch.float64).unsqueeze(-1).unbind(1))
        assert get_metric(name).gap(3)(counts).item() == pytest.approx(expected, abs=1e-12)


def test_a_group_whose_alarms_are_all_wrong_violates_a_requirement():
    counts = Counts(tp=[[3], [0]], fp=[[0], [4]], fn=[[1], [0]], tn=[[5], [5]])
    for name in ("precision", "f1"):
        assert not parse_requirement(f"{name}.gap(2) <= 0.5").holds(counts)


def test_a_matrix_metric_leaves_out_groups_in_which_it_is_0_over_0():
    matrices = torch.tensor([[[4.0, 1, 0], [1, 3, 1], [0, 0, 2]], [[0, 0, 0], [0, 5, 0], [0, 0, 0]], [[2, 2, 2]] * 3])
    kappas = [get_metric("weighted_kappa")(matrix) for matrix in matrices[[0, 2]]]
    gap = get_metric("weighted_kappa").gap(3)(ConfusionMatrix(matrices))
    assert gap.item() == pytest.approx(float(kappas[0] - kappas[1]))
    assert get_metric("cost_matrix(costs=[[0, 1, 2], [1, 0, 1], [2, 1, 0]])").gap(3)(
        ConfusionMatrix(matrices)
    ).item() == pytest.approx(8 / 9)


def test_its_gradient_is_that_of_the_two_extreme_groups():
    logits, target, group = rows(60)
    x = logits.requires_grad_()

    def gap(values):
        return metrics.recall.gap(3)(Counts.soft(values, target, group=group, groups=3)).sum()

    assert torch.autograd.gradcheck(gap, (x,))
    assert torch.autograd.gradcheck(lambda v: MetricLoss("recall.gap(3)")(v, target, group=group), (x,))
    gap(x).backward()
    recalls = metrics.recall(Counts.soft(logits, target, group=group, groups=3)).flatten()
    middle = recalls.argsort()[1]
    assert x.grad[group == middle].abs().sum() == 0
    assert x.grad[(group != middle) & (target == 1)].abs().sum() > 0


def test_without_two_groups_the_gradient_is_zero_and_finite():
    logits, target, _ = rows(20)
    x = logits.requires_grad_()
    loss = MetricLoss("recall.gap(2)")(x, target, group=torch.zeros(20, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.tolist() == [0.0] * 20


def test_names_equality_text_and_copies():
    gap = metrics.fbeta(beta=2).gap(["women", "men"])
    assert str(gap) == "fbeta(beta=2).gap(['women', 'men'])"
    assert get_metric(str(gap)) == gap
    assert hash(get_metric(str(gap))) == hash(gap)
    assert gap != metrics.fbeta(beta=2).gap(2)
    assert metrics.recall.gap(2) != metrics.recall
    for copied in (copy.deepcopy(gap), pickle.loads(pickle.dumps(gap))):
        assert copied == gap
        assert copied.group_names == ("women", "men")
    assert gap.minimize
    assert metrics.mcc.gap(2).bounds == (0.0, 2.0)
    assert parse_requirement("recall[1].gap(2) <= 0.05").metric == metrics.recall.gap(2)[1]


def test_a_users_metric_has_a_gap_too():
    @metric
    def own_share(c):
        return c.predicted / c.n

    logits, target, group = rows()
    counts = Counts.hard(logits, target, group=group, groups=3)
    shares = [float((logits[group == k] >= 0).double().mean()) for k in range(3)]
    assert own_share.gap(3)(counts).item() == pytest.approx(max(shares) - min(shares))


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (1, ValueError, "at least two groups"),
        (True, TypeError, "number of groups or a list of their names"),
        (2.0, TypeError, "pass the group of each row as group="),
        (np.array([0, 1, 0]), TypeError, "pass the group of each row as group="),
        (["a"], ValueError, "at least two groups"),
        ([0, 1, 0, 1], ValueError, "pass the group of each row as group="),
        ([0.5, 1.5], TypeError, "texts or integers"),
    ],
)
def test_wrong_groups_are_refused(groups, error, message):
    with pytest.raises(error, match=message):
        metrics.recall.gap(groups)


def test_counts_without_groups_and_gaps_of_gaps_are_refused():
    with pytest.raises(ValueError, match=r"one row per group; got \(1,\)"):
        metrics.recall.gap(2)(Counts(tp=1, fp=1, fn=1, tn=1))
    with pytest.raises(TypeError, match="difference between groups already"):
        metrics.recall.gap(2).gap(2)
    with pytest.raises(TypeError, match="called on Counts"):
        metrics.recall.gap(2)([1, 2])


def test_a_loss_takes_groups_only_for_a_gap():
    logits, target, group = rows()
    gap = MetricLoss("recall.gap(3)")
    assert accepted_arguments(gap).group
    assert not accepted_arguments(MetricLoss("f1")).group
    mixed = Mix((WeightedBCELoss(), 1.0), (gap, 0.5))(logits, target, group=group)
    assert mixed.item() == pytest.approx(
        float(WeightedBCELoss()(logits, target) + 0.5 * gap(logits, target, group=group))
    )
    several = MetricLoss("recall.gap(3)", threshold=[0.3, 0.6])(logits, target, group=group)
    apart = [MetricLoss("recall.gap(3)", threshold=t)(logits, target, group=group) for t in (0.3, 0.6)]
    assert several.item() == pytest.approx(float(sum(apart) / 2))
    with pytest.raises(ValueError, match="pass group=, one number per row"):
        gap(logits, target)
    with pytest.raises(ValueError, match="f1 has no groups"):
        MetricLoss("f1")(logits, target, group=group)
    with pytest.raises(ValueError, match="not images"):
        MetricLoss("recall.gap(3)", per_image=True)


def test_one_decision_for_all_rows_refuses_gaps():
    logits, target, _ = rows()
    for choose in (best_threshold, best_decision):
        with pytest.raises(ValueError, match="best_group_thresholds"):
            choose(logits, target, "f1", subject_to="recall.gap(2) <= 0.1")
        with pytest.raises(ValueError, match="is between groups"):
            choose(logits, target, "recall.gap(2)")
    with pytest.raises(ValueError, match="bounds a rate from one side"):
        best_decision(logits, target, "f1", subject_to="recall == 0.5", confidence=0.9)
    with pytest.raises(ValueError, match="best_group_thresholds"):
        MetricClassifier("f1", subject_to="recall.gap(2) <= 0.1").fit(logits[:, None].numpy(), target.numpy())


def test_the_gap_of_a_metric_of_the_whole_matrix():
    logits, target, group = rows(classes=3)
    kappas = [
        cohen_kappa_score(target[group == k], logits[group == k].argmax(1), weights="quadratic") for k in range(3)
    ]
    loss = AugmentedLagrangian(
        CrossEntropyLoss(), "weighted_kappa(power=2).gap(3) <= 0.01", mu=1.0, update_on="held_out"
    )
    loss(logits, target, group=group)
    loss.observe_held_out(logits, target, group=group)
    loss.update()
    (multiplier,) = loss.multipliers.values()
    assert multiplier.item() == pytest.approx(np.ptp(kappas) - 0.01)
    assert evaluate(Identity(), (logits, target), metrics.weighted_kappa(power=2).gap(3), groups=group).values == {
        "weighted_kappa(power=2).gap(3)": pytest.approx(np.ptp(kappas))
    }


def test_the_remedy_of_a_gap_works():
    logits, y, group = np.array([1.0, -1.0, 2.0, -3.0]), np.array([1, 1, 1, 0]), np.array([0, 0, 1, 1])
    gap = metrics.recall.gap(2)
    remedy = r"Counts\.hard\(logits, target, group=group, groups=2\)"
    calls = [lambda: gap(logits, y), lambda: gap(logits), lambda: gap.score(y, y), lambda: score(logits, y, gap)]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=remedy):
            call()
    assert gap(Counts.hard(logits, y, group=group, groups=2)).tolist() == [0.5]
