"""Pointwise losses against torch's own and against their formulas, sample by sample."""

import copy
import math

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, SurrogateFBetaLoss
from metricfit.losses import (
    AveragePrecisionLoss,
    ClassBalanced,
    EffectiveNumberBCELoss,
    FocalLoss,
    MAELoss,
    MarginLoss,
    MBAUCLoss,
    Mix,
    MSFELoss,
    PairHingeLoss,
    PairSquareLoss,
    SoftAUROCLoss,
    WeightedBCELoss,
    WMWLoss,
)
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.ranking import PartialAUCLoss
from metricfit.losses.surrogate import SurrogateTverskyLoss


def s(x):
    return 1 / (1 + math.exp(-x))


FORMULAS = {  # loss, term of a positive, term of a negative, at a logit x
    "bce": (WeightedBCELoss(), lambda x: -math.log(s(x)), lambda x: -math.log(1 - s(x))),
    "weighted": (WeightedBCELoss(7.5), lambda x: -7.5 * math.log(s(x)), lambda x: -math.log(1 - s(x))),
    "effective": (
        EffectiveNumberBCELoss(0.99, (90, 10)),
        lambda x: -(1 - 0.99) / (1 - 0.99**10) * math.log(s(x)),
        lambda x: -(1 - 0.99) / (1 - 0.99**90) * math.log(1 - s(x)),
    ),
    "focal": (
        FocalLoss(2.0),
        lambda x: -((1 - s(x)) ** 2) * math.log(s(x)),
        lambda x: -(s(x) ** 2) * math.log(1 - s(x)),
    ),
    "focal_asymmetric": (
        FocalLoss(1.5, asymmetric=True),
        lambda x: -math.log(s(x)),
        lambda x: -(s(x) ** 1.5) * math.log(1 - s(x)),
    ),
    "margin": (MarginLoss(0.5), lambda x: -math.log(s(x - 0.5)), lambda x: -math.log(1 - s(x + 0.5))),
    "margin_asymmetric": (
        MarginLoss(2.0, asymmetric=True),
        lambda x: -math.log(s(x - 2)),
        lambda x: -math.log(1 - s(x)),
    ),
    "mae": (MAELoss(), lambda x: 2 * (1 - s(x)), lambda x: 2 * s(x)),
}
ALL = {name: loss for name, (loss, _, _) in FORMULAS.items()} | {
    "msfe": MSFELoss(),
    "balanced": ClassBalanced(FocalLoss(2.0), prior=0.1),
    "surrogate": SurrogateFBetaLoss(2.0, prior=0.1),
    "tversky": SurrogateTverskyLoss(0.3, 0.7, prior=0.1, q=0.5),
}


def batch(n=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
    weight = torch.randint(0, 5, (n,), generator=generator).double() / 2
    return logits, (torch.arange(n) % 3 == 0).double(), weight


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_weighted_mean_of_its_formula(name, weighted):
    loss, positive, negative = FORMULAS[name]
    logits, target, weight = batch()
    weight = weight if weighted else torch.ones_like(weight)
    terms = [positive(x) if y else negative(x) for x, y in zip(logits.tolist(), target.tolist(), strict=True)]
    expected = sum(w * term for w, term in zip(weight.tolist(), terms, strict=True)) / weight.sum().item()
    result = loss(logits, target, weight) if weighted else loss(logits, target)
    assert result.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_soft_target_mixes_the_two_terms(name):
    loss, positive, negative = FORMULAS[name]
    value = loss(torch.tensor([0.7], dtype=torch.float64), torch.tensor([0.25]))
    assert value.item() == pytest.approx(0.25 * positive(0.7) + 0.75 * negative(0.7), rel=1e-7)


@pytest.mark.parametrize("positive_weight", [0.0, 1.0, 12.5])
def test_weighted_bce_is_torchs_with_pos_weight(positive_weight):
    logits, target, _ = batch()
    torchs = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(positive_weight, dtype=torch.float64))
    torch.testing.assert_close(WeightedBCELoss(positive_weight)(logits, target), torchs(logits, target))


@pytest.mark.parametrize("loss", [FocalLoss(0.0), FocalLoss(0.0, asymmetric=True), MarginLoss(0.0)])
def test_without_focus_or_margin_it_is_cross_entropy(loss):
    logits, target, _ = batch()
    torch.testing.assert_close(loss(logits, target), nn.BCEWithLogitsLoss()(logits, target))


def test_effective_numbers_end_at_cross_entropy_and_at_inverse_frequency():
    logits, target, _ = batch()
    torch.testing.assert_close(
        EffectiveNumberBCELoss(0.0, (90, 10))(logits, target), nn.BCEWithLogitsLoss()(logits, target)
    )
    nearly_1 = EffectiveNumberBCELoss(1 - 1e-12, (90, 10))
    assert nearly_1.positive_weight == pytest.approx(1 / 10, rel=1e-6)
    assert nearly_1.negative_weight == pytest.approx(1 / 90, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_msfe_is_the_sum_of_squared_class_means(weighted):
    logits, target, weight = batch()
    weight = weight if weighted else torch.ones_like(weight)
    expected = 0.0
    for label in (0, 1):
        rows = [
            (w, 0.5 * (y - s(x)) ** 2)
            for x, y, w in zip(*map(torch.Tensor.tolist, (logits, target, weight)), strict=True)
            if y == label
        ]
        expected += (sum(w * e for w, e in rows) / sum(w for w, _ in rows)) ** 2
    result = MSFELoss()(logits, target, weight if weighted else None)
    assert result.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in ALL if name != "msfe"])
def test_weights_average_the_losses_of_single_samples(name):
    logits, target, weight = batch(seed=1)
    each = torch.stack([ALL[name](logits[i : i + 1], target[i : i + 1]) for i in range(len(logits))])
    torch.testing.assert_close(ALL[name](logits, target, weight), (weight * each).sum() / weight.sum())


@pytest.mark.parametrize("name", ALL)
def test_the_scale_of_the_weights_does_not_matter(name):
    logits, target, weight = batch(seed=2)
    torch.testing.assert_close(ALL[name](logits, target, 1000 * weight), ALL[name](logits, target, weight))
    torch.testing.assert_close(ALL[name](logits, target, torch.ones_like(weight)), ALL[name](logits, target))


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name):
    logits, target, weight = batch(seed=3)
    target = target * 0.8 + 0.1  # soft ones too
    assert torch.autograd.gradcheck(lambda x: ALL[name](x, target, weight), logits.requires_grad_())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("labels", [[], [1.0, 1.0], [0.0, 0.0]], ids=["empty", "positives", "negatives"])
def test_one_class_and_empty_batches_are_finite(name, labels):
    logits = torch.tensor([0.3, -2.0][: len(labels)], requires_grad=True)
    loss = ALL[name](logits, torch.tensor(labels))
    loss.backward()
    assert loss.shape == ()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert labels or loss == 0


@pytest.mark.parametrize("name", ALL)
def test_no_weight_at_all_is_0(name):
    logits = torch.tensor([0.3, -2.0], requires_grad=True)
    loss = ALL[name](logits, torch.tensor([1, 0]), torch.zeros(2))
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("name", ALL)
def test_extreme_logits_are_finite_and_right_in_float32(name):
    logits = torch.tensor([1e4, -1e4, 1e4, -1e4, 60.0, -60.0], requires_grad=True)
    target = torch.tensor([1, 1, 0, 0, 1, 0])
    loss = ALL[name](logits, target)
    loss.backward()
    assert logits.grad.isfinite().all()
    torch.testing.assert_close(
        loss.detach().double(), ALL[name](logits.detach().double(), target), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    logits, target, _ = batch()
    half = logits.to(dtype)
    result = ALL[name](half, target)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, ALL[name](half.float(), target.float()))


@pytest.mark.parametrize("name", ALL)
def test_logits_n_1_equal_logits_n(name):
    logits, target, weight = batch()
    expected = ALL[name](logits, target, weight)
    torch.testing.assert_close(ALL[name](logits.unsqueeze(1), target, weight.unsqueeze(1)), expected)
    torch.testing.assert_close(ALL[name](logits, target.unsqueeze(1).bool(), weight), expected)


@pytest.mark.parametrize("name", ALL)
def test_it_runs_under_vmap_and_func_grad(name):
    logits, target, _ = batch()
    many = torch.stack([logits, -logits])
    torch.testing.assert_close(
        torch.vmap(lambda x: ALL[name](x, target))(many), torch.stack([ALL[name](x, target) for x in many])
    )
    leaf = logits.clone().requires_grad_()
    expected = torch.autograd.grad(ALL[name](leaf, target), leaf)[0]
    torch.testing.assert_close(torch.func.grad(lambda x: ALL[name](x, target))(logits), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FocalLoss(-1.0), "FocalLoss needs a finite gamma of at least 0, got -1"),
        (lambda: FocalLoss(math.nan), "FocalLoss needs a finite gamma"),
        (lambda: MarginLoss(-1.0), "MarginLoss needs a finite margin of at least 0, got -1"),
        (lambda: MarginLoss(math.inf), "MarginLoss needs a finite margin"),
        (lambda: WeightedBCELoss(-1.0), "WeightedBCELoss needs a finite positive_weight of at least 0"),
        (lambda: EffectiveNumberBCELoss(1.0, (1, 1)), "EffectiveNumberBCELoss needs 0 <= beta < 1, got 1.0"),
        (lambda: EffectiveNumberBCELoss(0.9, (1, 0)), "numbers of negatives and of positives, both at least 1"),
        (lambda: EffectiveNumberBCELoss(0.9, (1, 2, 3)), "numbers of negatives and of positives"),
        (lambda: EffectiveNumberBCELoss(0.9, {1: 90, 2: 10}), "numbers of negatives and of positives"),
        (lambda: ClassBalanced(MAELoss(), 0.0), "ClassBalanced: prior is the share of positives"),
        (lambda: ClassBalanced(MAELoss(), 1.0), "strictly between 0 and 1, got 1.0"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("name", FORMULAS)
def test_it_shows_its_arguments(name):
    shown = repr(FORMULAS[name][0])
    rebuilt = eval(shown)
    logits, target, weight = batch()
    assert rebuilt(logits, target, weight) == FORMULAS[name][0](logits, target, weight)


@pytest.mark.parametrize("shape", [(12, 5), (6, 4, 3, 2)])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_cross_entropy_of_exclusive_classes_is_torchs(shape, ignored):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(shape[1], shape[:1] + shape[2:], generator=generator)
    loss = WeightedCrossEntropyLoss(ignore_index=ignored)
    expected = torch.nn.functional.cross_entropy(logits, target, ignore_index=ignored)
    torch.testing.assert_close(loss(logits, target), expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, logits) for value in (loss(logits, target.int()), expected))
    )


def test_cross_entropy_of_weighted_samples_is_that_of_repeated_ones():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 3, generator=generator)
    target, times = torch.arange(8) % 3, torch.arange(8)
    loss = WeightedCrossEntropyLoss()
    repeated = torch.nn.functional.cross_entropy(logits.repeat_interleave(times, 0), target.repeat_interleave(times))
    torch.testing.assert_close(loss(logits, target, weight=times.float()), repeated)
    pixels = loss(logits.T[None], target[None], weight=times[None].float())
    torch.testing.assert_close(pixels, repeated)
    assert loss(logits, target, weight=torch.zeros(8)) == 0


def test_cross_entropy_of_exclusive_classes_refuses_binary_logits():
    with pytest.raises(ValueError, match="use WeightedBCELoss"):
        WeightedCrossEntropyLoss()(torch.zeros(3), torch.tensor([0, 1, 0]))


@pytest.mark.parametrize("name", ALL)
def test_ignored_samples_count_for_nothing_and_learn_nothing(name):
    logits, target, weight = batch(seed=4)
    holes = target.clone()
    holes[1::4] = 255
    kept = holes != 255
    loss = copy.deepcopy(ALL[name])
    loss.ignore_index = 255
    logits.requires_grad_()
    value = loss(logits, holes, weight)
    value.backward()
    torch.testing.assert_close(value, ALL[name](logits[kept], target[kept], weight[kept]))
    assert not logits.grad[~kept].any()


#: Every loss of binary and multilabel logits, with the arguments that it needs.
ARGUMENTS = {
    WeightedBCELoss: {"positive_weight": 2.0},
    EffectiveNumberBCELoss: {"beta": 0.9, "class_counts": (9, 1)},
    FocalLoss: {"gamma": 2.0},
    MarginLoss: {"margin": 0.5},
    MAELoss: {},
    MSFELoss: {},
    SurrogateFBetaLoss: {"prior": 0.2},
    SurrogateTverskyLoss: {"alpha": 0.3, "beta": 0.7, "prior": 0.2},
    PairHingeLoss: {},
    PairSquareLoss: {},
    PartialAUCLoss: {},
    AveragePrecisionLoss: {},
    WMWLoss: {},
    MBAUCLoss: {},
    SoftAUROCLoss: {},
}


@pytest.mark.parametrize("make", ARGUMENTS, ids=lambda make: make.__name__)
def test_every_loss_of_yes_or_no_questions_takes_ignore_index_and_task(make):
    loss = make(**ARGUMENTS[make], ignore_index=255, task="multilabel")
    generator = torch.Generator().manual_seed(0)
    masks = (torch.rand(2, 3, 4, 4, generator=generator) < 0.4).float()
    logits = torch.randn(2, 3, 4, 4, generator=generator) + masks
    holes = masks.clone()
    holes[:, :, 0] = 255
    value = loss(logits, holes)
    torch.testing.assert_close(value, loss(logits[:, :, 1:], masks[:, :, 1:]))
    with pytest.raises(ValueError, match="task='multilabel' or task='multiclass'"):
        make(**ARGUMENTS[make])(logits, masks)
    with pytest.raises(ValueError, match="got task='multiclass'; for classes that exclude each other use"):
        make(**ARGUMENTS[make], task="multiclass")


def test_the_segmentation_pages_mix_trains_on_masks_with_void_pixels():
    logits = torch.randn(2, 1, 5, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.randint(0, 2, (2, 5, 5), generator=torch.Generator().manual_seed(1))
    target[:, 0] = 255
    mix = Mix((WeightedBCELoss(ignore_index=255), 1.0), (MetricLoss("dice", per_image=True, ignore_index=255), 1.0))
    mix(logits, target).backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[:, :, 0].any()
    assert logits.grad[:, :, 1:].all()


def test_a_class_number_out_of_range_is_refused_with_a_remedy():
    loss = WeightedCrossEntropyLoss()
    for labels in ([0, 3], [0, -1]):
        with pytest.raises(ValueError, match="3 classes need labels 0 to 2"):
            loss(torch.zeros(2, 3), torch.tensor(labels))
    assert loss(torch.zeros(2, 3), torch.tensor([0, -100])).item() == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("target", "weight", "error", "message"),
    [
        (torch.tensor([0, 3]), None, ValueError, "3 classes need labels 0 to 2"),
        (torch.tensor([0, -1]), None, ValueError, "3 classes need labels 0 to 2"),
        (torch.tensor([0, 1]), torch.ones(3), ValueError, "weight needs one number per sample"),
        (torch.tensor([0, 1]), -torch.ones(2), ValueError, "weights must be finite and at least 0"),
        (torch.tensor([0, 1]), [1.0, 1.0], TypeError, "weight must be a torch tensor"),
        ([0, 1], None, TypeError, "target must be a torch tensor"),
    ],
    ids=["label", "negative label", "weights", "negative weight", "list of weights", "list of labels"],
)
def test_cross_entropy_refuses_wrong_input_with_a_message(target, weight, error, message):
    with pytest.raises(error, match=message):
        WeightedCrossEntropyLoss()(torch.zeros(2, 3), target, weight)
