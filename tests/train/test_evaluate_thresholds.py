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
    given = evaluate(model, (x, y), ["f1", "auroc"], threshold="best")
    at = Monitor("f1", threshold="best").measure(named.logits.squeeze(1), y)
    assert named["best f1"] == given["f1"] == given["best f1"] == at.value
    assert named["auroc"] == given["auroc"]
    assert given.threshold == named.best_thresholds["best f1"] == at.threshold
    assert repr(given).endswith(f"threshold={at.threshold:g}, the best for f1)")


def test_several_metrics_are_measured_at_one_decision():
    """Which is chosen for the first of them; "best precision" has a decision of its own, and says so."""
    x, y = data()
    model = network()
    found = evaluate(model, (x, y), ["auroc", "f1", "precision", "recall", "best precision"], threshold="best")
    scikit_learns = sklearn_metrics.f1_score, sklearn_metrics.precision_score, sklearn_metrics.recall_score
    threshold = evaluate(model, (x, y), ["f1", "precision", "recall"], threshold="best").threshold
    decided = (scores_of(model, x).double() >= threshold).long()
    assert list(found.values.values())[1:4] == pytest.approx([score(y, decided) for score in scikit_learns])
    assert found.threshold == threshold
    assert found["f1"] == best_threshold(scores_of(model, x), y, "f1").value
    alone = best_threshold(scores_of(model, x), y, "precision").value
    assert found["best precision"] == alone > found["precision"]
    assert list(found.values) == ["auroc", "f1", "precision", "recall", "best precision"]
    assert found.best_thresholds.keys() == {"best precision"}
    assert found.tuned_for == "f1"
    assert f"best precision={alone:.4g} at {found.best_thresholds['best precision']:g};" in repr(found)
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
    given = (x, y) if weight is None else (x, y, weight)
    found = evaluate(nn.Identity(), given, metric, threshold="best", average=average)
    of_labels = [f"fbeta(beta={beta})" for beta in (1, 2, 0.5)] if metric.startswith("fbeta") else [metric] * 3
    expected = [best_threshold(x[:, at], y[:, at], of_labels[at], weight=weight).value for at in range(3)]
    support = y.double() if weight is None else y.double() * weight.unsqueeze(1)
    shares = support.sum(0) if average == "weighted" else torch.ones(3)
    assert list(found.values.values()) == [pytest.approx(np.average(expected, weights=shares))]
    assert found.threshold.shape == (3,)
    again = evaluate(nn.Identity(), given, metric, threshold=found.threshold, average=average)
    assert again[metric] == found[metric]
    assert (
        evaluate(nn.Identity(), given, metric, threshold=found.threshold.numpy(), average=average)[metric]
        == found[metric]
    )


def test_the_values_of_several_labels_at_their_thresholds_are_scikit_learns():
    x, y = multilabel()
    found = evaluate(nn.Identity(), (x, y), ["f1", "precision"], threshold=[0.7, 0.4, 0.8])
    decided = (x.sigmoid() >= torch.tensor([0.7, 0.4, 0.8])).long()
    assert found["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided, average="macro"))
    assert found["precision"] == pytest.approx(sklearn_metrics.precision_score(y, decided, average="macro"))
    assert repr(found).endswith("n=300, thresholds=[0.7, 0.4, 0.8])")


def test_a_micro_average_has_one_best_threshold_for_all_labels():
    x, y = multilabel()
    found = evaluate(nn.Identity(), (x, y), "f1", threshold="best", average="micro")
    expected = best_threshold(x.reshape(-1), y.reshape(-1), "f1")
    assert isinstance(found.threshold, float)
    assert found["f1"] == pytest.approx(expected.value)
    decided = (x.sigmoid() >= found.threshold).long()
    assert found["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided, average="micro"))


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
    settings = {"epochs": 1, "progress": False, "validation": (x, y)}
    result = fit(network(), (x, y), WeightedBCELoss(10.0), monitor="best f1", **settings)
    found = evaluate(result, (x, y))
    assert found.threshold == result.threshold != 0.5
    assert found["f1"] == pytest.approx(result.best)
    assert found["f1"] > evaluate(result.model, (x, y))["f1"]
    assert evaluate(result, (x, y), threshold=0.5).values == evaluate(result.model, (x, y)).values
    fixed = fit(network(), (x, y), WeightedBCELoss(), monitor=Monitor("f1", threshold=0.3), **settings)
    assert evaluate(fixed, (x, y)).threshold == 0.3
    unwatched = fit(network(), (x, y), WeightedBCELoss(), **settings)
    assert evaluate(unwatched, (x, y)).threshold == 0.5
