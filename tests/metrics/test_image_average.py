"""Means over images, against MONAI 1.6.1, and accumulated over batches; probabilities as input of an Accumulator."""

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from metricfit import Counts, evaluate, metrics
from metricfit.metrics import Accumulator, averaged
from metricfit.metrics.average import join_images, mean_of_images
from metricfit.train import Monitor


def masks():
    """Four images of four classes: the second has two of them, the third only background, without false alarms."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 4, (4, 6, 6), generator=generator)
    target[1], target[2], target[3, 0] = target[1].clamp(max=1), 0, 3
    other = torch.rand(4, 6, 6, generator=generator) < 0.6
    decided = torch.where(other, target, torch.randint(0, 3, (4, 6, 6), generator=generator))
    decided[2], decided[3] = 0, decided[3].clamp(max=2)
    assert (int(target.sum()), int(decided.sum())) == (142, 123)  # the masks that MONAI was given
    return decided, target


def logits_for(decided):
    return torch.nn.functional.one_hot(decided, 4).movedim(-1, 1).float()


#: DiceMetric and MeanIoU(include_background, reduction="mean", ignore_empty), in this order.
MONAI = {
    ("dice", True, True): 0.7650488615,
    ("dice", True, False): 0.7278465033,
    ("dice", False, True): 0.6547958255,
    ("dice", False, False): 0.6855412722,
    ("iou", True, True): 0.6710563898,
    ("iou", True, False): 0.6504520178,
    ("iou", False, True): 0.5337502360,
    ("iou", False, False): 0.6145983934,
}


@pytest.mark.parametrize(("name", "include_background", "ignore_empty"), MONAI)
def test_means_over_images_are_those_of_monai(name, include_background, ignore_empty):
    decided, target = masks()
    settings = {
        "classes": None if include_background else [1, 2, 3],
        "zero_division": "skip" if ignore_empty else 1,
    }
    counts = Counts.hard(logits_for(decided), target, per_image=True)
    value = mean_of_images(averaged(metrics.get_metric(name), counts, "macro", **settings))
    assert value.item() == pytest.approx(MONAI[name, include_background, ignore_empty], abs=1e-7)
    accumulator = Accumulator(name, per_image=True, **settings)
    for part in (slice(0, 3), slice(3, 4)):
        accumulator.update(logits_for(decided)[part], target[part])
    assert accumulator.compute().item() == pytest.approx(value.item(), abs=1e-12)
    parts = [Counts.hard(logits_for(decided)[p], target[p], per_image=True) for p in (slice(0, 1), slice(1, 4))]
    assert join_images(parts) == counts


def test_one_value_per_class_and_no_image_left():
    decided, target = masks()
    accumulator = Accumulator("dice", per_image=True, average=None, classes=[3, 2], zero_division="skip")
    accumulator.update(logits_for(decided)[1:3], target[1:3])
    assert accumulator.compute().isnan().all()
    accumulator.update(logits_for(decided)[:1], target[:1])
    of_first = metrics.f1(Counts.hard(logits_for(decided)[:1], target[:1]))
    assert accumulator.compute().tolist() == of_first[[3, 2]].tolist()


def test_counts_of_all_pixels_over_some_classes():
    decided, target = masks()
    accumulator = Accumulator("iou", classes=[1, 2])
    accumulator.update(logits_for(decided), target)
    assert accumulator.compute() == metrics.jaccard(Counts.hard(logits_for(decided), target))[1:3].mean()


def test_a_probability_that_equals_the_threshold_is_positive():
    probabilities = torch.arange(1, 256) / 256
    labels = torch.ones(255)
    for threshold in (0.25, 0.3, 1 / 3, *(torch.arange(1, 9) / 10).tolist(), 77 / 256):
        for dtype in (torch.float32, torch.float64):
            for nearest in (probabilities, torch.full((255,), threshold)):
                accumulator = Accumulator("recall", threshold=threshold, from_probabilities=True)
                accumulator.update(nearest.to(dtype), labels)
                assert accumulator.counts.tp.item() == (nearest.to(dtype).double() >= threshold).sum()


def test_probabilities_of_classes_decide_by_the_largest():
    probabilities = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [1.0, 0.0, 0.0]])
    accumulator = Accumulator("accuracy", from_probabilities=True)
    accumulator.update(probabilities, torch.tensor([1, 0, 0]))
    assert accumulator.compute() == 1
    with pytest.raises(ValueError, match=r"the first sum is 0\.5"):
        accumulator.update(probabilities / 2, torch.tensor([1, 0, 0]))


def test_torchmetrics_and_wrong_use():
    torchmetrics = pytest.importorskip("torchmetrics")
    from metricfit.integrations import as_torchmetrics

    decided, target = masks()
    metric = as_torchmetrics(Accumulator("dice", per_image=True, classes=[1, 2, 3], zero_division="skip"))
    assert isinstance(metric, torchmetrics.Metric)
    for part in (slice(0, 3), slice(3, 4)):
        metric.update(logits_for(decided)[part], target[part])
    assert metric.compute().item() == pytest.approx(MONAI["dice", False, True], abs=1e-7)
    with pytest.raises(ValueError, match="not images"):
        Accumulator("recall.gap(2)", per_image=True)
    accumulator = Accumulator("f1", per_image=True)
    with pytest.raises(Exception, match="values of images, not their counts"):
        _ = accumulator.counts
    with pytest.raises(Exception, match="has seen no batch"):
        accumulator.compute()
    with pytest.raises(ValueError, match="are joined"):
        join_images([])


@pytest.mark.parametrize("decided", [[0, 0, 0, 0], [0, 1, 0, 0]])
def test_weighted_average_of_empty_images_is_that_of_scikit_learn(decided):
    counts = Counts.from_labels(torch.tensor(decided), torch.zeros(4, dtype=torch.long), num_classes=3)
    for rule in (0, 1):
        expected = f1_score([0] * 4, decided, labels=[1, 2], average="weighted", zero_division=rule)
        value = averaged(metrics.f1, counts, "weighted", classes=[1, 2], zero_division=rule)
        assert value.item() == pytest.approx(expected)


def test_the_average_over_rows_is_that_of_images_of_labels():
    """As the message for average="samples" says."""
    generator = torch.Generator().manual_seed(0)
    logits, target = torch.randn(30, 5, generator=generator), torch.randint(0, 2, (30, 5), generator=generator)
    target[3], logits[3] = 0, -1.0  # a row without labels
    expected = f1_score(target, logits >= 0, average="samples", zero_division=0)
    accumulator = Accumulator("f1", per_image=True)
    accumulator.update(logits.unsqueeze(1), target.unsqueeze(1))
    assert accumulator.compute().item() == pytest.approx(expected)
    model = nn.Sequential(nn.Identity(), nn.Unflatten(1, (1, -1)))
    result = evaluate(model, (logits, target.unsqueeze(1)), "f1", per_image=True)
    assert result["f1"] == pytest.approx(expected)
    assert Monitor("f1", per_image=True).measure(logits.unsqueeze(1), target.unsqueeze(1)).value == result["f1"]
    for call in (
        lambda: Accumulator("f1", average="samples"),
        lambda: Monitor("f1", average="samples"),
        lambda: evaluate(nn.Identity(), (logits, target), average="samples"),
    ):
        with pytest.raises(ValueError, match=r"per_image=True with logits\.unsqueeze\(1\).*nn\.Unflatten"):
            call()
