"""Losses for long tails, against their formulas written out sample by sample."""

import math

import pandas as pd
import pytest
import torch
from torch.nn.functional import one_hot

from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses import EffectiveNumberBCELoss, LDAMLoss, LogitAdjustedLoss, MetricLoss, Mix
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss

COUNTS = (500, 60, 3)
Z = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3
W = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def mean_over_samples(loss_of_sample, z, y, w):
    losses = [float(weight) * loss_of_sample(row, int(label)) for row, label, weight in zip(z, y, w, strict=True)]
    return sum(losses) / float(w.sum())


def cross_entropy(logits, label):
    return math.log(sum(math.exp(logit) for logit in logits)) - logits[label]


@pytest.mark.parametrize("tau", [0.0, 1.0, 2.5])
def test_logit_adjustment_adds_the_logarithm_of_the_shares(tau):
    def of_sample(row, label):
        return cross_entropy([float(x) + tau * math.log(n / 563) for x, n in zip(row, COUNTS, strict=True)], label)

    value = LogitAdjustedLoss(COUNTS, tau)(Z, Y, W)
    assert value.item() == pytest.approx(mean_over_samples(of_sample, Z, Y, W), rel=1e-12)


def test_without_the_shift_it_is_cross_entropy():
    assert torch.equal(LogitAdjustedLoss(COUNTS, tau=0.0)(Z, Y), WeightedCrossEntropyLoss()(Z, Y))


@pytest.mark.parametrize(("margin", "scale"), [(0.5, 30.0), (1.0, 1.0)])
def test_the_margin_falls_with_the_fourth_root_of_the_count(margin, scale):
    def of_sample(row, label):
        logits = [float(x) for x in row]
        logits[label] -= margin * (min(COUNTS) / COUNTS[label]) ** 0.25
        return cross_entropy([scale * logit for logit in logits], label)

    value = LDAMLoss(COUNTS, margin, scale)(Z, Y, W)
    assert value.item() == pytest.approx(mean_over_samples(of_sample, Z, Y, W), rel=1e-9)


@pytest.mark.parametrize("loss", [LogitAdjustedLoss(COUNTS), LDAMLoss(COUNTS)])
def test_pixels_ignored_labels_and_gradients(loss):
    logits = torch.randn(
        2, 3, 4, 5, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(2)
    )
    target = torch.randint(0, 3, (2, 4, 5), generator=torch.Generator().manual_seed(3))
    target[0, 0] = -100
    value = loss(logits, target)
    kept = (target != -100).flatten()
    flat = logits.movedim(1, -1).reshape(-1, 3)[kept], target.flatten()[kept]
    assert value.item() == pytest.approx(loss(*flat).item(), rel=1e-12)
    assert torch.autograd.gradcheck(lambda x: loss(x, target), logits)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogitAdjustedLoss((5, 0)), "above 0"),
        (lambda: LogitAdjustedLoss((5,)), "two or more"),
        (lambda: LogitAdjustedLoss((5, 5), tau=math.nan), "tau"),
        (lambda: LDAMLoss((5, 5), max_margin=0), "max_margin"),
        (lambda: LDAMLoss((5, 5), scale=-1), "scale"),
        (lambda: LDAMLoss((5, 5))(Z, Y), "2 classes"),
        (lambda: LDAMLoss((5, 5))(Z[:, 0], Y), "LDAMLoss is for logits .* class numbers"),
        (lambda: LDAMLoss(5), "one per class, such as torch.bincount"),
        (lambda: LogitAdjustedLoss(("many", "few")), "class_counts are numbers"),
        (lambda: LogitAdjustedLoss((5, 5), tau="1"), "tau must be a number, got '1'"),
        (lambda: LDAMLoss((5, 5), max_margin="1"), "max_margin must be a number"),
        (lambda: LDAMLoss((5, 5), scale=None), "scale must be a number"),
        (lambda: LDAMLoss(COUNTS)(Z, one_hot(Y, len(COUNTS))), r"LDAMLoss .* target\.argmax\(1\)"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises((InvalidTypeError, InvalidValueError), match=message):
        make()


@pytest.mark.parametrize("shape", [(12, 3), (4, 3, 5, 2)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_shares_of_classes_are_read_as_torch_reads_them(shape, smoothing):
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(shape, dtype=torch.float64, generator=generator)
    shares = torch.rand(shape, dtype=torch.float64, generator=generator)
    shares = shares / shares.sum(1, keepdim=True)
    weight = torch.rand(shape[:1] + shape[2:], dtype=torch.float64, generator=generator)
    losses = torch.nn.functional.cross_entropy(logits, shares, reduction="none", label_smoothing=smoothing)
    ours = WeightedCrossEntropyLoss(label_smoothing=smoothing)
    torch.testing.assert_close(ours(logits, shares), losses.mean())
    torch.testing.assert_close(ours(logits, shares, weight), (weight * losses).sum() / weight.sum())
    labels = shares.argmax(1)
    torch.testing.assert_close(
        ours(logits, labels), torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    )


def test_a_mix_takes_targets_of_mixup():
    shares = 0.7 * one_hot(Y, 3).double() + 0.3 * one_hot(Y.flip(0), 3).double()
    mix = Mix((WeightedCrossEntropyLoss(), 1.0), (MetricLoss("f1", task="multiclass"), 0.5))
    cross, metric_loss = (loss(Z, shares) for loss in mix.losses)
    torch.testing.assert_close(mix(Z, shares), cross + 0.5 * metric_loss)
    torch.testing.assert_close(
        cross, 0.7 * WeightedCrossEntropyLoss()(Z, Y) + 0.3 * WeightedCrossEntropyLoss()(Z, Y.flip(0))
    )
    torch.testing.assert_close(
        LogitAdjustedLoss(COUNTS)(Z, shares),
        0.7 * LogitAdjustedLoss(COUNTS)(Z, Y) + 0.3 * LogitAdjustedLoss(COUNTS)(Z, Y.flip(0)),
    )


@pytest.mark.parametrize(
    ("loss", "target", "message"),
    [
        (WeightedCrossEntropyLoss(), torch.full((12, 3), 0.5), "sum to 1"),
        (WeightedCrossEntropyLoss(), torch.tensor([[1.5, -0.5, 0.0]] * 12), "from -0.5 to 1.5"),
        (WeightedCrossEntropyLoss(), torch.full((12, 3), math.nan), "target holds NaN"),
        (LDAMLoss(COUNTS), one_hot(Y, 3).double(), "a share of a class has no margin"),
    ],
)
def test_shares_that_cannot_be_read(loss, target, message):
    with pytest.raises(InvalidValueError, match=message):
        loss(Z, target)


@pytest.mark.parametrize("loss", [WeightedCrossEntropyLoss(), MetricLoss("f1", task="multiclass")])
def test_both_kinds_of_losses_read_the_same_shares(loss):
    rounded = torch.softmax(Z, 1).bfloat16()
    assert (rounded.double().sum(1) - 1).abs().max() > 2e-3
    assert loss(Z, rounded).item() == pytest.approx(loss(Z, torch.softmax(Z, 1)).item(), abs=0.01)
    shares, weight = torch.softmax(Z, 1), W.clone()
    shares[3] = weight[3] = 0.0  # a sample without a class
    kept = torch.arange(12) != 3
    torch.testing.assert_close(loss(Z, shares, weight), loss(Z[kept], shares[kept], weight[kept]))


def test_class_counts_are_in_the_order_of_the_classes():
    with pytest.raises(InvalidTypeError, match=r"LDAMLoss: .*, one per class, .* got \{1: 90, 2: 10\}"):
        LDAMLoss({1: 90, 2: 10})


def test_the_ignored_label_is_an_integer():
    with pytest.raises(InvalidTypeError, match="ignore_index is one class number, such as 255, got None"):
        WeightedCrossEntropyLoss(ignore_index=None)
    assert repr(WeightedCrossEntropyLoss(label_smoothing=0.1)) == "WeightedCrossEntropyLoss(label_smoothing=0.1)"


@pytest.mark.parametrize("smoothing", [1.0, -0.1])
def test_label_smoothing_is_a_share(smoothing):
    with pytest.raises(InvalidValueError, match="label_smoothing"):
        WeightedCrossEntropyLoss(label_smoothing=smoothing)


@pytest.mark.parametrize("make", [LogitAdjustedLoss, LDAMLoss])
def test_counts_of_a_series_are_in_the_order_of_the_classes(make):
    labels = pd.Series([2, 2, 2, 2, 0, 0, 1])
    assert list(labels.value_counts().index) == [2, 0, 1]  # by frequency
    assert make(labels.value_counts()).class_counts == (2.0, 1.0, 4.0)


def test_counts_of_two_classes_of_a_series_are_negatives_first():
    loss = EffectiveNumberBCELoss(0.99, pd.Series([1, 1, 1, 0]).value_counts())
    assert loss.class_counts == (1, 3)
    named = EffectiveNumberBCELoss(0.99, pd.Series(["no", "yes", "yes"]).value_counts())
    assert named.class_counts == (1, 2)


@pytest.mark.parametrize(
    "loss", [WeightedCrossEntropyLoss(), LogitAdjustedLoss((3, 4, 5)), MetricLoss("f1", task="multiclass")]
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_one_hot_labels_are_class_numbers_also_of_a_square_batch(loss, dtype):
    logits, numbers = torch.randn(3, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 0, 1])
    one_hot = torch.eye(3)[numbers].to(dtype)
    torch.testing.assert_close(loss(logits, one_hot), loss(logits, numbers))
