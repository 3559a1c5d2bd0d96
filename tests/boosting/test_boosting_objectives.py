"""The objective of boosted trees: its gradient against finite differences of the loss it states."""

import copy
import pickle

import lightgbm
import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, softmax

from metricfit import MetricLoss
from metricfit.boosting import objective
from metricfit.errors import InvalidValueError
from metricfit.metrics import cost_matrix
from metricfit.steps import Annealed, Identity, Linear, RaisedCosine, Sigmoid

BINARY = {
    "f1": lambda tp, fp, fn, tn: 1 - 2 * tp / (2 * tp + fp + fn),
    "mcc": lambda tp, fp, fn, tn: 1 - (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)),
    "gmean": lambda tp, fp, fn, tn: 1 - np.sqrt(tp / (tp + fn) * tn / (tn + fp)),
    "cost(fp=1, fn=10)": lambda tp, fp, fn, tn: (fp + 10 * fn) / (tp + fp + fn + tn),
}


def precise(c):
    return c.tp / (c.tp + 2 * c.fp + c.fn)


def rows_of(y, weight):
    data = lightgbm.Dataset(np.arange(len(y), dtype=float)[:, None], y, weight=weight, params={"verbose": -1})
    return data.construct()


def numerical_gradient(loss, scores, step=1e-5):
    gradient = np.zeros_like(scores)
    for at in np.ndindex(scores.shape):
        change = np.zeros_like(scores)
        change[at] = step
        gradient[at] = (loss(scores + change) - loss(scores - change)) / (2 * step)
    return gradient


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    # LightGBM keeps weights in single precision; eighths are exact there
    return rng.normal(size=24), (rng.random(24) < 0.4).astype(int), rng.integers(1, 16, 24) / 8


def binary_loss(metric_loss, y, weight, strength):
    def loss(scores):
        p = expit(scores)
        counts = [weight @ part for part in (p * y, p * (1 - y), (1 - p) * y, (1 - p) * (1 - y))]
        cross_entropy = weight @ np.logaddexp(0, np.where(y == 1, -scores, scores))
        return cross_entropy + strength * weight.sum() * metric_loss(*counts)

    return loss


@pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weights"])
@pytest.mark.parametrize("name", [*BINARY, "user"])
def test_gradient_for_two_classes(table, name, weighted, strength):
    scores, y, weight = table
    weight = weight if weighted else np.ones(len(y))
    metric_loss = BINARY.get(name, lambda tp, fp, fn, tn: 1 - tp / (tp + 2 * fp + fn))
    made = objective(precise if name == "user" else name, strength=strength)
    gradient, hessian = made(scores, rows_of(y, weight if weighted else None))
    expected = numerical_gradient(binary_loss(metric_loss, y, weight, strength), scores)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(hessian, weight * expit(scores) * expit(-scores), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weights"])
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_gradient_for_several_classes(table, weighted, average):
    _, _, weight = table
    weight = weight if weighted else np.ones(24)
    scores, y = np.random.default_rng(1).normal(size=(24, 3)), np.arange(24) % 3
    target = np.eye(3)[y]

    def loss(scores):
        p = softmax(scores, axis=1)
        tp, predicted, positives = weight @ (p * target), weight @ p, weight @ target
        if average == "micro":
            tp, predicted, positives = tp.sum(), predicted.sum(), positives.sum()
        f1 = np.mean(2 * tp / (predicted + positives))
        return -weight @ log_softmax(scores, axis=1)[np.arange(24), y] + 0.5 * weight.sum() * (1 - f1)

    gradient, hessian = objective("f1", average=average)(scores, rows_of(y, weight if weighted else None))
    np.testing.assert_allclose(gradient, numerical_gradient(loss, scores), rtol=1e-6, atol=1e-7)
    p = softmax(scores, axis=1)
    np.testing.assert_allclose(hessian, weight[:, None] * p * (1 - p), rtol=1e-6)


@pytest.mark.parametrize("metric", ["f1", "mcc", "gmean", "cost(fp=1, fn=10)", precise])
@pytest.mark.parametrize("shape", [(24,), (24, 3)])
def test_extreme_scores_have_finite_gradients_and_positive_hessians(metric, shape):
    y = np.arange(24) % (2 if len(shape) == 1 else 3)
    for scale in (1e3, -1e3, 0.0):
        scores = scale * np.random.default_rng(0).choice([-1.0, 1.0], shape)
        gradient, hessian = objective(metric)(scores, rows_of(y, None))
        assert gradient.shape == hessian.shape == shape
        assert np.isfinite(gradient).all()
        assert (hessian > 0).all()


def test_strength_0_trains_the_trees_of_lightgbms_own_cross_entropy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = (x[:, 0] + rng.normal(size=400) > 1).astype(int)
    start = np.full(400, np.log(y.mean() / (1 - y.mean())))
    predictions = []
    for chosen in ("binary", objective("f1", strength=0.0)):
        settings = {"objective": chosen, "boost_from_average": False, "verbose": -1, "num_threads": 1, "num_leaves": 7}
        data = lightgbm.Dataset(x, y, init_score=start, params={"verbose": -1})
        predictions.append(lightgbm.train(settings, data, num_boost_round=20).predict(x, raw_score=True))
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=1e-4, atol=1e-4)


def test_the_metric_moves_the_scores_towards_it():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = (x[:, 0] + rng.normal(size=600) > 1.8).astype(int)
    start = np.full(600, np.log(y.mean() / (1 - y.mean())))

    def called_positive(strength):
        data = lightgbm.Dataset(x, y, init_score=start, params={"verbose": -1})
        settings = {"objective": objective("recall", strength=strength), "verbose": -1, "num_threads": 1}
        return (lightgbm.train(settings, data, num_boost_round=10).predict(x, raw_score=True) + start > 0).sum()

    assert called_positive(1.0) > 2 * called_positive(0.0)


@pytest.mark.parametrize("step", [Identity(), Linear(0.1), Sigmoid(10.0), RaisedCosine(0.2)], ids=str)
@pytest.mark.parametrize("shape", [(24,), (24, 3)], ids=["two classes", "three classes"])
def test_gradient_is_that_of_metric_loss(table, step, shape):
    _, _, weight = table
    scores = np.random.default_rng(2).normal(size=shape)
    y = np.arange(24) % (2 if len(shape) == 1 else 3)
    logits, target, w = torch.tensor(scores, requires_grad=True), torch.tensor(y), torch.tensor(weight)
    threshold = 0.5 if isinstance(step, Identity) else None
    loss = MetricLoss("fbeta(beta=2)", step=step, threshold=threshold)(logits, target, w)
    cross_entropy = torch.nn.functional.cross_entropy
    if len(shape) == 1:
        cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    rows = cross_entropy(logits, target if len(shape) > 1 else target.double(), reduction="none")
    (w @ rows + 0.7 * w.sum() * loss).backward()
    gradient, hessian = objective("fbeta(beta=2)", strength=0.7, step=step)(scores, rows_of(y, weight))
    np.testing.assert_allclose(gradient, logits.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert (hessian > 0).all()


def test_gradient_for_a_metric_of_the_whole_matrix(table):
    _, _, weight = table
    scores, y, costs = (
        np.random.default_rng(1).normal(size=(24, 3)),
        np.arange(24) % 3,
        np.array([[0, 1, 5], [1, 0, 2], [9, 1, 0]]),
    )

    def loss(scores):
        matrix = (weight[:, None] * np.eye(3)[y]).T @ softmax(scores, axis=1)
        cross_entropy = -weight @ log_softmax(scores, axis=1)[np.arange(24), y]
        return cross_entropy + 0.5 * (matrix * costs).sum()

    gradient, _ = objective(cost_matrix(costs.tolist()))(y, scores, weight)
    np.testing.assert_allclose(gradient, numerical_gradient(loss, scores), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"library": "prophet"}, "library is 'lightgbm' or 'xgboost'; got 'prophet'"),
        ({"library": "catboost"}, "at most 1,000 rows at a time.*eval_metric"),
        ({"strength": -1.0}, "strength is"),
        ({"strength": float("nan")}, "strength is"),
        ({"strength": float("inf")}, "strength is"),
        ({"step": Annealed(Identity(), Sigmoid(10.0))}, "does not advance it"),
        ({"average": "mean"}, "average must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        objective("f1", **arguments)


def test_it_is_pickled_and_copied():
    made = objective("fbeta(beta=2)", "xgboost", strength=0.3, step=Sigmoid(10.0))
    scores, y = np.random.default_rng(0).normal(size=24), np.arange(24) % 2
    expected = made(y, scores)
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        np.testing.assert_array_equal(other(y, scores), expected)
        assert repr(other) == "objective('fbeta(beta=2)', 'xgboost', strength=0.3)"
