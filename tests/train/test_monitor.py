"""Monitor: values equal to scikit-learn's, thresholds, requirements, and which of two measurements is better."""

import math
from dataclasses import replace

import pytest
import torch
from monitored_data import masks
from sklearn import metrics as sklearn_metrics

from metricfit import metrics
from metricfit.curves import best_threshold
from metricfit.train import Monitor
from metricfit.train.monitor import as_monitor


def binary(n=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, generator=generator, dtype=torch.float64)
    return logits, (logits + torch.randn(n, generator=generator, dtype=torch.float64) > 0.7).double()


def decisions(logits, threshold):
    return (logits.sigmoid() >= threshold).long().numpy()


@pytest.mark.parametrize("threshold", [0.5, 0.3])
def test_a_metric_at_a_threshold_is_scikit_learns(threshold):
    logits, y = binary()
    measured = Monitor("f1", threshold=threshold).measure(logits, y)
    assert measured.value == pytest.approx(sklearn_metrics.f1_score(y.numpy(), decisions(logits, threshold)))
    assert measured.threshold == threshold


def test_a_column_of_logits_is_a_row():
    logits, y = binary()
    assert Monitor("f1").measure(logits.unsqueeze(1), y) == Monitor("f1").measure(logits, y)
    assert Monitor("auroc").measure(logits.unsqueeze(1), y) == Monitor("auroc").measure(logits, y)


def test_a_metric_at_its_best_threshold_is_the_best_of_all_thresholds():
    logits, y = binary()
    measured = Monitor("f1", threshold="best").measure(logits, y)
    values = [sklearn_metrics.f1_score(y.numpy(), decisions(logits, t)) for t in logits.sigmoid()]
    assert measured.value == pytest.approx(max(values))
    at_threshold = sklearn_metrics.f1_score(y.numpy(), decisions(logits, measured.threshold))
    assert measured.value == pytest.approx(at_threshold)


def test_the_best_threshold_distinguishes_large_logits():
    logits, y = torch.tensor([30.0, 25.0, 20.0, 18.5]), torch.tensor([1, 1, 0, 0])
    measured = Monitor("f1", threshold="best").measure(logits, y)
    assert measured.value == 1.0
    assert Monitor("f1", threshold=measured.threshold).measure(logits.double(), y).value == 1.0


@pytest.mark.parametrize(
    ("name", "oracle"),
    [("auroc", sklearn_metrics.roc_auc_score), ("average_precision", sklearn_metrics.average_precision_score)],
)
def test_a_ranking_is_scikit_learns_and_has_no_threshold(name, oracle):
    logits, y = binary()
    measured = Monitor(name).measure(logits, y)
    assert measured.value == pytest.approx(oracle(y.numpy(), logits.numpy()))
    assert math.isnan(measured.threshold)


def test_weights_count():
    logits, y = binary()
    weight = torch.arange(200.0, dtype=torch.float64) % 7
    expected = sklearn_metrics.f1_score(y.numpy(), decisions(logits, 0.5), sample_weight=weight.numpy())
    assert Monitor("f1").measure(logits, y, weight).value == pytest.approx(expected)
    best = best_threshold(logits.sigmoid(), y, "f1", weight=weight)
    assert Monitor("f1", threshold="best").measure(logits, y, weight).value == pytest.approx(best.value)


def test_several_classes_are_decided_by_the_largest_logit_at_no_threshold():
    logits = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(100) % 3
    expected = sklearn_metrics.f1_score(y.numpy(), logits.argmax(1).numpy(), average="macro")
    measured = Monitor("f1").measure(logits, y)
    assert measured.value == pytest.approx(expected)
    assert math.isnan(measured.threshold)
    micro = sklearn_metrics.f1_score(y.numpy(), logits.argmax(1).numpy(), average="micro")
    assert Monitor("f1", average="micro").measure(logits, y).value == pytest.approx(micro)


@pytest.mark.parametrize("threshold", [0.5, 0.2])
def test_several_labels_are_decided_at_the_threshold(threshold):
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(100, 3, generator=generator), (torch.rand(100, 3, generator=generator) < 0.4).long()
    expected = sklearn_metrics.f1_score(y.numpy(), decisions(logits, threshold), average="macro")
    assert Monitor("f1", threshold=threshold).measure(logits, y).value == pytest.approx(expected)


def test_a_model_that_meets_the_requirements_is_better_than_any_that_does_not():
    monitor = Monitor("precision", subject_to="recall >= 0.9")
    y = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    meets = monitor.measure(torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0]), y)
    short = monitor.measure(torch.tensor([1.0, -1.0, -1.0, -1.0, -1.0]), y)
    shorter = monitor.measure(torch.tensor([-1.0, -1.0, -1.0, -1.0, -1.0]), y)
    assert meets.value == pytest.approx(2 / 5)
    assert monitor.better(meets, short)
    assert monitor.better(short, shorter)
    assert not monitor.better(shorter, meets)
    assert [item.feasible for item in (meets, short, shorter)] == [True, False, False]
    assert [item.violation for item in (meets, short, shorter)] == pytest.approx([0, 0.4, 0.9])
    assert short.value == 1.0


def test_a_minimised_metric_under_requirements():
    monitor = Monitor("fpr", subject_to=["recall >= 0.9"])
    y = torch.tensor([1.0, 1.0, 0.0, 0.0])
    meets = monitor.measure(torch.tensor([1.0, 1.0, 1.0, 1.0]), y)
    short = monitor.measure(torch.tensor([-1.0, -1.0, -1.0, -1.0]), y)
    assert meets.value == 1.0
    assert monitor.minimize
    assert short.value == 0.0
    assert monitor.better(meets, short)


def test_a_metric_without_bounds_does_not_hide_a_broken_requirement():
    """The requirement is met by one model at a cost of 4900, and broken by the other at a cost of 1.9."""

    def gain(counts):
        return -(1.9 * counts.fn + 49 * counts.fp)

    monitor = Monitor(gain, subject_to="recall >= 0.9")
    y = torch.tensor([1.0] + [0.0] * 100)
    meets = monitor.measure(torch.full((101,), 1.0), y)
    breaks = monitor.measure(torch.full((101,), -1.0), y)
    assert (meets.value, breaks.value) == pytest.approx((-4900, -1.9))
    assert monitor.better(meets, breaks)
    assert not monitor.better(breaks, meets)


def test_requirements_at_the_best_threshold():
    logits, y = binary()
    monitor = Monitor("precision", threshold="best", subject_to="recall >= 0.8")
    expected = best_threshold(logits.sigmoid(), y, "precision", subject_to="recall >= 0.8")
    measured = monitor.measure(logits, y)
    assert measured.value == pytest.approx(expected.value)
    assert (decisions(logits, measured.threshold) == decisions(logits, expected.threshold)).all()
    out_of_reach = Monitor("recall", threshold="best", subject_to="precision >= 0.99")
    nearest = out_of_reach.measure(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    assert (nearest.value, nearest.feasible) == (1.0, False)
    assert nearest.violation == pytest.approx(0.49)
    assert 0 < nearest.threshold <= 0.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_measured(dtype):
    logits, y = binary()
    half = logits.to(dtype)
    expected = Monitor("f1", threshold="best").measure(half.float(), y)
    assert Monitor("f1", threshold="best").measure(half, y) == expected


def test_comparison_of_two_measurements():
    assert Monitor("f1").better(0.6, 0.5)
    assert not Monitor("f1").better(0.5, 0.5)
    assert Monitor("loss").better(0.4, 0.5)
    assert Monitor("fpr").better(0.4, 0.5)
    assert Monitor("f1").better(0.1, math.nan)
    assert not Monitor("f1").better(math.nan, 0.1)
    assert not Monitor("f1").better(math.nan, math.nan)


def test_names():
    assert as_monitor("best f1").name == "best f1"
    assert as_monitor("f1").name == "f1"
    assert as_monitor(metrics.fbeta(beta=2)).name == "fbeta(beta=2)"
    assert as_monitor("loss").name == "loss"
    assert as_monitor(Monitor("auroc")).name == "auroc"
    assert Monitor("precision", threshold="best", subject_to=["recall >= 0.9"]).name == "best precision, recall >= 0.9"


def test_a_function_of_counts():
    def mine(counts):
        return counts.tp / (counts.tp + counts.fp + counts.fn)

    logits, y = binary()
    expected = sklearn_metrics.jaccard_score(y.numpy(), decisions(logits, 0.5))
    assert Monitor(mine).measure(logits, y).value == pytest.approx(expected)


WRONG = {
    "threshold": (
        lambda: Monitor("f1", threshold=1.5),
        "strictly between 0 and 1: a number, one number per label, or 'best'; got 1.5",
    ),
    "threshold_name": (lambda: Monitor("f1", threshold="Best"), "or 'best'; got 'Best'"),
    "best_loss": (lambda: as_monitor("best loss"), "threshold='best' needs a metric of decisions, such as 'f1'"),
    "best_auroc": (lambda: as_monitor("best auroc"), "needs a metric of decisions"),
    "subject_to": (lambda: Monitor("auroc", subject_to="recall >= 0.9"), "subject_to needs a metric of decisions"),
    "average": (
        lambda: Monitor("f1", average=None),
        "average=None gives one number per class",
    ),
    "unknown": (lambda: Monitor("f11"), "f11"),
    "requirement": (lambda: Monitor("f1", subject_to="recall > many"), "recall"),
}


@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_monitor_is_refused_where_it_is_made(make, message):
    with pytest.raises((ValueError, KeyError, TypeError), match=message):
        make()


def test_exclusive_classes_have_no_best_threshold():
    with pytest.raises(ValueError, match="classes exclude each other, so the largest logit decides"):
        Monitor("f1", threshold="best").measure(torch.randn(5, 3), torch.arange(5) % 3)


def test_logits_that_are_nan_are_refused():
    with pytest.raises(ValueError, match="1 of 2 logits are NaN"):
        Monitor("f1").measure(torch.tensor([0.0, math.nan]), torch.tensor([0.0, 1.0]))


def test_the_loss_is_not_a_monitors_to_measure():
    with pytest.raises(ValueError, match="the objective measures the loss"):
        Monitor("loss").measure(*binary())


@pytest.mark.parametrize("monitor", [Monitor("f1"), Monitor("f1", threshold="best"), Monitor("auroc")])
def test_ignored_labels_count_for_nothing(monitor):
    logits, y = binary()
    weight = torch.rand(len(y), generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    kept = torch.arange(len(y)) % 3 > 0
    marked = replace(monitor, ignore_index=-1)
    result = marked.measure(logits, torch.where(kept, y, -1), weight)
    assert result.value == pytest.approx(monitor.measure(logits[kept], y[kept], weight[kept]).value)


def test_an_unknown_name_is_answered_with_those_that_are_no_metrics_too():
    with pytest.raises(ValueError, match=r"did you mean 'auroc'.*loss, auroc, auroc_ovo, average_precision"):
        Monitor("aucroc")


def test_overlapping_masks_are_measured_with_a_task():
    x, y = masks()
    with pytest.raises(ValueError, match="say which with task='multilabel' or task='multiclass'"):
        Monitor("f1").measure(x, y)
    rows = [item.movedim(1, 3).reshape(-1, 2) for item in (x, y)]
    result = Monitor("f1", task="multilabel").measure(x, y)
    assert result == Monitor("f1").measure(*rows)
    shares = torch.nn.functional.one_hot(y[:, 0].long(), 2).movedim(3, 1)
    exclusive = Monitor("f1", task="multiclass").measure(x, shares)
    assert exclusive.value == Monitor("f1").measure(x, y[:, 0].long()).value
    assert math.isnan(exclusive.threshold)
    with pytest.raises(ValueError, match="task must be None or one of"):
        Monitor("f1", task="masks")


def test_one_mask_has_rankings_and_a_best_threshold():
    x, y = (item[:, :1] for item in masks())
    y[0, 0, 0] = -1
    kept = y.reshape(-1) >= 0
    rows = x.reshape(-1)[kept], y.reshape(-1)[kept]
    for monitor in (Monitor("auroc"), Monitor("f1", threshold="best")):
        result = replace(monitor, ignore_index=-1).measure(x, y)
        assert result.value == pytest.approx(monitor.measure(*rows).value)
