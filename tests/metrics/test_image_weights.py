"""Weights with per_image: a weight of an image is the image so many times, and images without pixels are left out."""

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from metricfit import MetricLoss, evaluate
from metricfit.losses import LovaszLoss
from metricfit.metrics import Accumulator, ThresholdGrid
from metricfit.train import Monitor
from metricfit.train.monitor import MonitorStream

WEIGHT = torch.tensor([1, 3, 0, 2])
REPEATED = torch.tensor([0, 1, 1, 1, 3, 3])


def binary():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 1, 5, 5, generator=generator)
    return logits, torch.randint(0, 2, (4, 1, 5, 5), generator=generator)


def classes():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 5, 5, generator=generator), torch.randint(0, 3, (4, 5, 5), generator=generator)


def overlapping():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(4, 3, 5, 5, generator=generator), torch.randint(0, 2, (4, 3, 5, 5), generator=generator)


TASKS = {"binary": binary, "multiclass": classes, "multilabel": overlapping}


def accumulated(logits, target, weight=None, **settings):
    accumulator = Accumulator("dice", per_image=True, **settings)
    for part in torch.arange(len(logits)).split(2):
        accumulator.update(logits[part], target[part], None if weight is None else weight[part])
    return accumulator.compute()


def streamed(monitor, logits, target, weight=None):
    stream = MonitorStream(monitor)
    for part in torch.arange(len(logits)).split(3):
        stream.add(logits[part], target[part], None if weight is None else weight[part])
    return stream.measure().value


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("average", ["macro", "micro", None])
def test_a_weight_is_the_image_so_many_times(task, average):
    logits, target = TASKS[task]()
    expected = accumulated(logits[REPEATED], target[REPEATED], task=task, average=average)
    for weight in (WEIGHT, WEIGHT.double().unsqueeze(1)):
        torch.testing.assert_close(accumulated(logits, target, weight, task=task, average=average), expected)
    unweighted = accumulated(logits, target, task=task, average=average)
    assert not torch.allclose(unweighted, expected)


@pytest.mark.parametrize("task", TASKS)
def test_monitor_and_evaluate_weigh_images(task):
    logits, target = TASKS[task]()
    expected = accumulated(logits, target, WEIGHT, task=task).item()
    monitor = Monitor("dice", per_image=True, task=task)
    assert monitor.measure(logits, target, WEIGHT).value == pytest.approx(expected)
    assert streamed(monitor, logits, target, WEIGHT) == pytest.approx(expected)
    data = logits, target, WEIGHT.float()
    result = evaluate(nn.Identity(), data, "dice", per_image=True, task=task, batch_size=3)
    assert result.values["f1"] == pytest.approx(expected)
    assert result.per_image["f1"].isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", [MetricLoss, LovaszLoss])
def test_losses_and_gradients_weigh_images(task, kind):
    logits, target = TASKS[task]()
    loss = (
        MetricLoss("dice", per_image=True, task=task) if kind is MetricLoss else LovaszLoss(per_image=True, task=task)
    )

    def gradient(call):
        x = logits.clone().requires_grad_()
        value = call(x)
        value.backward()
        return value.detach(), x.grad

    expected = gradient(lambda x: loss(x[REPEATED], target[REPEATED]))
    torch.testing.assert_close(gradient(lambda x: loss(x, target, WEIGHT.float())), expected)
    if kind is MetricLoss:  # chunks and processes add statistics
        halves = [(slice(0, 1), slice(1, 4)), (slice(0, 3), slice(3, 4))]
        for parts in halves:
            total = sum(loss.statistics(logits[part], target[part], WEIGHT[part]) for part in parts)
            torch.testing.assert_close(loss.value(total), expected[0])


@pytest.mark.parametrize("task", TASKS)
def test_images_without_counted_pixels_are_left_out(task):
    """Whether their weights are 0, of the image or of its pixels, or their pixels are ignored."""
    logits, target = TASKS[task]()
    pixels = torch.ones(4, 5, 5)
    pixels[2] = 0
    ignored = target.index_fill(0, torch.tensor([2]), 255)
    kept = [0, 1, 3]
    calls = [
        lambda x, y, w, k: accumulated(x, y, w, task=task, ignore_index=k),
        lambda x, y, w, k: Monitor("dice", per_image=True, task=task, ignore_index=k).measure(x, y, w).value,
        lambda x, y, w, k: MetricLoss("dice", per_image=True, task=task, ignore_index=k)(x, y, w),
        lambda x, y, w, k: LovaszLoss(per_image=True, task=task, ignore_index=k)(x, y, w),
    ]
    for call in calls:
        expected = float(call(logits[kept], target[kept], None, None))
        for weight in (pixels, torch.tensor([1.0, 1.0, 0.0, 1.0])):
            assert float(call(logits, target, weight, None)) == pytest.approx(expected)
        assert float(call(logits, ignored, None, 255)) == pytest.approx(expected)


def test_weights_of_pixels_count_within_their_image():
    logits, target = binary()
    pixels = torch.rand(4, 1, 5, 5, generator=torch.Generator().manual_seed(3)) * torch.tensor([1, 9, 3, 5.0]).reshape(
        4, 1, 1, 1
    )
    decided = logits >= 0
    expected = [
        f1_score(target[k].flatten(), decided[k].flatten(), sample_weight=pixels[k].flatten().double())
        for k in range(4)
    ]
    assert accumulated(logits, target, pixels).item() == pytest.approx(sum(expected) / 4)


def test_several_thresholds():
    logits, target = binary()
    grid = ThresholdGrid([0.3, 0.5])
    expected = [accumulated(logits, target, WEIGHT, threshold=number).item() for number in grid.numbers]
    assert accumulated(logits, target, WEIGHT, threshold=grid).tolist() == pytest.approx(expected)
    loss = MetricLoss("dice", per_image=True, threshold=grid)
    torch.testing.assert_close(
        loss(logits, target, WEIGHT.float()), loss(logits[REPEATED], target[REPEATED]), check_dtype=False
    )


def test_no_image_is_left():
    logits, target = binary()
    assert accumulated(logits, target, torch.zeros(4)).isnan()
    x = logits.clone().requires_grad_()
    for loss in (MetricLoss("dice", per_image=True), LovaszLoss(per_image=True)):
        loss(x, target, torch.zeros(4)).backward()
        assert not x.grad.any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_losses_weigh_images():
    logits, target = classes()
    torch._dynamo.reset()
    loss = MetricLoss("dice", per_image=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, target, WEIGHT.float()), loss(logits, target, WEIGHT.float()))


@pytest.mark.parametrize("zero_division", [None, 0, 1, "skip"])
def test_one_loss_per_class(zero_division):
    logits, target = classes()
    loss = MetricLoss("f1", per_image=True, average=None, zero_division=zero_division)
    mean = MetricLoss("f1", per_image=True, average="macro", zero_division=0)
    values = loss(logits, target)
    assert values.shape == (logits.shape[1],)
    if zero_division == 0:
        torch.testing.assert_close(values.mean(), mean(logits, target))
