"""The Lovász loss: at certain decisions the Jaccard index by scikit-learn, in between its definition by sets."""

import itertools

import pytest
import torch
from sklearn.metrics import jaccard_score

from metricfit.core.validation import DivergedError
from metricfit.errors import InvalidValueError
from metricfit.losses import LovaszLoss
from metricfit.losses.segmentation import lovasz_extension


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_sets(errors, truth):
    """The extension as an integral over levels: errors of at least a level are mistakes, the others are right."""
    total, levels = 0.0, sorted({0.0, *errors.tolist()})
    for low, high in itertools.pairwise(levels):
        wrong = errors >= high
        positive = truth == 1
        union = float((positive | wrong).sum())
        total = total + (high - low) * (1 - float((positive & ~wrong).sum()) / union)
    return total


def test_errors_between_0_and_1_are_the_integral_over_levels():
    for seed in range(5):
        errors, truth = random(9, seed=seed).abs(), (random(9, seed=seed + 50) > 0.3).double()
        value = lovasz_extension(errors, truth, torch.ones(9, dtype=torch.float64))
        assert value.item() == pytest.approx(by_sets(errors, truth), abs=1e-12)


def test_certain_decisions_have_one_minus_the_jaccard_index():
    target = (random(40, seed=1) > 0).long()
    decided = (random(40, seed=2) > -0.3).long()
    classes = torch.stack([1 - decided, decided], 1).double() * 60 - 30
    expected = 1 - jaccard_score(target, decided, average="macro")
    assert LovaszLoss(task="multiclass")(classes, target).item() == pytest.approx(expected, abs=1e-9)


def test_the_hinge_is_the_error_of_yes_or_no_questions():
    logits, target = random(15, seed=3), (random(15, seed=4) > 0).long()
    errors = (1 - (2 * target - 1) * logits).clamp(min=0)
    assert LovaszLoss()(logits, target).item() == pytest.approx(by_sets(errors, target), abs=1e-12)


def test_weights_repeat_samples_and_ignored_samples_do_not_count():
    logits, target = random(10, 3, seed=5), torch.arange(10) % 3
    twice = torch.tensor([2.0, 1, 1, 2, 1, 1, 1, 1, 1, 1], dtype=torch.float64)
    repeated = torch.cat([logits, logits[[0, 3]]]), torch.cat([target, target[[0, 3]]])
    loss = LovaszLoss()
    assert loss(logits, target, twice).item() == pytest.approx(loss(*repeated).item(), abs=1e-12)
    ignored = torch.where(torch.arange(10) < 4, 255, target)
    value = LovaszLoss(ignore_index=255)(logits, ignored)
    assert value.item() == pytest.approx(loss(logits[4:], target[4:]).item(), abs=1e-12)


def test_classes_without_a_sample_are_left_out():
    logits, target = random(8, 4, seed=6), torch.tensor([0, 1, 0, 1, 1, 0, 0, 1])
    errors = (torch.nn.functional.one_hot(target, 4) - logits.softmax(1)).abs()
    expected = [by_sets(errors[:, label], (target == label).long()) for label in (0, 1)]
    assert LovaszLoss()(logits, target).item() == pytest.approx(sum(expected) / 2, abs=1e-12)


@pytest.mark.parametrize("classes", [1, 3])
def test_per_image_is_the_mean_of_the_images(classes):
    logits = random(3, classes, 4, 4, seed=7)
    target = torch.randint(0, max(classes, 2), (3, 4, 4), generator=torch.Generator().manual_seed(8))
    loss = LovaszLoss()
    alone = [loss(logits[[image]], target[[image]]).item() for image in range(3)]
    assert LovaszLoss(per_image=True)(logits, target).item() == pytest.approx(sum(alone) / 3, abs=1e-12)


@pytest.mark.parametrize("shape", [(7,), (6, 3), (2, 3, 2, 2)])
def test_gradients_are_those_of_differences(shape):
    logits = random(*shape, seed=9).requires_grad_()
    target = torch.zeros(shape[:1] + shape[2:], dtype=torch.long)
    target.view(-1)[::2] = 1
    assert torch.autograd.gradcheck(lambda x: LovaszLoss()(x, target), logits)


def test_nothing_to_learn_from_gives_zero():
    logits = random(4, 3).requires_grad_()
    loss = LovaszLoss(ignore_index=255)(logits, torch.full((4,), 255))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_nan_is_named():
    with pytest.raises(DivergedError, match="NaN"):
        LovaszLoss()(torch.tensor([float("nan"), 1.0]), torch.tensor([1, 0]))


def test_shares_of_classes_are_refused():
    with pytest.raises(InvalidValueError, match="shares"):
        LovaszLoss(task="multiclass")(torch.zeros(2, 3), torch.full((2, 3), 1 / 3))


def test_soft_labels_are_refused_for_every_task():
    logits = torch.randn(4, 3)
    for x, target, task in (
        (logits[:, 0], torch.tensor([0, 1, 0.3, 1]), None),
        (logits, logits.sigmoid(), "multilabel"),
    ):
        with pytest.raises(ValueError, match=r"takes labels 0 and 1.*target\.round\(\)"):
            LovaszLoss(task=task)(x, target)
    with pytest.raises(ValueError, match="shares of classes"):
        LovaszLoss(task="multiclass")(logits, logits.softmax(1))


def test_labels_without_a_counted_sample_are_left_out():
    logits, target = torch.randn(6, 2), torch.randint(0, 2, (6, 2))
    ignored = target.clone()
    ignored[:, 1] = -1
    expected = LovaszLoss()(logits[:, 0], target[:, 0])
    torch.testing.assert_close(LovaszLoss(task="multilabel", ignore_index=-1)(logits, ignored), expected)
