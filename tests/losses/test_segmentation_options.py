"""MetricLoss over some of the classes, with empty images, and of probabilities, against plain formulas and autograd."""

import pytest
import torch

from metricfit import MetricLoss, steps
from metricfit.losses.accumulation import backward_in_chunks

SOFT_DICE = MetricLoss("dice", step=steps.Identity())


def images(c=4, n=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, c, 5, 6, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, c, (n, 5, 6), generator=generator)


def soft_dice(logits, target, axes):
    """The Dice of softmax probabilities of each class, summed over the axes of ``(n, c, h, w)``."""
    p = logits.softmax(1)
    hot = torch.nn.functional.one_hot(target, logits.shape[1]).movedim(-1, 1)
    return 2 * (p * hot).sum(axes) / (p + hot).sum(axes)


def gradient(function, x):
    x = x.clone().requires_grad_()
    value = function(x)
    value.backward()
    return value.detach(), x.grad


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("classes", [[1, 2, 3], [2]])
def test_some_classes_of_images(classes, per_image):
    logits, target = images()
    loss = MetricLoss("dice", step=steps.Identity(), classes=classes, per_image=per_image)
    axes = (2, 3) if per_image else (0, 2, 3)
    found = gradient(lambda x: loss(x, target), logits)
    expected = gradient(lambda x: 1 - soft_dice(x, target, axes)[..., classes].mean(), logits)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("zero_division", [None, 0, 1, "skip"])
def test_rows_in_one_step_are_rows_by_counts(average, zero_division):
    logits, target = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 4
    loss = MetricLoss("f1", average=average, classes=[1, 3, 4], zero_division=zero_division)
    found = gradient(lambda x: loss(x, target), logits)
    expected = gradient(lambda x: loss.value(loss.statistics(x, target)), logits)
    torch.testing.assert_close(found, expected)
    assert loss.left_out() == ([4] if average == "macro" and zero_division not in (0, 1) else [])


def test_one_value_per_chosen_class():
    logits, target = images()
    values = MetricLoss("iou", average=None)(logits, target)
    assert torch.equal(MetricLoss("iou", average=None, classes=[3, 1])(logits, target), values[[3, 1]])


@pytest.mark.parametrize("chunks", [1, 2])
def test_empty_images_are_skipped(chunks):
    logits, target = images(c=1, n=4)
    target = torch.randint(0, 2, target.shape, generator=torch.Generator().manual_seed(1))
    target[1] = 0
    kept = [0, 2, 3]
    model = torch.nn.Conv2d(1, 1, 1).double()
    loss = MetricLoss("dice", per_image=True, zero_division="skip")
    value = backward_in_chunks(
        model, loss, [(a, b) for a, b in zip(logits.chunk(chunks), target.chunk(chunks), strict=True)]
    )
    found = model.weight.grad.clone()
    model.zero_grad()
    expected = MetricLoss("dice", per_image=True)(model(logits[kept]), target[kept])
    expected.backward()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(found, model.weight.grad)


def test_a_batch_of_empty_images_has_a_zero_gradient():
    logits, target = images(c=1)
    loss = MetricLoss("dice", per_image=True, zero_division="skip")
    value, slopes = gradient(lambda x: loss(x, target * 0), logits)
    assert value == 1
    assert not slopes.any()


def test_the_skipped_class_of_a_batch_has_a_finite_gradient():
    logits, target = images()
    loss = MetricLoss("dice", classes=[3], zero_division="skip")
    value, slopes = gradient(lambda x: loss(x, target.clamp(max=2)), logits)
    assert value == 1
    assert not slopes.any()


PROBABILITIES = {
    "binary": (lambda x: x[:, :1].sigmoid(), lambda x: x[:, :1], lambda y: (y > 1).long()),
    "multiclass": (lambda x: x.softmax(1), lambda x: x, lambda y: y),
    "multilabel": (
        lambda x: x.sigmoid(),
        lambda x: x,
        lambda y: torch.nn.functional.one_hot(y, 4).movedim(-1, 1),
    ),
}


@pytest.mark.parametrize("task", PROBABILITIES)
def test_probabilities_give_the_loss_of_their_logits(task):
    x, y = images()
    to_probabilities, to_logits, to_target = PROBABILITIES[task]
    target = to_target(y)
    plain = MetricLoss("dice", task=task, per_image=True)
    explicit = MetricLoss("dice", task=task, per_image=True, from_probabilities=True)
    found = gradient(lambda z: explicit(to_probabilities(z), target), x)
    torch.testing.assert_close(found, gradient(lambda z: plain(to_logits(z), target), x))
    assert "from_probabilities=True" in repr(explicit)


def test_certain_probabilities_have_finite_gradients():
    loss = MetricLoss("f1", from_probabilities=True)
    value, slopes = gradient(lambda p: loss(p, torch.tensor([1, 0, 1, 0])), torch.tensor([1.0, 0.0, 0.0, 0.6]))
    assert slopes.isfinite().all()
    assert 0 < value < 1
    value, slopes = gradient(lambda p: loss(p, torch.tensor([0, 1])), torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    assert slopes.isfinite().all()


def test_ignored_pixels_may_hold_anything():
    p, y = images()[0].softmax(1), images()[1]
    loss = MetricLoss("dice", from_probabilities=True, ignore_index=255)
    expected = loss(p, y.index_fill(1, torch.tensor([0]), 255))
    p[:, :, 0] = 7.0
    assert torch.equal(loss(p, y.index_fill(1, torch.tensor([0]), 255)), expected)


@pytest.mark.parametrize(
    ("values", "target", "message"),
    [
        ([0.2, 1.3, -2.0], [0, 1, 0], r"2 of 3 are not; the first is 1.3 at position 1. If these are logits"),
        ([0.2, float("nan")], [0, 1], "the first is nan at position 1"),
        ([[0.5, 0.5], [0.9, 0.9]], [0, 1], "for 1 of 2 samples they do not; the first sum is 1.8. Apply a softmax"),
        ([1, 0], [0, 1], "must be floating point"),
    ],
)
def test_other_values_are_named(values, target, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MetricLoss("f1", from_probabilities=True)(torch.tensor(values), torch.tensor(target))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": [1, 1]}, "each once"),
        ({"zero_division": "nan"}, "0, 1 or 'skip'"),
        ({"metric": "weighted_kappa(power=2)", "classes": [1]}, "whole confusion matrix"),
    ],
)
def test_wrong_settings_are_refused_when_the_loss_is_made(settings, message):
    with pytest.raises(ValueError, match=message):
        MetricLoss(**{"metric": "f1", **settings})


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (torch.zeros(4), torch.tensor([0, 1, 0, 1]), "a binary problem has one"),
        (torch.zeros(4, 3), torch.tensor([0, 1, 2, 1]), "there are 3 classes, 0 to 2"),
    ],
)
def test_classes_that_do_not_exist(logits, target, message):
    with pytest.raises(ValueError, match=message):
        MetricLoss("f1", classes=[1, 3])(logits, target)


@pytest.mark.parametrize("settings", [{"classes": [1, 2]}, {"zero_division": 1}, {"from_probabilities": True}], ids=str)
def test_a_model_of_a_population_gets_the_gradient_it_gets_alone(settings):
    logits, target = torch.stack([images(seed=seed)[0].softmax(1) for seed in range(3)]), images()[1].clamp(max=2)
    loss = MetricLoss("dice", per_image=True, **settings)
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(logits, target)
    for member in range(3):
        torch.testing.assert_close(found[member], gradient(lambda x: loss(x, target), logits[member])[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled():
    logits, target = images()
    loss = MetricLoss("dice", classes=[1, 2], per_image=True, zero_division="skip", from_probabilities=True)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found, expected = (gradient(lambda p, one=one: one(p, target), logits.softmax(1)) for one in (compiled, loss))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("masks", [False, True])
def test_the_default_step_of_images_is_identity_unless_there_is_a_threshold(masks):
    logits, target = images()
    if masks:
        logits, target = logits[:, :1], (target == 1).long()
    default, soft = (gradient(lambda x, one=one: one(x, target), logits) for one in (MetricLoss("dice"), SOFT_DICE))
    torch.testing.assert_close(default, soft)
    at_threshold = MetricLoss("dice", threshold=0.4)(logits, target)
    linear = steps.Linear(0.1 if masks else 0.2)
    torch.testing.assert_close(at_threshold, MetricLoss("dice", step=linear, threshold=0.4)(logits, target))
    assert not torch.isclose(at_threshold, default[0])
