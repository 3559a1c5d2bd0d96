"""Values per image, of some classes and from probabilities, in Monitor, evaluate and fit."""

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn

from metricfit import AugmentedLagrangian, MetricLoss, evaluate, fit
from metricfit.losses import Mix
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.metrics import PerLabel
from metricfit.train import Monitor


def images(n=5, c=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, c, 6, 6, generator=generator)
    target = torch.randint(0, c, (n, 6, 6), generator=generator)
    target[1] = 0
    return logits, target


def by_scikit_learn(logits, target, classes, zero_division):
    """The macro F1 of each image; with "skip" of the classes that it has, and None for an image that has none."""
    values = []
    for decided, true in zip(logits.argmax(1), target, strict=True):
        labels = [k for k in classes if zero_division != "skip" or bool((true == k).any())]
        number = 0 if zero_division == "skip" else zero_division
        score = f1_score(true.flatten(), decided.flatten(), labels=labels, average="macro", zero_division=number)
        values.append(score if labels else None)
    return values


@pytest.mark.parametrize("zero_division", [0, 1, "skip"])
@pytest.mark.parametrize("classes", [[1, 2, 3], [2]])
def test_images_are_measured_one_by_one(classes, zero_division):
    logits, target = images()
    logits[1] = torch.tensor([9.0, 0, 0, 0]).reshape(4, 1, 1)  # and its decisions are background too
    settings = {"classes": classes, "zero_division": zero_division, "per_image": True}
    result = evaluate(nn.Identity(), (logits, target), ["f1", "iou"], batch_size=2, **settings)
    expected = by_scikit_learn(logits, target, classes, zero_division)
    kept = [value for value in expected if value is not None]
    assert result["f1"] == pytest.approx(sum(kept) / len(kept))
    found = [None if value.isnan() else pytest.approx(value.item()) for value in result.per_image["f1"]]
    assert found == expected
    assert result.logits is None
    assert result.rows == 5
    assert len(result.per_image["jaccard"]) == 5
    measured = Monitor("f1", **settings).measure(logits, target)
    assert measured.value == pytest.approx(result["f1"])


def test_all_pixels_of_some_classes_and_kept_logits():
    logits, target = images()
    for keep in (False, True):
        result = evaluate(nn.Identity(), (logits, target), "f1", classes=[3, 1], average="micro", keep_logits=keep)
        expected = f1_score(target.flatten(), logits.argmax(1).flatten(), labels=[1, 3], average="micro")
        assert result["f1"] == pytest.approx(expected)
        assert result.per_image == {}
    result = evaluate(nn.Identity(), (logits, target), "f1", per_image=True, keep_logits=True)
    assert torch.equal(result.logits, logits)
    assert torch.equal(result.target, target)


def test_requirements_of_a_monitor_per_image_are_of_all_pixels():
    logits, target = images()
    recall = evaluate(nn.Identity(), (logits, target), "recall[2]")["recall[2]"]
    for bound, feasible in ((recall - 0.01, True), (recall + 0.01, False)):
        monitor = Monitor("f1", subject_to=f"recall[2] >= {bound}", per_image=True, classes=[1, 2])
        assert monitor.measure(logits, target).feasible is feasible
    assert Monitor("f1", per_image=True, classes=[1, 2]).name == "f1 of classes 1, 2 per image"


def test_fit_validates_images_batch_by_batch():
    """The monitored value of the last epoch is what evaluate finds, also for a stream of unequal batches."""
    logits, target = images(n=7, c=3)
    monitors = [Monitor("dice", classes=[1, 2], per_image=True, zero_division="skip"), Monitor("dice", classes=[1, 2])]
    objective = Mix((WeightedCrossEntropyLoss(), 1.0), (MetricLoss("dice", classes=[1, 2], per_image=True), 1.0))
    torch.manual_seed(0)
    result = fit(
        nn.Conv2d(3, 3, 1), (logits, target), objective, validation=(logits, target), epochs=2, batch_size=3,
        monitor=monitors, seed=0,
    )  # fmt: skip
    best = max(result.history, key=lambda row: row["value"])
    again = evaluate(result, (logits, target), "dice", classes=[1, 2], per_image=True, zero_division="skip")
    assert best["value"] == pytest.approx(again["f1"], abs=1e-6)
    pixels = evaluate(result, (logits, target), "dice", classes=[1, 2])
    assert best[monitors[1].name] == pytest.approx(pixels["f1"], abs=1e-6)


def test_probabilities_are_measured_as_their_logits_are():
    logits, target = images()
    by_logits = evaluate(nn.Identity(), (logits, target), ["f1", "mcc"], per_image=True)
    by_probabilities = evaluate(nn.Softmax(1), (logits, target), ["f1", "mcc"], per_image=True, from_probabilities=True)
    assert by_probabilities.values == pytest.approx(by_logits.values)
    x, y = torch.randn(40, 1), torch.arange(40) % 2
    metrics = ["f1", "auroc", "best f1"]
    found = evaluate(nn.Sigmoid(), (x, y), metrics, threshold=0.3, from_probabilities=True)
    assert found.values == pytest.approx(evaluate(nn.Identity(), (x, y), metrics, threshold=0.3).values)
    monitor = Monitor("f1", threshold=0.3, from_probabilities=True)
    assert monitor.measure(x.sigmoid(), y).value == pytest.approx(found["f1"])
    with pytest.raises(ValueError, match="values from 0 to 1, but"):
        evaluate(nn.Identity(), (x * 9, y), from_probabilities=True)


def test_fit_takes_the_kind_of_input_from_the_objective():
    x, y = torch.randn(60, 2), (torch.arange(60) % 3 == 0).long()
    model = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())
    result = fit(
        model, (x, y), MetricLoss("f1", from_probabilities=True), validation=(x, y), epochs=1,
        monitor=Monitor("f1", subject_to="recall >= 0"), seed=0,
    )  # fmt: skip
    with torch.no_grad():
        expected = f1_score(y, result.model(x).squeeze(1) >= 0.5, zero_division=0)
    assert result.history[-1]["value"] == pytest.approx(expected)
    assert evaluate(result, (x, y))["f1"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: evaluate(nn.Identity(), (x, y), "auroc", classes=[1]), "classes=: only for metrics of decisions"),
        (lambda x, y: evaluate(nn.Identity(), (x, y), "best f1", per_image=True), "not with threshold='best'"),
        (lambda x, y: evaluate(nn.Identity(), (x, y), threshold="best", zero_division=1), "threshold='best'"),
        (lambda x, y: evaluate(nn.Identity(), (x, y), per_image=True, groups=[0] * 5), "not both"),
        (lambda x, y: evaluate(nn.Identity(), (x, y), "accuracy", classes=[1]), "whole confusion matrix"),
        (lambda x, y: evaluate(nn.Identity(), (x, y), classes=[4]), "there are 4 classes"),
        (lambda x, y: evaluate(nn.Identity(), (x[:, :, 0, 0], y[:, 0, 0]), per_image=True), "needs images"),
        (lambda x, y: Monitor("loss", per_image=True), "not with 'loss'"),
        (lambda x, y: Monitor("auroc", classes=[1]), "not with 'auroc'"),
        (lambda x, y: Monitor("f1", threshold="best", per_image=True), "threshold='best'"),
        (lambda x, y: Mix((MetricLoss("f1", from_probabilities=True), 1), (MetricLoss("f1"), 1)), "one kind of input"),
        (lambda x, y: AugmentedLagrangian(MetricLoss("f1", from_probabilities=True), "recall >= 0.9"), "take logits"),
        (lambda x, y: Monitor("f1", zero_division=2), "0, 1 or 'skip'"),
        (lambda x, y: Monitor("f1", classes=[1]).measure(x[:, :1], (y > 0).long()), "a binary problem has one"),
    ],
)
def test_wrong_use_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(*images())


def test_thresholds_of_labels_per_image():
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(6, 4, 5, 5, generator=generator)
    target = torch.randint(0, 2, (6, 4, 5, 5), generator=generator)
    thresholds = torch.tensor([0.3, 0.5, 0.6, 0.8])
    result = evaluate(
        nn.Identity(), (logits, target), threshold=PerLabel(thresholds), task="multilabel", per_image=True
    )
    decided = logits.sigmoid() >= thresholds.reshape(4, 1, 1)
    expected = [
        f1_score(target[k].flatten(1).T, decided[k].flatten(1).T, average="macro", zero_division=0) for k in range(6)
    ]
    assert result.per_image["f1"].tolist() == pytest.approx(expected)
