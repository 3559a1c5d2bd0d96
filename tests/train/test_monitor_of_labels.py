"""Monitor and evaluate with several labels and classes: thresholds per label, best thresholds, and rankings."""

import copy
import math

import numpy as np
import pytest
import torch
from monitored_data import masks
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import nn

from metricfit import MetricLoss
from metricfit.curves import UndefinedRankingWarning, best_threshold
from metricfit.losses import WeightedBCELoss
from metricfit.metrics import PerLabel
from metricfit.train import Monitor, evaluate, fit
from metricfit_papers.populations import fit_population

THRESHOLDS = [0.7, 0.4, 0.8]


def labels(n=120):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    y = x + 0.7 * torch.randn(n, 3, generator=generator) > torch.tensor([1.0, -0.5, 1.5])
    return x, y.long()


def classes(n=120):
    x, _ = labels(n)
    noise = torch.randn(n, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return x, (x + noise).argmax(1)


ORACLES = {
    "auroc": lambda y, s, **at: roc_auc_score(y, s, multi_class="ovr", **at),
    "average_precision": average_precision_score,
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
@pytest.mark.parametrize("make", [labels, classes])
def test_rankings_are_scikit_learns(name, average, make):
    logits, y = make()
    weight = torch.arange(len(y)) % 3
    scores = logits.sigmoid() if make is labels else logits.softmax(1)
    expected = ORACLES[name](y.numpy(), scores.numpy(), average=average, sample_weight=weight.numpy())
    measured = Monitor(name, average=average).measure(logits, y, weight)
    assert measured.value == pytest.approx(expected)
    assert math.isnan(measured.threshold)
    result = evaluate(nn.Identity(), (logits, y, weight), [name, "f1"], average=average)
    assert result[name] == pytest.approx(expected)


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_pairs_of_classes_are_scikit_learns(average):
    logits, y = classes()
    expected = roc_auc_score(y.numpy(), logits.softmax(1).numpy(), average=average, multi_class="ovo")
    assert Monitor("auroc_ovo", average=average).measure(logits, y).value == pytest.approx(expected)
    assert evaluate(nn.Identity(), (logits, y), "auroc_ovo", average=average)["auroc_ovo"] == pytest.approx(expected)


def test_ignored_labels_are_left_out_of_rankings():
    logits, y = labels()
    known = torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < 0.7
    marked = torch.where(known, y, -1)
    expected = np.mean([roc_auc_score(y[known[:, k], k], logits[known[:, k], k]) for k in range(3)])
    assert Monitor("auroc", ignore_index=-1).measure(logits, marked).value == pytest.approx(expected)
    logits, y = classes()
    kept = torch.arange(len(y)) % 4 > 0
    expected = Monitor("auroc").measure(logits[kept], y[kept]).value
    marked = Monitor("auroc", ignore_index=-1).measure(logits, torch.where(kept, y, -1))
    assert marked.value == pytest.approx(expected)


def test_overlapping_masks_have_rankings_and_best_thresholds():
    x, y = masks()
    rows = [item.movedim(1, 3).reshape(-1, 2) for item in (x, y)]
    for monitor in (Monitor("f1", threshold="best", task="multilabel"), Monitor("auroc", task="multilabel")):
        measured, expected = monitor.measure(x, y), monitor.measure(*rows)
        assert measured.value == pytest.approx(expected.value)


@pytest.mark.parametrize(
    "thresholds", [THRESHOLDS, PerLabel(THRESHOLDS), torch.tensor(THRESHOLDS), np.array(THRESHOLDS)]
)
def test_a_metric_at_thresholds_per_label_is_scikit_learns(thresholds):
    logits, y = labels()
    monitor = Monitor("f1", threshold=thresholds)
    measured = monitor.measure(logits, y)
    decided = (logits.sigmoid() >= torch.tensor(THRESHOLDS)).long()
    assert measured.value == pytest.approx(f1_score(y, decided, average="macro"))
    assert measured.threshold == pytest.approx(THRESHOLDS)
    parts = [monitor.count(logits[part], y[part]) for part in (slice(50), slice(50, None))]
    assert monitor.measure_counts(parts[0] + parts[1]).value == measured.value
    assert evaluate(nn.Identity(), (logits, y), "f1", threshold=thresholds)["f1"] == measured.value


@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
def test_the_best_thresholds_of_labels(average):
    logits, y = labels()
    measured = Monitor("f1", threshold="best", average=average).measure(logits, y)
    if average == "micro":
        assert measured.value == pytest.approx(best_threshold(logits.reshape(-1), y.reshape(-1), "f1").value)
        assert isinstance(measured.threshold, float)
    else:
        best = [best_threshold(logits[:, label], y[:, label], "f1").value for label in range(3)]
        shares = y.sum(0) if average == "weighted" else None
        assert measured.value == pytest.approx(np.average(best, weights=shares))
    again = Monitor("f1", threshold=measured.threshold, average=average).measure(logits, y)
    assert again == measured


def test_a_label_without_positives_is_reported():
    logits, y = labels()
    y[:, 1] = 0
    with pytest.warns(UndefinedRankingWarning, match="label 1: there are no positives or no negatives"):
        assert math.isnan(Monitor("auroc").measure(logits, y).value)
    assert 0.5 < Monitor("auroc", average="micro").measure(logits, y).value < 1
    best = Monitor("f1", threshold="best").measure(logits, y)
    decided = (logits.sigmoid() >= torch.tensor(best.threshold)).long()
    assert best.value == pytest.approx(f1_score(y, decided, average="macro", zero_division=0))
    groups = ["a"] * 60 + ["b"] * 60
    y[60:, 1] = 1
    by_group = evaluate(nn.Identity(), (logits, y), "auroc", groups=groups).by_group
    assert all(math.isnan(values["auroc"]) for values in by_group.values())


@pytest.mark.parametrize("monitor", ["best f1", Monitor("f1", threshold=THRESHOLDS), "auroc"])
def test_fit_keeps_the_thresholds_of_the_best_epoch(monitor, tmp_path):
    x, y = (each.float() for each in labels())
    settings = {"validation": (x, y), "epochs": 2, "lr": 0.1, "progress": False, "checkpoint_dir": tmp_path}
    torch.manual_seed(0)
    result = fit(nn.Linear(3, 3), (x, y), WeightedBCELoss(), monitor=monitor, **settings)
    again = fit(nn.Linear(3, 3), (x, y), WeightedBCELoss(), monitor=monitor, resume=True, **settings)
    assert again.best == result.best
    assert again.threshold == pytest.approx(result.threshold, nan_ok=True, abs=0)
    assert again.history == result.history
    name = monitor.name if isinstance(monitor, Monitor) else monitor
    if name == "auroc":
        assert result.best == pytest.approx(roc_auc_score(y, result.model(x).detach()))
        return
    assert len(result.threshold) == 3
    assert evaluate(result, (x, y))["f1"] == pytest.approx(result.best)
    assert f"{min(result.threshold):.4g} to {max(result.threshold):.4g}" in str(result.history)


def test_several_monitors_of_labels_and_a_requirement_at_thresholds_per_label():
    x, y = (each.float() for each in labels())
    required = Monitor("precision", threshold=THRESHOLDS, subject_to="recall >= 0.99")
    settings = {"validation": (x, y), "epochs": 1, "progress": False}
    with pytest.warns(UserWarning, match="recall >= 0.99 does not hold: recall is"):
        result = fit(nn.Linear(3, 3), (x, y), MetricLoss("f1"), monitor=[required, "f1", "auroc"], **settings)
    assert {"precision, recall >= 0.99 at thresholds per label", "f1", "auroc"} <= set(result.history.columns)
    decided = (result.model(x).sigmoid() >= torch.tensor(THRESHOLDS)).long()
    worst = min(float((decided * y)[:, k].sum() / y[:, k].sum()) for k in range(3))
    assert result.requirements[0].value == pytest.approx(worst)


def test_stacked_models_are_trained_at_thresholds_per_label():
    x, y = (each.float() for each in labels())
    torch.manual_seed(0)
    models = [nn.Linear(3, 3) for _ in range(2)]
    alone = copy.deepcopy(models[1])
    loss = MetricLoss("f1", threshold=PerLabel(THRESHOLDS))
    rows = list(range(80)), list(range(80, 120))
    settings = {"epochs": 2, "batch_size": 80, "lr": 0.1}
    results = fit_population(models, (x, y), loss, splits=[rows, rows], monitor="best f1", **settings)
    single = fit(
        alone, (x[:80], y[:80]), loss, validation=(x[80:], y[80:]), monitor="best f1", progress=False, **settings
    )
    torch.testing.assert_close(results[1].model.weight, single.model.weight)
    assert results[1].threshold == pytest.approx(single.threshold)


WRONG = {
    "out_of_range": (
        lambda: Monitor("f1", threshold=[0.5, 1.5]),
        "strictly between 0 and 1: a number, one number per label, or 'best'",
    ),
    "empty": (lambda: Monitor("f1", threshold=[]), "strictly between 0 and 1: a number, one number per label"),
    "average": (lambda: Monitor("auroc", average=None), "average=None gives one number per class"),
    "pairs": (lambda: Monitor("auroc_ovo", average="micro"), "'macro' or 'weighted', got average='micro'"),
    "length": (lambda: Monitor("f1", threshold=[0.5, 0.4]).measure(*labels()), "2 thresholds for 3 labels"),
    "classes": (lambda: Monitor("f1", threshold=THRESHOLDS).measure(*classes()), "classes exclude each other"),
    "required": (
        lambda: Monitor("f1", threshold="best", subject_to="recall >= 0.9").measure(*labels()),
        "searched without requirements.*best_decision",
    ),
    "pairs_of_labels": (lambda: Monitor("auroc_ovo").measure(*labels()), "need classes that exclude each other"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_monitors_of_labels_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
