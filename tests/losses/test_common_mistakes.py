"""Mistakes of training scripts: the message of each names the remedy."""

import copy
import warnings
from types import SimpleNamespace

import pytest
import torch

from metricfit import MetricLoss, losses
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.losses import FocalLoss, WeightedBCELoss
from metricfit.losses.gradient_watch import ProbabilitiesWarning


@pytest.mark.parametrize(
    ("argument", "remedy"),
    {
        "weight": r"loss\(logits, target, weight\)",
        "class_weight": r"use class_weights=\[\.\.\.\]",
        "pos_weight": r"fbeta\(beta=2\)",
        "label_smoothing": "soft labels",
        "reduction": "one number per batch",
        "beta": r"MetricLoss\('fbeta\(beta=2\)'\)",
        "gamma": r"help\(MetricLoss\)",
    }.items(),
)
def test_arguments_of_other_losses(argument, remedy):
    with pytest.raises(InvalidTypeError, match=rf"has no argument {argument}.*{remedy}"):
        MetricLoss("f1", **{argument: 2.0})


IMAGES = torch.zeros(2, 3, 4, 4)


@pytest.mark.parametrize(
    ("logits", "target", "remedy"),
    [
        (IMAGES[:, :1], torch.tensor([0, 255]).repeat(16).reshape(2, 1, 4, 4), "target / 255"),
        (IMAGES[:, :1], torch.tensor([0, 255], dtype=torch.uint8).repeat(16).reshape(2, 1, 4, 4), "target / 255"),
        (IMAGES[:, :2], torch.tensor([0, 255]).repeat(16).reshape(2, 4, 4), "ignore_index=255"),
        (torch.zeros(2, 7, 5), torch.zeros(2, 7).long(), r"logits.movedim\(-1, 1\)"),
        (torch.zeros(2, 4, 4, 3), torch.zeros(2, 4, 4).long(), r"logits.movedim\(-1, 1\)"),
        ({"out": IMAGES, "aux": IMAGES}, torch.zeros(2, 4, 4).long(), r"'out', 'aux'.*outputs\['out'\]"),
        (SimpleNamespace(logits=IMAGES), torch.zeros(2, 4, 4).long(), "outputs.logits"),
        ((IMAGES, IMAGES), torch.zeros(2, 4, 4).long(), r"outputs\[0\]"),
    ],
)
@pytest.mark.parametrize("loss", [MetricLoss("f1"), FocalLoss(2.0)], ids=["metric", "focal"])
def test_inputs(loss, logits, target, remedy):
    if isinstance(loss, FocalLoss) and isinstance(logits, torch.Tensor) and logits.shape[1] > 1:
        pytest.skip("a loss of binary logits says so first")
    with pytest.raises((InvalidTypeError, InvalidValueError), match=remedy):
        loss(logits, target)


def test_binary_masks_without_a_channel_axis_are_images():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, 6, generator=generator)
    target = torch.randint(0, 2, (4, 5, 6), generator=generator)
    loss = MetricLoss("dice", per_image=True, task="binary")
    for weight in (None, torch.rand(4), torch.rand(4, 5, 6)):
        channel = None if weight is None or weight.dim() == 1 else weight.unsqueeze(1)
        expected = loss(logits.unsqueeze(1), target.unsqueeze(1), weight if channel is None else channel)
        torch.testing.assert_close(loss(logits, target, weight), expected)


@pytest.mark.parametrize("classes", [1, 3])
def test_probabilities_in_place_of_logits_are_noticed_once(classes):
    loss, generator = MetricLoss("f1"), torch.Generator().manual_seed(0)
    target = torch.arange(30) % max(classes, 2)
    batch = torch.randn(30, classes, generator=generator).squeeze(-1)
    outputs = (batch.sigmoid() if classes == 1 else batch.softmax(1)).requires_grad_()
    with pytest.warns(ProbabilitiesWarning, match="from_probabilities=True") as caught:
        _ = [loss(outputs, target) for _ in range(40)]
    assert len(caught) == 1
    assert caught[0].filename == __file__


OTHER_LOSSES = [
    FocalLoss(2.0),
    FocalLoss(2.0, task="binary"),
    losses.MSFELoss(),
    losses.MAELoss(),
    losses.SoftAUROCLoss(),
    losses.LovaszLoss(),
    losses.LogitAdjustedLoss(class_counts=[5, 5]),
]


@pytest.mark.parametrize("loss", OTHER_LOSSES, ids=lambda loss: type(loss).__name__)
def test_other_losses_notice_probabilities_once_too(loss):
    target = torch.arange(30) % 2
    logits = torch.randn(30, generator=torch.Generator().manual_seed(0))
    if isinstance(loss, losses.LogitAdjustedLoss):
        logits = torch.stack([-logits, logits], 1)
    outputs = logits.sigmoid().requires_grad_()
    ordinary = copy.deepcopy(loss)
    warned = f"{type(loss).__name__}: all logits of 4 batches lie"
    with pytest.warns(ProbabilitiesWarning, match=warned) as caught:
        _ = [loss(outputs, target) for _ in range(40)]
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(40):
            ordinary.train()(logits, target)
            copy.deepcopy(ordinary).eval()(outputs, target)


@pytest.mark.parametrize("outputs", [torch.zeros(8), torch.linspace(-0.01, 0.9, 8), torch.linspace(0, 1.01, 8)])
def test_ordinary_logits_are_not_taken_for_probabilities(outputs):
    loss, outputs = MetricLoss("f1"), outputs.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(40):
            loss(outputs, torch.arange(8) % 2)
        probabilities = MetricLoss("f1", from_probabilities=True)
        for _ in range(40):
            probabilities(torch.full((8,), 0.5), torch.arange(8) % 2)


def test_costs_beyond_float16_are_said_once():
    loss, target = MetricLoss("cost(fp=1, fn=1e6)"), torch.tensor([1, 0])
    logits = torch.zeros(2, dtype=torch.float16, requires_grad=True)
    with pytest.warns(UserWarning, match=r"float16 holds numbers up to 65,504.*logits.float\(\)") as caught:
        _ = [loss(logits, target) for _ in range(3)]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    for other in (MetricLoss("f1"), MetricLoss("cost(fp=1, fn=100)")):
        other(logits, target)
    wide = logits.detach().float().requires_grad_()
    (gradient,) = torch.autograd.grad(MetricLoss("cost(fp=1, fn=1e6)")(wide, target), wide)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 65_504  # the warning says the truth


@pytest.mark.parametrize("shape", [(4,), (4, 1, 2, 2)])
def test_a_weight_too_large_for_float16_is_warned_of_once(shape):
    loss = WeightedBCELoss(1e6)
    logits, target = torch.zeros(shape, dtype=torch.float16, requires_grad=True), torch.ones(shape)
    with pytest.warns(UserWarning, match=r"WeightedBCELoss: float16 holds.*its weights, 1e\+06.*logits.float\(\)"):
        loss(logits, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(logits, target)
        WeightedBCELoss(1e6)(logits.float(), target)
        WeightedBCELoss(6e4)(logits, target)


def test_the_losses_that_messages_name_are_importable():
    with pytest.raises(InvalidValueError, match=r"losses\.cross_entropy\.WeightedCrossEntropyLoss or MetricLoss"):
        WeightedBCELoss(task="multiclass")
    assert losses.cross_entropy.WeightedCrossEntropyLoss()
