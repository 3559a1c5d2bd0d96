"""skorch: docs/frameworks.md."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from torch import nn

from metricfit import MetricLoss, RunningCounts

skorch = pytest.importorskip("skorch")


@pytest.fixture
def arrays(x_y):
    return tuple(given.numpy() for given in x_y)


class Network(nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))

    def forward(self, x):
        return self.layers(x)


def two_columns(logits):
    p = torch.sigmoid(logits.reshape(-1))
    return torch.stack([1 - p, p], dim=1)


def classifier(kind=None, **settings):
    torch.manual_seed(0)
    return (kind or skorch.NeuralNetBinaryClassifier)(
        Network,
        **{
            "criterion": MetricLoss,
            "criterion__metric": "f1",
            "predict_nonlinearity": two_columns,
            "optimizer": torch.optim.Adam,
            "lr": 1e-2,
            "max_epochs": 30,
            "batch_size": 100,
            "verbose": 0,
        }
        | settings,
    )


@pytest.mark.parametrize("kind", ["NeuralNetBinaryClassifier", "NeuralNetClassifier"])
def test_classifier_learns(kind, arrays):
    x, y = arrays
    net = classifier(getattr(skorch, kind)).fit(x, y)
    assert f1_score(y, net.predict(x)) > 0.75
    probabilities = net.predict_proba(x)
    assert probabilities.shape == (len(y), 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)


def test_training_is_that_of_a_plain_loop(arrays):
    x, y = arrays
    net = classifier(train_split=None, batch_size=-1, max_epochs=5).fit(x, y)
    torch.manual_seed(0)
    model, loss = Network(), MetricLoss("f1")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        loss(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()
    for ours, theirs in zip(net.module_.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_several_classes():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 600)
    x = generator.normal(size=(600, 4)).astype(np.float32)
    x[np.arange(600), y] += 3
    softmax = partial(torch.softmax, dim=-1)
    net = classifier(skorch.NeuralNetClassifier, module__outputs=3, predict_nonlinearity=softmax).fit(x, y)
    assert f1_score(y, net.predict(x), average="macro") > 0.9


def test_metric_is_a_parameter_to_search_over(arrays):
    x, y = arrays
    net = classifier(train_split=None, max_epochs=2)
    found = GridSearchCV(net, {"criterion__metric": ["f1", "fbeta(beta=2)"]}, cv=2, scoring="f1").fit(x, y)
    assert found.best_params_["criterion__metric"] in ("f1", "fbeta(beta=2)")


def with_memory():
    return MetricLoss("f1", memory=RunningCounts())


def test_memory_made_in_a_function_is_fresh_in_each_fit(arrays):
    def remembered(net):
        return net.fit(*arrays).criterion_.memory.total.sum().item()

    fresh = skorch.NeuralNetBinaryClassifier(
        Network, criterion=with_memory, predict_nonlinearity=two_columns, train_split=None, max_epochs=1, verbose=0
    )
    assert remembered(fresh) == pytest.approx(remembered(fresh))
    shared = classifier(train_split=None, max_epochs=1, criterion__memory=RunningCounts())
    assert remembered(shared) < 0.7 * remembered(shared)


def test_without_two_columns_there_is_no_prediction(arrays):
    with pytest.raises(IndexError):
        classifier(predict_nonlinearity="auto", max_epochs=1).fit(*arrays)
