"""evaluate, against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metricfit import metrics
from metricfit.losses import WeightedBCELoss
from metricfit.train import Evaluation, Monitor, evaluate, fit


def data(n=300):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator)
    return x, (x[:, 0] + torch.randn(n, generator=generator) > 0.5).long()


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, outputs))


@torch.no_grad()
def scores_of(model, x):
    return model.eval()(x).sigmoid().squeeze(1)


def test_values_are_scikit_learns():
    x, y = data()
    model = network()
    found = evaluate(model, (x, y), ["f1", metrics.fbeta(beta=2), "auroc", "average_precision"], threshold=0.4)
    scores = scores_of(model, x)
    decided = (scores >= 0.4).long()
    assert found["f1"] == pytest.approx(sklearn_metrics.f1_score(y, decided))
    assert found["fbeta(beta=2)"] == pytest.approx(sklearn_metrics.fbeta_score(y, decided, beta=2))
    assert found["auroc"] == pytest.approx(sklearn_metrics.roc_auc_score(y, scores))
    assert found["average_precision"] == pytest.approx(sklearn_metrics.average_precision_score(y, scores))
    assert torch.allclose(found.logits.sigmoid().squeeze(1), scores)
    assert torch.equal(found.target, y)
    assert found.threshold == 0.4


def test_one_metric_by_name_object_or_function():
    x, y = data()

    def jaccard(counts):
        return counts.tp / (counts.tp + counts.fp + counts.fn)

    model = network()
    expected = evaluate(model, (x, y), "jaccard")["jaccard"]
    assert evaluate(model, (x, y), metrics.jaccard).values == {"jaccard": expected}
    assert list(evaluate(model, (x, y), jaccard).values.values()) == [pytest.approx(expected)]
    assert evaluate(model, (x, y)).values.keys() == {"f1"}


@pytest.mark.parametrize(
    "kind",
    [
        lambda x, y: (x, y),
        lambda x, y: (x.numpy(), y.numpy()),
        lambda x, y: (x.double(), y.bool()),
        TensorDataset,
        lambda x, y: DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True),
    ],
    ids=["tensors", "arrays", "other_types", "dataset", "loader"],
)
def test_all_kinds_of_data_give_the_same(kind):
    x, y = data()
    expected = evaluate(network(), (x, y), ["f1", "auroc"])
    found = evaluate(network(), kind(x, y), ["f1", "auroc"], batch_size=64)
    assert found.values == pytest.approx(expected.values)


def test_weights_count():
    x, y = data()
    weight = np.arange(300) % 5
    decided = (scores_of(network(), x) >= 0.5).long()
    expected = sklearn_metrics.f1_score(y, decided, sample_weight=weight)
    assert evaluate(network(), (x, y, weight))["f1"] == pytest.approx(expected)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_several_classes(average):
    x, _ = data()
    y = torch.arange(300) % 3
    model = network(3)
    with torch.no_grad():
        decided = model.eval()(x).argmax(1)
    expected = sklearn_metrics.f1_score(y, decided, average=average)
    assert evaluate(model, (x, y), "f1", average=average)["f1"] == pytest.approx(expected)


def test_the_model_is_left_as_it_was_without_gradients():
    x, y = data()
    model = network().train()
    found = evaluate(model, (x, y))
    assert model.training
    assert not found.logits.requires_grad
    assert found.values == evaluate(model, (x, y)).values  # no dropout
    assert not evaluate(network().eval(), (x, y)).logits.requires_grad


def test_it_prints_its_values():
    assert repr(Evaluation({"f1": 0.51234}, torch.zeros(3), torch.zeros(3), 0.5)) == (
        "Evaluation(f1=0.5123; n=3, threshold=0.5)"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": "loss"}, "evaluate measures metrics; for a loss, call it on the logits"),
        ({"metrics": ["f1", "f11"]}, "f11"),
        ({"threshold": 2.0}, "strictly between 0 and 1"),
        ({"average": None}, "average=None gives one a class"),
        ({"data": (torch.full((3, 4), torch.nan), torch.zeros(3))}, "data's inputs hold NaN"),
    ],
)
def test_what_cannot_be_measured_is_refused(given, message):
    with pytest.raises((ValueError, KeyError), match=message):
        evaluate(network(), **{"data": data(), **given})


def test_the_best_threshold_on_the_data():
    x, y = data()
    model = network()
    named = evaluate(model, (x, y), ["best f1", "auroc"])
    given = evaluate(model, (x, y), ["f1", "auroc"], threshold="best")
    at = Monitor("f1", threshold="best").measure(named.logits.squeeze(1), y)
    assert named["best f1"] == given["best f1"] == at.value
    assert named["auroc"] == given["auroc"]
    assert given.threshold == at.threshold
    assert f"threshold={at.threshold:g}" in repr(given)


def test_what_fit_returns_is_evaluated_by_its_model():
    x, y = data()
    result = fit(network(), (x, y), WeightedBCELoss(), epochs=1, progress=False)
    assert evaluate(result, (x, y)).values == evaluate(result.model, (x, y)).values
    with pytest.raises(TypeError, match="a torch module or a FitResult, got str"):
        evaluate("model", (x, y))


class Fails(nn.Linear):
    """A model that cannot be run."""

    def forward(self, x):
        raise OSError("no")


def test_the_model_is_left_as_it_was_when_it_fails():
    model = Fails(4, 1).train()
    with pytest.raises(OSError, match="no"):
        evaluate(model, data())
    assert model.training
