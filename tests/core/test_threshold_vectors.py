"""PerLabel and ThresholdGrid: each label at its own threshold is that label alone, and lists that mean two things."""

import copy

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from metricfit import AugmentedLagrangian, Counts, MetricLoss, RunningCounts, evaluate, losses, steps
from metricfit.constraints import RequirementConstraint
from metricfit.decide import LabelDecision, OffsetDecision, RowCostDecision, ThresholdDecision
from metricfit.metrics import Accumulator, PerLabel, ThresholdGrid
from metricfit.train import Monitor

THRESHOLDS = [0.2, 0.5, 0.93]


def batch(n=40, dtype=torch.float32, shape=()):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 3, *shape, generator=generator, dtype=dtype)
    target = (logits + torch.randn(n, 3, *shape, generator=generator, dtype=dtype) > 0.5).to(dtype)
    return logits.requires_grad_(), target, torch.rand(n, generator=generator, dtype=dtype)


def one_by_one(function, logits, target, **settings):
    counts = [
        function(logits[:, label], target[:, label], threshold=threshold, **settings)
        for label, threshold in enumerate(THRESHOLDS)
    ]
    return Counts(*(torch.cat(cells) for cells in zip(*(each.tensors for each in counts), strict=True)))


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_counts_are_those_of_each_label_alone(any_step, weighted):
    logits, target, weight = batch(dtype=torch.float64)
    weight = weight if weighted else None
    together = Counts.soft(logits, target, threshold=PerLabel(THRESHOLDS), step=any_step, weight=weight)
    alone = one_by_one(Counts.soft, logits, target, step=any_step, weight=weight)
    for cell, expected in zip(together.tensors, alone.tensors, strict=True):
        torch.testing.assert_close(cell, expected)
        factors = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
        gradients = [
            torch.autograd.grad((each * factors).sum(), logits, retain_graph=True) for each in (cell, expected)
        ]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("shape", [(), (70, 70)], ids=["labels", "images"])
def test_long_columns_are_counted_by_the_kernel_of_the_cpu(shape):
    n = 2 if shape else 5000
    logits, target, weight = batch(n=n, dtype=torch.float64, shape=shape)
    settings = {"threshold": PerLabel(THRESHOLDS), "task": "multilabel", "per_image": bool(shape), "weight": weight}
    of_kernel = Counts.soft(logits, target, **settings)
    plain = Counts.soft(logits, target, step=Subclass(0.1), **settings)
    gradients = []
    for counts in (of_kernel, plain):
        gradients.append(torch.autograd.grad((counts.tp - 2 * counts.fp).sum(), logits)[0])
    torch.testing.assert_close(of_kernel.tensors, plain.tensors)
    torch.testing.assert_close(*gradients)
    (first,) = torch.autograd.grad(Counts.soft(logits, target, **settings).tp.sum(), logits, create_graph=True)
    assert first.requires_grad


class Subclass(steps.Linear):
    """Called in plain operations, because it might compute something else."""


def test_counts_stay_in_the_type_of_the_logits():
    logits, target, _ = batch()
    assert Counts.soft(logits, target, threshold=PerLabel(THRESHOLDS)).tp.dtype == torch.float32

    class Own(steps.Step):
        def forward(self, p, threshold=0.5):
            assert threshold.dtype == p.dtype
            return torch.sigmoid(9 * (p - threshold))

    assert Counts.soft(logits, target, threshold=PerLabel(THRESHOLDS), step=Own()).tp.dtype == torch.float32


@pytest.mark.parametrize("thresholds", [THRESHOLDS, np.array(THRESHOLDS), torch.tensor(THRESHOLDS), tuple(THRESHOLDS)])
def test_hard_counts_are_those_of_each_label_alone(thresholds):
    logits, target, weight = batch()
    together = Counts.hard(logits, target.bool(), threshold=PerLabel(thresholds), weight=weight)
    alone = one_by_one(Counts.hard, logits, target, weight=weight)
    assert all(map(torch.equal, together.tensors, alone.tensors))


def test_images_groups_and_ignored_labels():
    logits, target, _ = batch(n=6, shape=(4, 5))
    rows = [each.movedim(1, 3).reshape(-1, 3) for each in (logits, target)]
    at = {"task": "multilabel", "threshold": PerLabel(THRESHOLDS)}
    whole, images = (Counts.soft(logits, target, per_image=each, **at) for each in (False, True))
    torch.testing.assert_close(whole.tp, one_by_one(Counts.soft, *rows).tp)
    torch.testing.assert_close(images.tp.sum(0), whole.tp)
    marked = torch.where(torch.rand(target.shape, generator=torch.Generator().manual_seed(1)) < 0.3, -1.0, target)
    ignored = Counts.hard(logits, marked, ignore_index=-1, **at)
    flat = marked.movedim(1, 3).reshape(-1, 3)
    for label, threshold in enumerate(THRESHOLDS):
        kept = flat[:, label] >= 0
        alone = Counts.hard(rows[0][kept, label], flat[kept, label], threshold=threshold)
        assert [float(cell[label]) for cell in ignored.tensors] == [float(cell) for cell in alone.tensors]
    grouped = Counts.hard(*rows, group=torch.arange(120) % 2, threshold=PerLabel(THRESHOLDS))
    assert torch.equal(grouped.tp.sum(0), Counts.hard(logits, target, **at).tp)


def test_extreme_thresholds_keep_the_loss_finite():
    logits, target, _ = batch()
    loss = MetricLoss("f1", threshold=PerLabel([1e-12, 0.5, 1 - 1e-12]))(logits, target)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_a_loss_keeps_them_in_a_buffer():
    logits, target, _ = batch()
    loss = MetricLoss("f1", threshold=PerLabel(THRESHOLDS))
    counts = one_by_one(Counts.soft, logits, target)
    expected = 1 - (2 * counts.tp / (2 * counts.tp + counts.fp + counts.fn)).mean()
    torch.testing.assert_close(loss(logits, target), expected)
    assert repr(loss) == "MetricLoss('f1', threshold=PerLabel([0.2, 0.5, 0.93]))"
    equal = PerLabel([0.5, 0.5, 0.5])
    other, third = MetricLoss("f1", threshold=equal), MetricLoss("f1", threshold=equal)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(copy.deepcopy(other)(logits, target), loss(logits, target))
    assert third.threshold.tolist() == equal.tolist() == [0.5, 0.5, 0.5]  # loading changed one loss only
    with_memory = MetricLoss("f1", threshold=PerLabel(THRESHOLDS), memory=RunningCounts())
    torch.testing.assert_close(with_memory(logits, target), loss(logits, target))
    statistics = [loss.statistics(logits[part], target[part]) for part in (slice(9), slice(9, None))]
    torch.testing.assert_close(loss.value(sum(statistics)), loss(logits, target))


def test_compiled_and_vmapped():
    logits, target, _ = batch()
    loss = MetricLoss("f1", threshold=PerLabel(THRESHOLDS))
    value = torch.compile(loss, backend="aot_eager", fullgraph=True)(logits, target)
    torch.testing.assert_close(torch.autograd.grad(value, logits), torch.autograd.grad(loss(logits, target), logits))
    stacked = torch.stack([logits.detach(), -logits.detach()])
    gradients = torch.vmap(torch.func.grad(lambda x: loss(x, target)))(stacked)
    for x, gradient in zip(stacked, gradients, strict=True):
        torch.testing.assert_close(gradient, torch.func.grad(lambda x: loss(x, target))(x))


def test_thresholds_can_be_learned():
    logits, target, _ = batch(dtype=torch.float64)
    thresholds = torch.nn.Parameter(torch.tensor(THRESHOLDS, dtype=torch.float64))
    loss = MetricLoss("f1", step=steps.Sigmoid(5), threshold=PerLabel(thresholds))
    assert dict(loss.named_parameters()).keys() == {"threshold"}
    (gradient,) = torch.autograd.grad(loss(logits, target), thresholds)
    for label in range(3):
        moved = [list(THRESHOLDS), list(THRESHOLDS)]
        moved[0][label] += 1e-6
        moved[1][label] -= 1e-6
        up, down = (
            MetricLoss("f1", step=steps.Sigmoid(5), threshold=PerLabel(each))(logits, target).item() for each in moved
        )
        assert float(gradient[label]) == pytest.approx((up - down) / 2e-6, rel=1e-5)


def test_an_accumulator_is_scikit_learns_and_saves_them():
    logits, target, _ = batch()
    quality = Accumulator("f1", threshold=PerLabel(THRESHOLDS))
    for part in (slice(15), slice(15, None)):
        quality.update(logits[part], target[part].long())
    decided = (logits.sigmoid() >= torch.tensor(THRESHOLDS)).long()
    assert float(quality.compute()) == pytest.approx(f1_score(target, decided, average="macro"))
    again = Accumulator("f1", threshold=PerLabel([0.5] * 3))
    again.load_state_dict(quality.half().state_dict())
    assert again.threshold.tolist() == THRESHOLDS
    assert again.compute() == quality.compute()
    grid = Accumulator("f1", threshold=ThresholdGrid([0.2, 0.5]))
    grid.update(logits, target)
    expected = [f1_score(target, logits.detach().sigmoid() >= t, average="macro") for t in (0.2, 0.5)]
    assert grid.compute().tolist() == pytest.approx(expected)


def test_a_requirement_is_kept_at_them():
    logits, target, _ = batch()
    recall = RequirementConstraint("recall >= 0.9", threshold=PerLabel(THRESHOLDS))
    value, violation = recall.measure(logits, target)
    counts = one_by_one(Counts.hard, logits, target)
    expected = counts.tp / counts.positives
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(violation, (0.9 - expected).clamp(min=0))
    loss = AugmentedLagrangian(losses.WeightedBCELoss(), [recall])
    loss(logits, target).backward()
    loss.update()
    assert "constraints.0.threshold" in loss.state_dict()


def test_a_grid_is_the_mean_over_its_thresholds():
    logits, target, _ = batch()
    grid = MetricLoss("f1", threshold=ThresholdGrid(THRESHOLDS))
    expected = torch.stack([MetricLoss("f1", threshold=t)(logits, target) for t in THRESHOLDS]).mean()
    torch.testing.assert_close(grid(logits, target), expected)
    assert repr(grid) == "MetricLoss('f1', threshold=ThresholdGrid([0.2, 0.5, 0.93]))"
    two = [MetricLoss("f1", threshold=each)(logits, target) for each in ([0.2, 0.5], ThresholdGrid([0.2, 0.5]))]
    assert torch.equal(*two)


@pytest.mark.parametrize("numbers", [THRESHOLDS, torch.tensor(THRESHOLDS)], ids=["list", "tensor"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, y, t: MetricLoss("f1", threshold=t)(x, y),
        lambda x, y, t: Counts.soft(x, y, threshold=t),
        lambda x, y, t: Counts.hard(x, y, threshold=t),
        lambda x, y, t: Accumulator("f1", threshold=t).update(x, y),
    ],
    ids=["loss", "soft", "hard", "accumulator"],
)
def test_a_list_with_two_meanings_is_refused(call, numbers):
    logits, target, _ = batch()
    with pytest.raises(ValueError, match=r"two things: .*metrics\.PerLabel\(\[.*metrics\.ThresholdGrid\(\["):
        call(logits, target, numbers)


def test_equal_thresholds_are_equal():
    assert PerLabel([0.2, 0.5]) == PerLabel(torch.tensor([0.2, 0.5], dtype=torch.float64)) != PerLabel([0.2, 0.6])
    assert hash(PerLabel([0.2, 0.5])) == hash(PerLabel((0.2, 0.5)))
    assert ThresholdGrid([0.2, 0.5]) == ThresholdGrid(np.array([0.2, 0.5]))
    assert PerLabel(PerLabel([0.2])) == PerLabel([0.2]) != ThresholdGrid([0.2])


X, Y = batch()[0].detach(), batch()[1]
WRONG = {
    "nan": (lambda: PerLabel([0.1, float("nan")]), ValueError, "a threshold is NaN"),
    "logit": (
        lambda: PerLabel([0.1, -1.5]),
        ValueError,
        "needs probabilities, got -1.5; pass a decide.Decision.*PerLabel.from_logits",
    ),
    "number": (lambda: PerLabel(0.3), ValueError, "a list of numbers, got shape"),
    "empty": (lambda: PerLabel([]), ValueError, "a list of numbers, got shape"),
    "text": (lambda: PerLabel(["low"]), TypeError, "a list of numbers, got"),
    "matrix": (lambda: ThresholdGrid([[0.1]]), ValueError, r"got shape \(1, 1\)"),
    "logits": (lambda: MetricLoss("f1", threshold=PerLabel([0.1, -1.0])), ValueError, "PerLabel.from_logits"),
    "grid": (lambda: MetricLoss("f1", threshold=ThresholdGrid([0.1, 1.0])), ValueError, "strictly between 0 and 1"),
    "soft": (lambda: Counts.soft(X, Y, threshold=PerLabel([0.1, 0.5, 1.0])), ValueError, "strictly between 0 and 1"),
    "length": (lambda: MetricLoss("f1", threshold=PerLabel([0.1, 0.5]))(X, Y), ValueError, "2 thresholds for 3 labels"),
    "one": (lambda: Counts.hard(X, Y, threshold=PerLabel([0.1])), ValueError, "1 threshold for 3 labels"),
    "binary": (lambda: Counts.hard(X[:, 0], Y[:, 0], threshold=PerLabel([0.1, 0.5])), ValueError, "for 1 output"),
    "classes": (
        lambda: MetricLoss("f1", threshold=PerLabel(THRESHOLDS))(X, Y.argmax(1)),
        ValueError,
        "classes exclude each other.*task='multilabel'",
    ),
    "requirement": (
        lambda: RequirementConstraint("recall >= 0.9", threshold=ThresholdGrid([0.1])),
        TypeError,
        "at one threshold",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_thresholds_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_one_output_takes_one_threshold_and_hard_decisions_any_number():
    one = Counts.hard(X[:, :1], Y[:, :1], threshold=PerLabel([0.3]))
    assert torch.equal(one.tp, Counts.hard(X[:, 0], Y[:, 0], threshold=0.3).tp)
    never = Counts.hard(X, Y, threshold=PerLabel([0.0, 0.5, float("inf")]))
    assert never.predicted[[0, 2]].tolist() == [40, 0]


def test_logits_become_probabilities():
    exact = PerLabel.from_logits(torch.tensor([-1.0, 2.0]))
    assert exact.tolist() == pytest.approx(torch.tensor([-1.0, 2.0], dtype=torch.float64).sigmoid().tolist())
    assert PerLabel.from_logits([float("inf"), 0.0]).tolist() == [float("inf"), 0.5]


def test_the_thresholds_of_a_decision_are_converted():
    """Thresholds of logits between 0 and 1 look like probabilities, so a decision is passed itself."""
    logits, target, _ = batch()
    thresholds = torch.tensor([0.1, 0.8, 0.4])
    decision = LabelDecision(thresholds)
    decided = (logits.detach() >= thresholds).long()
    expected = [Counts.from_labels(decided[:, k], target[:, k]).tp.item() for k in range(3)]
    for threshold in (decision, PerLabel(decision), PerLabel.from_logits(decision), PerLabel.from_logits(thresholds)):
        assert Counts.hard(logits, target, threshold=threshold).tp.tolist() == expected
    assert PerLabel(decision).tolist() == pytest.approx(thresholds.double().sigmoid().tolist())
    at_them = PerLabel.from_logits(thresholds)
    values = Accumulator("f1", threshold=decision), Accumulator("f1", threshold=at_them)
    for accumulator in values:
        accumulator.update(logits, target)
    assert values[0].compute() == values[1].compute() == Monitor("f1", threshold=decision).measure(logits, target).value
    data = logits.detach(), target
    assert evaluate(nn.Identity(), data, threshold=decision)["f1"] == values[0].compute().item()
    loss = MetricLoss("f1", threshold=decision)
    assert torch.equal(loss(logits, target), MetricLoss("f1", threshold=at_them)(logits, target))
    assert loss.per_label


def test_a_decision_of_two_classes_and_of_several():
    logits, target, _ = batch()
    decision = ThresholdDecision(0.4)
    counts = Counts.hard(logits[:, 0], target[:, 0], threshold=decision)
    assert counts.predicted.item() == (logits[:, 0] >= 0.4).sum()
    measured = evaluate(nn.Identity(), (logits.detach()[:, :1], target[:, 0]), "f1", threshold=decision)
    assert measured.threshold == pytest.approx(1 / (1 + np.exp(-0.4)))
    with pytest.raises(ValueError, match="this decision is for two classes"):
        PerLabel(decision)
    classes = OffsetDecision(torch.zeros(3))
    with pytest.raises(ValueError, match=r"Counts\.from_labels\(decision\.decide\(logits\), target, num_classes=3\)"):
        evaluate(nn.Identity(), (logits.detach(), target.argmax(1)), threshold=classes)
    with pytest.raises(ValueError, match="costs of each row"):
        Counts.hard(logits, target, threshold=RowCostDecision(0.0))


def test_many_thresholds_have_a_short_text():
    many = PerLabel(np.linspace(0.001, 0.999, 1000))
    assert len(repr(many)) < 250
    assert repr(many).endswith("..., 0.999], 1000 labels)")
    assert len(repr(MetricLoss("f1", threshold=many))) < 300
    assert repr(PerLabel([0.2, 0.5])) == "PerLabel([0.2, 0.5])"
