"""Losses over pairs, against loops over pairs."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from metricfit import Counts, curves, steps
from metricfit.core.validation import DivergedError
from metricfit.losses import (
    AveragePrecisionLoss,
    MBAUCLoss,
    Mix,
    PairHingeLoss,
    PairSquareLoss,
    SoftAUROCLoss,
    WeightedBCELoss,
    WMWLoss,
)
from metricfit.losses.accumulation import backward_in_chunks
from metricfit.losses.ranking import PartialAUCLoss

LOSSES = {
    "hinge": (PairHingeLoss(margin=1.5, power=1), lambda a, b: max(0.0, 1.5 - (a - b)), False),
    "squared": (PairHingeLoss(), lambda a, b: max(0.0, 1 - (a - b)) ** 2, False),
    "wmw": (WMWLoss(gamma=0.2, power=3), lambda a, b: max(0.0, 0.2 - (a - b)) ** 3, True),
    "square": (PairSquareLoss(margin=1.5), lambda a, b: (1.5 - (a - b)) ** 2, False),
    "mbauc": (MBAUCLoss(), lambda a, b: (1 - (a - b)) ** 2, True),
}
every = pytest.mark.parametrize("name", LOSSES)
EVERY_LOSS = [each for each, _, _ in LOSSES.values()] + [
    PartialAUCLoss(min_tpr=0.6, max_fpr=0.7),
    AveragePrecisionLoss(margin=0.7),
    SoftAUROCLoss(),
]
every_loss = pytest.mark.parametrize("loss", EVERY_LOSS, ids=repr)


def batch(n=14, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    x[1], x[4] = x[0], x[3]
    return x, (torch.rand(n, generator=generator) < 0.4).long(), torch.rand(n, generator=generator, dtype=torch.float64)


@every
@pytest.mark.parametrize("weighted", [False, True])
def test_value_is_the_mean_over_pairs(name, weighted):
    loss, of_pair, on_probabilities = LOSSES[name]
    x, y, w = batch()
    score = (torch.sigmoid(x) if on_probabilities else x).tolist()
    weight = w.tolist() if weighted else [1.0] * len(x)
    chosen = [(i, j) for i in range(len(x)) for j in range(len(x)) if y[i] == 1 and y[j] == 0]
    total = sum(weight[i] * weight[j] for i, j in chosen)
    expected = sum(weight[i] * weight[j] * of_pair(score[i], score[j]) for i, j in chosen) / total
    assert loss(x, y, weight=w if weighted else None).item() == pytest.approx(expected, rel=1e-10)


@every
def test_gradient_by_differences(name):
    x, y, w = batch(9, seed=3)
    x = (x + 0.01 * torch.arange(9)).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: LOSSES[name][0](given, y, w), x)


@every_loss
@pytest.mark.parametrize("target", [[0] * 4, [1] * 4, []], ids=str)
def test_a_batch_without_pairs_gives_0_and_a_zero_gradient(loss, target):
    x = torch.tensor([0.1, -0.3, 0.5, -0.8])[: len(target)].requires_grad_()
    value = loss(x, torch.tensor(target, dtype=torch.int64))
    (gradient,) = torch.autograd.grad(value, x)
    assert value.item() == 0
    assert not gradient.any()


@every_loss
def test_a_label_without_pairs_adds_0(loss):
    x, y = torch.randn(12, 2, dtype=torch.float64, requires_grad=True), torch.zeros(12, 2).long()
    y[::3, 0] = 1
    value = loss(x, y)
    torch.testing.assert_close(value, loss(x[:, 0], y[:, 0]) / 2)
    assert not torch.autograd.grad(value, x)[0][:, 1].any()


@every_loss
def test_several_labels_give_the_mean_of_their_losses(loss):
    x, y = torch.randn(12, 3, dtype=torch.float64), (torch.rand(12, 3) < 0.5).long()
    expected = sum(loss(x[:, k], y[:, k]) for k in range(3)) / 3
    torch.testing.assert_close(loss(x, y), expected)


@every_loss
def test_a_model_of_a_population_gets_the_gradient_it_gets_alone(loss):
    x, y = torch.randn(4, 30, dtype=torch.float64), (torch.rand(4, 30) < 0.5).long()
    found = torch.func.vmap(torch.func.grad(loss))(x, y)
    for row in range(4):
        torch.testing.assert_close(found[row], torch.func.grad(loss)(x[row], y[row]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@every_loss
def test_compiled(loss):
    x, y, w = batch(30)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    ours, theirs = (torch.autograd.grad(each(x.requires_grad_(), y, w), x) for each in (compiled, loss))
    torch.testing.assert_close(ours, theirs)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types(loss, dtype):
    x = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=dtype, requires_grad=True)
    y = torch.tensor([1, 0, 0, 1])
    value = loss(x, y)
    value.backward()
    assert value.dtype == torch.float32
    assert x.grad.dtype == dtype
    assert value.item() == pytest.approx(loss(x.detach().double(), y).item(), rel=1e-5)


@pytest.mark.parametrize(
    "loss", [PairHingeLoss(), PairSquareLoss(), PartialAUCLoss(min_tpr=0.9), AveragePrecisionLoss()], ids=repr
)
def test_scores_far_from_0_in_float32(loss):
    """Only differences count: an offset changes nothing but the rounding of the scores themselves."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(20_000, generator=generator).mul(64).round() / 64, torch.arange(20_000) % 10 == 0
    near, far = x.clone().requires_grad_(), (x + 1000).requires_grad_()  # both exact in float32
    values = [loss(given, y) for given in (near, far)]
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-5)
    gradients = [torch.autograd.grad(value, given)[0] for value, given in zip(values, (near, far), strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 2])
def test_the_square_loss_takes_any_offset(columns):
    """1e8 in float64 leaves 8 digits of the logits, whose squares have 16: about 0 none would be left of the sums."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, columns, generator=generator, dtype=torch.float64).mul(64).round() / 64
    y = (torch.rand(200, columns, generator=generator) < 0.3).long()
    w = torch.rand(200, generator=generator, dtype=torch.float64)
    near, far = x.clone().requires_grad_(), (x + 1e8 * (-1) ** torch.arange(columns)).requires_grad_()
    values = [PairSquareLoss()(given, y, w) for given in (near, far)]
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-12)
    gradients = [torch.autograd.grad(value, given)[0] for value, given in zip(values, (near, far), strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-15)


NOT_FINITE = {"NaN": float("nan"), "infinite": float("inf"), "-inf": -float("inf")}


@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize("weight", [1.0, 0.0])
@every_loss
def test_logits_that_are_not_finite_are_refused(loss, bad, weight):
    """Whatever their weight. As probabilities, infinite logits are 0 and 1, and ranked as such."""
    on_probabilities = isinstance(loss, (WMWLoss, MBAUCLoss, SoftAUROCLoss))
    for target in ([1, 0, 1, 0], [0, 1, 0, 1]):
        x, y = torch.tensor([NOT_FINITE[bad], 0.0, 1.0, 2.0]), torch.tensor(target)
        w = torch.tensor([weight, 1.0, 1.0, 1.0])
        if on_probabilities and bad != "NaN":
            torch.testing.assert_close(loss(x, y, w), loss(x.clamp(-80, 80), y, w))
        else:
            with pytest.raises(DivergedError, match=f"1 of 4 logits are {bad.replace('-inf', 'infinite')}"):
                loss(x, y, w)


@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize(
    "loss", [PairHingeLoss(), PairSquareLoss(), PartialAUCLoss(), AveragePrecisionLoss()], ids=repr
)
def test_if_values_are_not_checked_the_loss_is_nan(loss, bad):
    x, y = torch.tensor([[NOT_FINITE[bad], 0.0, 1.0, 2.0], [0.5, 0.0, 1.0, 2.0]]), torch.tensor([1, 0, 1, 0])
    assert torch.func.vmap(loss, in_dims=(0, None))(x, y).isnan().tolist() == [True, False]


# Partial AUC


def distinct(n=60, seed=0):
    """Scores at least 0.01 apart, and weights."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randperm(n, generator=generator).double() / 50
    y = (torch.rand(n, generator=generator) < 0.4).long()
    return x, y, torch.rand(n, generator=generator, dtype=torch.float64) + 0.1


def share_in_the_wrong_order(make, *data):
    """The slope of the plain hinge in a margin below all gaps is 1 for each pair in the wrong order, 0 for others."""
    low, high = (make(margin)(*data).item() for margin in (1e-3, 2e-3))
    return (high - low) / 1e-3


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("min_tpr", [0.0, 0.3, 0.5, 0.9, 0.95, 0.999])
def test_it_is_the_area_above_a_tpr(min_tpr, weighted):
    x, y, w = distinct()
    weight = w if weighted else None
    fpr, tpr, _ = roc_curve(y, x, sample_weight=weight, drop_intermediate=False)
    rises = np.maximum(tpr[1:], min_tpr) - np.maximum(tpr[:-1], min_tpr)
    area = (rises * (1 - fpr[1:])).sum() / (1 - min_tpr)  # without ties between classes the curve is a staircase
    found = share_in_the_wrong_order(lambda m: PartialAUCLoss(min_tpr, margin=m, power=1), x, y, weight)
    assert 1 - found == pytest.approx(area, abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_fpr", [0.07, 0.5, 1.0])
def test_it_is_the_area_left_of_an_fpr(max_fpr, weighted):
    x, y, w = distinct(seed=1)
    weight = w if weighted else None
    standardised = roc_auc_score(y, x, max_fpr=max_fpr, sample_weight=weight)
    least = max_fpr**2 / 2  # McClish's correction undone; scikit-learn leaves it out at 1
    area = standardised if max_fpr == 1 else (least + (2 * standardised - 1) * (max_fpr - least)) / max_fpr
    found = share_in_the_wrong_order(lambda m: PartialAUCLoss(0.0, max_fpr, margin=m, power=1), x, y, weight)
    assert 1 - found == pytest.approx(area, abs=1e-9)


def test_both_bounds_keep_the_pairs_of_the_hardest_samples():
    x, y, _ = distinct(n=50, seed=2)
    positives, negatives = x[y == 1].sort().values, x[y == 0].sort(descending=True).values
    hard_positives, hard_negatives = positives[: len(positives) // 2], negatives[: len(negatives) // 2]
    loss = PartialAUCLoss(1 - len(hard_positives) / len(positives), len(hard_negatives) / len(negatives), margin=0.7)
    expected = torch.relu(0.7 - (hard_positives[:, None] - hard_negatives[None, :])) ** 2
    assert loss(x, y).item() == pytest.approx(expected.mean().item(), rel=1e-9)


def test_a_whole_weight_equals_that_many_copies():
    x, y, _ = distinct(n=20, seed=3)
    copies = torch.randint(0, 4, (20,), generator=torch.Generator().manual_seed(0))
    loss = PartialAUCLoss(min_tpr=0.7, max_fpr=0.4)
    expected = loss(x.repeat_interleave(copies), y.repeat_interleave(copies))
    torch.testing.assert_close(loss(x, y, copies.double()), expected)


def test_the_hardest_positive_is_always_there_and_ties_share():
    x = torch.tensor([0.0, 0.0, 5.0, 1.0], dtype=torch.float64, requires_grad=True)
    value = PartialAUCLoss(min_tpr=0.95, power=1)(x, torch.tensor([1, 1, 1, 0]))
    value.backward()
    assert value.item() == pytest.approx(2.0)
    assert x.grad.tolist() == pytest.approx([-0.5, -0.5, 0.0, 1.0])


@pytest.mark.parametrize("power", [1, 2, 3])
def test_gradient_of_the_partial_area_by_differences(power):
    x, y, w = distinct(n=24, seed=4)
    loss = PartialAUCLoss(min_tpr=0.6, max_fpr=0.6, power=power, margin=0.333)
    assert torch.autograd.gradcheck(lambda given: loss(given, y, w), x.requires_grad_())


@every_loss
def test_repr_is_the_call_that_makes_it(loss):
    assert repr(eval(repr(loss))) == repr(loss)


def test_soft_auroc_shows_its_step():
    assert "Sigmoid(k=7)" in repr(SoftAUROCLoss(step=steps.Sigmoid(k=7)))


def test_soft_auroc_tends_to_the_auroc_of_many_thresholds():
    x, y, _ = batch(200, seed=5)
    many = [k / 500 for k in range(1, 500)]
    loss = SoftAUROCLoss(many, steps.Sigmoid(k=5000))
    assert 1 - loss(x, y).item() == pytest.approx(curves.auroc(x, y), abs=0.01)


def test_soft_auroc_is_the_trapezoid_over_the_closed_curve():
    x, y, _ = batch()
    points = [(1.0, 1.0)]
    for t in (0.25, 0.5, 0.75):
        c = Counts.soft(x, y, threshold=t)
        points.append(((c.fp / c.negatives).item(), (c.tp / c.positives).item()))
    points.append((0.0, 0.0))
    area = sum((a[0] - b[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    assert SoftAUROCLoss([0.5, 0.25, 0.75])(x, y).item() == pytest.approx(1 - area)


def test_losses_of_sums_accumulate_exactly():
    model = torch.nn.Linear(3, 1).double()
    x, y = torch.randn(10, 3).double(), torch.tensor([0, 1] * 5)
    for loss in (MBAUCLoss(), PairSquareLoss(), SoftAUROCLoss(), Mix((WeightedBCELoss(), 1.0), (MBAUCLoss(), 2.0))):
        model.zero_grad()
        loss(model(x), y).backward()
        expected = model.weight.grad.clone()
        model.zero_grad()
        backward_in_chunks(model, loss, [(x[:3], y[:3]), (x[3:], y[3:])])
        torch.testing.assert_close(model.weight.grad, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairHingeLoss(margin=0), "needs a finite margin above 0, got 0"),
        (lambda: WMWLoss(power=4), "needs a power of 1, 2 or 3, got 4"),
        (lambda: PairSquareLoss(margin=float("inf")), "PairSquareLoss needs a finite margin above 0"),
        (lambda: PartialAUCLoss(min_tpr=1.0), "needs min_tpr of at least 0 and below 1, got 1"),
        (lambda: PartialAUCLoss(max_fpr=0.0), "needs max_fpr above 0 and at most 1, got 0"),
        (lambda: SoftAUROCLoss([]), "needs at least one threshold"),
        (lambda: SoftAUROCLoss([0.0, 0.5]), "strictly between 0 and 1"),
        (lambda: PairHingeLoss()(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])), "PairHingeLoss is for binary"),
    ],
)
def test_mistakes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
