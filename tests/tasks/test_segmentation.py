"""Images and volumes: every pixel is a sample, over the batch or per image, with ignored ones and weights."""

import pytest
import task_twins as twins
import torch

from metricfit import Counts, MetricLoss, steps
from metricfit.metrics import averaged, confusion_matrix, f1

SHAPES = {"images": (3, 4), "volumes": (2, 3, 2), "lines": (5,)}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def flat(x):
    return x.movedim(1, -1).reshape(-1, x.shape[1])


def stacked(counts):
    return torch.stack(tuple(counts))


@every_shape
def test_pixels_are_samples(task, shape):
    given = twins.make(task, 3, shape=shape)
    rows = given.target.reshape(-1) if task == "multiclass" else flat(given.target)
    for count in (Counts.soft, Counts.hard):
        found = count(given.logits, given.target, task=task, weight=given.weight)
        expected = count(flat(given.logits), rows, task=task, weight=given.weight.reshape(-1))
        torch.testing.assert_close(stacked(found), stacked(expected))


@every_shape
def test_one_channel_is_binary_with_or_without_its_axis(shape, naive):
    given = twins.make("multilabel", 3, c=1, shape=shape)
    y = given.target.reshape(1, -1).double()
    expected = naive.counts(given.logits.reshape(1, -1), y, given.weight.reshape(1, -1), steps.Linear(0.1), 0.5)
    for target in (given.target, given.target.squeeze(1), given.target.bool(), given.target.squeeze(1).double()):
        for weight in (given.weight, given.weight.unsqueeze(1)):
            torch.testing.assert_close(stacked(Counts.soft(given.logits, target, weight=weight)), expected)
    x = given.logits.clone().requires_grad_()
    MetricLoss("f1")(x, given.target.squeeze(1)).backward()
    gradient = naive.gradient("f1", given.logits.reshape(-1), given.target.reshape(-1), None, steps.Identity())
    torch.testing.assert_close(x.grad.reshape(-1), gradient)


@every_shape
@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel"])
def test_per_image_is_the_mean_of_each_images_metric(kind, shape, twin, naive):
    given = twins.make(
        "multilabel" if kind == "binary" else kind, 4, c=1 if kind == "binary" else 3, shape=shape, seed=2
    )
    x = given.logits.clone().requires_grad_()
    value = MetricLoss("f1", task=kind, per_image=True)(x, given.target, weight=given.weight)
    value.backward()
    plain = given.logits.clone().requires_grad_()
    losses = []
    for z, y, w in zip(plain, given.target, given.weight, strict=True):
        z, w = z.reshape(z.shape[0], -1).T, w.reshape(-1)
        if kind == "binary":
            losses.append(naive.loss("f1", z[:, 0], y.reshape(-1).double(), w, steps.Identity()))
        else:
            rows = y.reshape(-1) if kind == "multiclass" else y.reshape(3, -1).T
            losses.append(twin.loss("f1", kind, z, rows, w, steps.Identity()))
    expected = sum(losses) / len(losses)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    expected.backward()
    torch.testing.assert_close(x.grad, plain.grad, rtol=1e-9, atol=1e-12)
    over_batch = MetricLoss("f1", task=kind)(given.logits, given.target, weight=given.weight)
    assert over_batch.item() != pytest.approx(value.item(), abs=1e-4)


def test_per_image_without_average_keeps_the_classes():
    given = twins.make("multiclass", 5, shape=(4, 4))
    losses = MetricLoss("f1", per_image=True, average=None)(given.logits, given.target)
    each = [MetricLoss("f1", average=None)(given.logits[i : i + 1], given.target[i : i + 1]) for i in range(5)]
    torch.testing.assert_close(losses, torch.stack(each).mean(0))


def test_several_thresholds_per_image():
    given = twins.make("multiclass", 3, shape=(4, 4))
    value = MetricLoss("f1", per_image=True, threshold=[0.3, 0.5])(given.logits, given.target)
    each = [MetricLoss("f1", per_image=True, threshold=t)(given.logits, given.target) for t in (0.3, 0.5)]
    torch.testing.assert_close(value, sum(each) / 2)


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_ignored_pixels_count_for_nothing_even_if_their_logits_are_nan(kind, per_image, any_step):
    given = twins.make("multilabel" if kind == "binary" else kind, 4, c=1 if kind == "binary" else 3, shape=(5, 5))
    target = given.target.squeeze(1) if kind == "binary" else given.target
    ignored = torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(1)) < 0.3
    target = target.masked_fill(ignored, 255)
    x = given.logits.masked_fill(ignored.unsqueeze(1), torch.nan).requires_grad_()
    settings = {"step": any_step, "per_image": per_image}
    value = MetricLoss("f1", ignore_index=255, **settings)(x, target, weight=given.weight)
    value.backward()
    y = given.logits.clone().requires_grad_()
    expected = MetricLoss("f1", **settings)(y, target.masked_fill(ignored, 0), weight=given.weight * ~ignored)
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(x.grad, y.grad)
    assert (x.grad.movedim(1, -1)[ignored] == 0).all()
    hard = Counts.hard(x, target, ignore_index=255)
    assert hard.n.tolist() == [float((~ignored).sum())] * len(hard.n)


def test_ignored_pixels_in_a_mask_of_bytes():
    given = twins.make("multiclass", 2, c=3, shape=(4, 4))
    target = given.target.clone()
    target[0, 0] = 255
    loss = MetricLoss("f1", ignore_index=255)
    torch.testing.assert_close(loss(given.logits, target.to(torch.uint8)), loss(given.logits, target))


def test_everything_ignored_has_the_worst_value_and_no_gradient():
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    value = MetricLoss("f1", ignore_index=-1)(x, torch.full((2, 4, 4), -1))
    value.backward()
    assert value == 1
    assert (x.grad == 0).all()


def test_ignored_labels_of_several():
    given = twins.make("multilabel", 6)
    target = given.target.clone()
    target[1, 2] = target[4] = -1
    found = Counts.soft(given.logits, target, ignore_index=-1, weight=given.weight)
    for k in range(given.c):
        kept = target[:, k] >= 0
        alone = Counts.soft(given.logits[kept, k], target[kept, k], weight=given.weight[kept])
        torch.testing.assert_close(stacked(found)[:, k], stacked(alone)[:, 0])


def test_ignored_samples_of_the_matrix():
    given = twins.make("multiclass", 9)
    target = given.target.clone()
    target[2:4] = -100
    kept = target >= 0
    for soft in (False, True):
        found = confusion_matrix(given.logits, target, soft=soft, ignore_index=-100)
        torch.testing.assert_close(found, confusion_matrix(given.logits[kept], target[kept], soft=soft))


def test_a_weight_per_image_applies_to_each_of_its_pixels(task):
    given = twins.make(task, 4, shape=(3, 3))
    w = torch.tensor([0.5, 1.0, 0.0, 2.0], dtype=torch.float64)
    pixels = w.reshape(4, 1, 1).expand(4, 3, 3)
    expected = stacked(Counts.soft(given.logits, given.target, task=task, weight=pixels))
    for weight in (w, w.unsqueeze(1)):
        torch.testing.assert_close(stacked(Counts.soft(given.logits, given.target, task=task, weight=weight)), expected)
    kept = [0, 1, 3, 3]
    one = torch.tensor([0.5, 1.0, 1.0, 1.0], dtype=torch.float64)
    repeated = Counts.soft(given.logits[kept], given.target[kept], task=task, weight=one)
    torch.testing.assert_close(stacked(repeated), expected)


def test_soft_masks_of_images_need_the_task_and_then_count_as_shares(twin):
    given = twins.make("multiclass", 3, c=4, shape=(3, 3))
    shares = torch.softmax(given.logits.flip(0), 1)
    found = stacked(Counts.soft(given.logits, shares, task="multiclass"))
    torch.testing.assert_close(found, twin.counts("multiclass", flat(given.logits), flat(shares)))
    found = stacked(Counts.soft(given.logits, shares, task="multilabel"))
    torch.testing.assert_close(found, twin.counts("multilabel", flat(given.logits), flat(shares)))
    with pytest.raises(ValueError, match="say which with task='multilabel' or task='multiclass'"):
        Counts.soft(given.logits, shares)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_more_pixels_than_half_precision_can_count(kind, dtype):
    """fp16 ends at 65,504, bf16 cannot count past 256 one by one."""
    c = 1 if kind == "binary" else 3
    x = torch.full((2, c, 256, 256), -8.0, dtype=dtype)
    x[:, 0] = 8.0
    x.requires_grad_()
    target = torch.zeros(2, 256, 256, dtype=torch.long) + (kind == "binary")
    for count in (Counts.hard, Counts.soft):
        counts = count(x, target)
        assert counts.tp.dtype in (torch.float32, torch.float64)
        assert counts.n[0].item() == pytest.approx(2 * 256 * 256, rel=1e-4)
        assert counts.tp[0].item() == pytest.approx(2 * 256 * 256, rel=1e-3)
        assert counts.positives[0].item() == pytest.approx(2 * 256 * 256, rel=1e-4)
    value = MetricLoss("f1", per_image=True)(x, target)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-3)
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("per_image", [False, True])
def test_no_images_at_all(kind, per_image):
    c = 1 if kind == "binary" else 3
    x = torch.zeros(0, c, 4, 4, requires_grad=True)
    target = torch.zeros((0, 4, 4) if kind == "multiclass" else (0, c, 4, 4), dtype=torch.long)
    value = MetricLoss("f1", task=kind, per_image=per_image)(x, target)
    value.backward()
    assert value.isfinite()
    assert x.grad.shape == x.shape


def test_channels_last_logits(task):
    given = twins.make(task, 2, c=3, shape=(4, 5))
    x = given.logits.to(memory_format=torch.channels_last).requires_grad_()
    y = given.logits.clone().requires_grad_()
    for z in (x, y):
        MetricLoss("f1", task=task)(z, given.target).backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_evaluated_per_image_by_scikit_learns_classes():
    given = twins.make("multiclass", 3, shape=(4, 4), seed=3)
    counts = Counts.hard(given.logits, given.target, per_image=True)
    each = [averaged(f1, Counts.hard(given.logits[i : i + 1], given.target[i : i + 1])) for i in range(3)]
    torch.testing.assert_close(averaged(f1, counts), torch.stack(each))
