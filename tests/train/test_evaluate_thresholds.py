"""evaluate: best thresholds, thresholds of several labels, and the threshold of a FitResult."""

import numpy as np
import pytest
import torch
from evaluated_data import data, network, scores_of
from sklearn import metrics as sklearn_metrics
from torch import nn

from metricfit.curves import best_threshold
from metricfit.losses import WeightedBCELoss
from metricfit.train import Evaluation, Monitor, evaluate, fit


def test_the_best_threshold_on_the_data():
    x, y = data()
    model = network()
    named = evaluate(model, (x, y), ["best f1", "auroc"])
    tuned = evaluate(model, (x, y), ["f1", "auroc"], threshold="best")
    measured = Monitor("f1", threshold="best").measure(named.logits.squeeze(1), y)
    assert named["best f1"] == tuned["f1"] == tuned["best f1"] == measured.value
    assert named["auroc"] == tuned["auroc"]
    assert tuned.threshold == named.best_thresholds["best f1"] == measured.threshold
    assert repr(tuned).endswith(f"threshold={measured.threshold:g}, the best for f1)")


def test_several_metrics_are_measured_at_one_decision():
    """Which is chosen for the first of them; "best precision" has a decision of its own, and says so."""
    x, y = data()
    model = network()
    result = evaluate(model, (x, y), ["auroc", "f1", "precision", "recall", "best precision"], threshold="best")
    scikit_learns = sklearn_metrics.f1_score, sklearn_metrics.precision_score, sklearn_metrics.recall_score
    threshold = evaluate(model, (x, y), ["f1", "precision", "recall"], threshold="best").threshold
    decided = (scores_of(model, x).double() >= threshold).long()
    assert list(result.values.values())[1:4] == pytest.approx([score(y, decided) for score in scikit_learns])
    assert result.threshold == threshold
    assert result["f1"] == best_threshold(scores_of(model, x), y, "f1").value
    alone = best_threshold(scores_of(model, x), y, "precision").value
    assert result["best precision"] == alone > result["precision"]
    assert list(result.values) == ["auroc", "f1", "precision", "recall", "best precision"]
    assert result.best_thresholds.keys() == {"best precision"}
    assert result.tuned_for == "f1"
    assert f"best precision={alone:.4g} at {result.best_thresholds['best precision']:g};" in repr(result)
    first_precision = evaluate(model, (x, y), ["precision", "f1"], threshold="best")
    assert first_precision["precision"] == alone


def multilabel(n=300):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 3, generator=generator)
    y = x + 0.7 * torch.randn(n, 3, generator=generator) > torch.tensor([1.0, -0.5, 1.5])
    return x, y.long()


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("metric", ["f1", "mcc", "fbeta(beta=[1, 2, 0.5])", "fnr"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_best_thresholds_of_several_labels_are_one_per_label(average, metric, weighted):
    x, y = multilabel()
    weight = torch.arange(300) % 4 if weighted else None
    tuned = (x, y) if weight is None else (x, y, weight)
    result = evaluate(nn.Identity(), tuned, metric, threshold="best", average=average)
    of_labels = [f"fbeta(beta={beta})" for beta in (1, 2, 0.5)] if metric.startswith("fbeta") else [metric] * 3
    expected = [best_threshold(x[:, index], y[:, index], of_labels[index], weight=weight).value for index in range(3)]
    support = y.double() if weight is None else y.double() * weight.unsqueeze(1)
    shares = support.sum(0) if average == "weighted" else torch.ones(3)
    assert list(result.values.values()) == [pytest.approx(np.average(expected, weights=shares))]
    assert result.threshold.shape == (3,)
    again = evaluate(nn.Identity(), tuned, metric, threshold=result.threshold, average=average)
    assert again[metric] == result[metric]
    assert (
        evaluate(nn.Identity(), tuned, metric, threshold=result.threshold.numpy(), average=average)[metric]
        == result[metric]
    )


def test_the_values_of_several_labels_at_their_thresholds_are_scikit_learns():
    x, y = multilabel()
    result = evaluate(nn.Identity(), (x, y), ["f1", "precision"], threshold=[0.7, 0.4, 0.8])
    decided = (x.sigmoid() >= torch.tensor([0.7, 0.4, 0.8])).long()
    assert result["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided, average="macro"))
    assert result["precision"] == pytest.approx(sklearn_metrics.precision_score(y, decided, average="macro"))
    assert repr(result).endswith("n=300, thresholds=[0.7, 0.4, 0.8])")


def test_a_micro_average_has_one_best_threshold_for_all_labels():
    x, y = multilabel()
    result = evaluate(nn.Identity(), (x, y), "f1", threshold="best", average="micro")
    expected = best_threshold(x.reshape(-1), y.reshape(-1), "f1")
    assert isinstance(result.threshold, float)
    assert result["f1"] == pytest.approx(expected.value)
    decided = (x.sigmoid() >= result.threshold).long()
    assert result["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided, average="micro"))


def test_labels_that_do_not_matter_keep_the_usual_threshold():
    x, y = multilabel()
    one = evaluate(nn.Identity(), (x, y), "recall[1]", threshold="best")
    assert one.threshold[[0, 2]].tolist() == [0.5, 0.5]
    assert one["recall[1]"] == 1.0
    y[:, 2] = -1
    ignored = evaluate(nn.Identity(), (x, y), "f1", threshold="best", ignore_index=-1)
    assert ignored.threshold[2] == 0.5
    assert ignored.threshold[0] != 0.5


def test_many_thresholds_are_printed_in_short_form():
    many = Evaluation({"f1": 0.5}, torch.zeros(3, 20), torch.zeros(3, 20), torch.linspace(0.05, 0.95, 20).double())
    assert repr(many) == "Evaluation(f1=0.5; n=3, thresholds=[0.05, 0.0974, 0.145, ..., 0.95] (20))"
    no_threshold = Evaluation({"f1": 0.5}, torch.zeros(3, 4), torch.zeros(3), float("nan"))
    assert repr(no_threshold) == "Evaluation(f1=0.5; n=3)"


def test_what_fit_returns_is_evaluated_at_its_own_threshold():
    x, y = data()
    tuned = {"epochs": 1, "progress": False, "validation": (x, y)}
    result = fit(network(), (x, y), WeightedBCELoss(10.0), monitor="best f1", **tuned)
    actual = evaluate(result, (x, y))
    assert actual.threshold == result.threshold != 0.5
    assert actual["f1"] == pytest.approx(result.best)
    assert actual["f1"] > evaluate(result.model, (x, y))["f1"]
    assert evaluate(result, (x, y), threshold=0.5).values == evaluate(result.model, (x, y)).values
    fixed = fit(network(), (x, y), WeightedBCELoss(), monitor=Monitor("f1", threshold=0.3), **tuned)
    assert evaluate(fixed, (x, y)).threshold == 0.3
    unwatched = fit(network(), (x, y), WeightedBCELoss(), **tuned)
    assert evaluate(unwatched, (x, y)).threshold == 0.5
