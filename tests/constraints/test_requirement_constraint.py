"""Requirements as constraints: soft counts in the term, hard counts in the update, by hand."""

import pytest
import torch

from metricfit import AugmentedLagrangian, Counts, RunningCounts, metric, metrics, steps
from metricfit.constraints import RequirementConstraint

MU = torch.tensor(0.5, dtype=torch.float64)


def batches(classes=None, n=40, count=3):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        shape = (n,) if classes is None else (n, classes)
        yield (
            torch.randn(*shape, generator=generator, dtype=torch.float64),
            torch.randint(2 if classes is None else classes, (n,), generator=generator),
        )


def value_by_hand(name, table):
    tp, fp, fn, tn = table
    return {"recall": tp / (tp + fn), "precision": tp / (tp + fp), "fpr": fp / (fp + tn)}[name]


@pytest.mark.parametrize("classes", [None, 3], ids=["binary", "multiclass"])
@pytest.mark.parametrize(
    ("name", "sense", "bound"), [("recall", ">=", 0.9), ("precision", ">=", 0.8), ("fpr", "<=", 0.1)]
)
def test_terms_and_updates_follow_the_formula(name, sense, bound, classes):
    constraint = RequirementConstraint(f"{name} {sense} {bound}")
    sign = 1 if sense == ">=" else -1
    multiplier = torch.zeros(classes or 1, dtype=torch.float64)
    for _ in range(3):
        hard = 0
        for logits, target in batches(classes, count=2):
            soft = torch.stack(tuple(Counts.soft(logits, target)))
            g = sign * (bound - value_by_hand(name, soft))
            expected = (((multiplier + MU * g).clamp(min=0) ** 2 - multiplier**2) / (2 * MU)).sum()
            torch.testing.assert_close(constraint(logits, target, MU), expected)
            hard = hard + torch.stack(tuple(Counts.hard(logits, target)))
        constraint.update(MU)
        multiplier = (multiplier + MU * sign * (bound - value_by_hand(name, hard))).clamp(min=0)
        torch.testing.assert_close(constraint.multiplier, multiplier)
    assert multiplier.any()


def test_the_gradient_is_the_next_multiplier_times_the_soft_slope():
    constraint = RequirementConstraint("recall >= 0.9", step=steps.Sigmoid(k=5))
    (logits, target), *_ = batches()
    constraint(logits, target, MU)
    constraint.multiplier.fill_(0.7)
    x = logits.clone().requires_grad_()
    found = torch.autograd.grad(constraint(x, target, MU), x)[0]
    counts = Counts.soft(x, target, step=steps.Sigmoid(k=5))
    recall = metrics.recall(counts)
    slope = torch.autograd.grad(-recall.sum(), x)[0]
    torch.testing.assert_close(found, (0.7 + MU * (0.9 - recall)).item() * slope)


def test_a_requirement_on_one_class_or_on_an_average():
    (logits, target), *_ = batches(classes=3)
    hard = Counts.hard(logits, target)
    for requirement, average, value in [
        ("recall[2] >= 0.9", None, metrics.recall(hard)[2:]),
        ("recall >= 0.9", "macro", metrics.recall(hard).mean()),
        ("recall >= 0.9", "micro", hard.tp.sum() / 40),
        ("accuracy >= 0.9", None, hard.tp.sum() / 40),
    ]:
        constraint = RequirementConstraint(requirement, average=average)
        constraint(logits, target, MU)
        constraint.update(MU)
        torch.testing.assert_close(constraint.multiplier, MU * (0.9 - value))


def test_a_matrix_for_each_column_of_a_multilabel_problem():
    logits, target = torch.randn(50, 2, dtype=torch.float64), torch.randint(2, (50, 2))
    constraint = RequirementConstraint("mcc >= 0.9")
    total = constraint(logits, target, MU)
    constraint.update(MU)
    apart = [RequirementConstraint("mcc >= 0.9") for _ in range(2)]
    torch.testing.assert_close(total, sum(one(logits[:, k], target[:, k], MU) for k, one in enumerate(apart)))
    for one in apart:
        one.update(MU)
    torch.testing.assert_close(constraint.multiplier.flatten(), torch.cat([one.multiplier for one in apart]))


def test_every_group_has_a_multiplier():
    (logits, target), *_ = batches()
    group = torch.arange(40) % 3
    loss = AugmentedLagrangian(
        torch.nn.BCEWithLogitsLoss(), [RequirementConstraint("recall >= 0.95", groups=4)], mu=0.5
    )
    loss(logits, target.double(), group=group)
    loss.update()
    (multiplier,) = loss.multipliers.values()
    assert multiplier.shape == (4, 1)
    for k in range(3):
        recall = metrics.recall(Counts.hard(logits[group == k], target[group == k]))
        torch.testing.assert_close(multiplier[k], (0.5 * (0.95 - recall)).clamp(min=0))
    assert multiplier[3].item() == 0  # nobody was in it
    with pytest.raises(ValueError, match="pass group=, one number per row"):
        loss(logits, target.double())


def test_a_class_without_samples_is_left_out():
    constraint = RequirementConstraint("recall >= 0.9")
    logits = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
    value = constraint(logits, torch.zeros(3), MU)
    value.backward()
    constraint.update(MU)
    assert value.item() == 0
    assert logits.grad.tolist() == [0.0] * 3
    assert constraint.multiplier.tolist() == [0.0]
    constraint(torch.tensor([-2.0]), torch.ones(1), MU)
    constraint.update(MU)
    before = constraint.multiplier.clone()
    assert before.item() > 0
    constraint(logits.detach(), torch.zeros(3), MU)
    constraint.update(MU)
    assert torch.equal(constraint.multiplier, before)


def test_updates_without_forwards_and_forwards_without_training_change_nothing():
    constraint = RequirementConstraint("recall >= 0.9")
    constraint.update(MU)
    (logits, target), *_ = batches()
    constraint.eval()(logits, target, MU)
    constraint.train()
    with torch.no_grad():
        constraint(logits, target, MU)
    constraint.update(MU)
    assert constraint.multiplier.tolist() == [0.0]


def test_a_memory_serves_the_soft_counts():
    constraint = RequirementConstraint("recall >= 0.9", memory=RunningCounts(0.5))
    first, second, _ = batches()
    total = torch.stack(tuple(Counts.soft(*first)))
    constraint(*first, MU)
    total = 0.5 * total + torch.stack(tuple(Counts.soft(*second)))
    g = 0.9 - total[0] / (total[0] + total[2])
    torch.testing.assert_close(constraint(*second, MU), (MU * g.clamp(min=0) ** 2 / 2).sum())


def test_the_threshold_is_where_decisions_are_counted():
    (logits, target), *_ = batches()
    constraint = RequirementConstraint("recall >= 0.99", threshold=0.2)
    constraint(logits, target, MU)
    constraint.update(MU)
    recall = metrics.recall(Counts.hard(logits, target, threshold=0.2))
    torch.testing.assert_close(constraint.multiplier, (MU * (0.99 - recall)).clamp(min=0))


def test_a_user_defined_metric_leaves_out_absent_classes_too():
    @metric
    def found(c):
        return c.tp / c.positives.clamp(min=1e-9)

    constraint = RequirementConstraint(found >= 0.9)
    logits, target = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 1])
    constraint(logits, target, MU)
    constraint.update(MU)
    torch.testing.assert_close(constraint.multiplier, torch.tensor([0.45, 0.0, 0.0]))


def test_a_sum_over_several_labels_can_be_bounded():
    logits, target = torch.randn(50, 2, dtype=torch.float64), torch.randint(2, (50, 2))
    constraint = RequirementConstraint("accuracy >= 0.95", average="micro")
    constraint(logits, target, MU)
    constraint.update(MU)
    accuracy = ((logits > 0).long() == target).double().mean()
    torch.testing.assert_close(constraint.multiplier.flatten(), (MU * (0.95 - accuracy)).reshape(1))


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("name", ["mcc", "kappa", "f1"])
def test_an_average_over_several_labels_is_that_of_their_matrices(name, average):
    """The counts of a multilabel batch stay such in the term and in the update."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(50, 3, generator=generator) < torch.tensor([0.2, 0.5, 0.8])).long()
    logits = torch.randn(50, 3, generator=generator, dtype=torch.float64) + target
    constraint = RequirementConstraint(f"{name} >= 0.99", average=average)
    term = constraint(logits, target, MU)
    constraint.update(MU)
    measure = metrics.get_metric(name)
    soft = torch.stack([measure(Counts.soft(logits[:, k], target[:, k])).squeeze() for k in range(3)])
    hard = torch.stack([measure(Counts.hard(logits[:, k], target[:, k])).squeeze() for k in range(3)])
    share = torch.ones(3) if average == "macro" else target.sum(0)
    soft, hard = ((share * value).sum() / share.sum() for value in (soft, hard))
    torch.testing.assert_close(term, MU / 2 * (0.99 - soft) ** 2)
    torch.testing.assert_close(constraint.multiplier, MU * (0.99 - hard))


def test_a_user_defined_metric_knows_whether_classes_are_exclusive():
    seen = []

    def own_hits(c):
        seen.append(c.exclusive)
        return c.tp / c.n

    logits, target = torch.randn(20, 3), torch.randint(2, (20, 3))
    constraint = RequirementConstraint(metric(own_hits) >= 0.9)
    constraint(logits, target, MU)
    constraint.update(MU)
    assert seen
    assert not any(seen)


def test_counts_mean_the_same_after_loading():
    generator = torch.Generator().manual_seed(0)
    logits, target = torch.randn(50, 3, generator=generator), torch.randint(2, (50, 3), generator=generator)
    constraint, loaded = (RequirementConstraint("mcc >= 0.9", average="macro") for _ in range(2))
    constraint(logits, target, MU)
    loaded.load_state_dict(constraint.state_dict())
    for one in (constraint, loaded):
        one.update(MU)
    assert torch.equal(constraint.multiplier, loaded.multiplier)


def test_buffers_move_to_the_device_of_the_batch():
    """As those of a state that was loaded on the CPU, with batches on a GPU."""
    constraint = RequirementConstraint("recall >= 0.9")
    constraint(torch.randn(5, requires_grad=True), torch.ones(5), torch.tensor(0.3))
    for name in ("multiplier", "seen"):
        constraint.made(name, torch.zeros_like(getattr(constraint, name), device="meta"))
    assert {buffer.device.type for buffer in constraint.buffers()} == {"meta"}
