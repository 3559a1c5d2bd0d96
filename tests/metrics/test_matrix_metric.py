"""Metrics of the confusion matrix as objects: names, parameters, a user's own."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from metricfit import Counts, MetricLoss, evaluate, get_metric, metrics, parse_requirement
from metricfit.metrics import MatrixMetric, matrix_metric
from metricfit.metrics.matrix import MatrixMetricFactory

MATRIX = torch.tensor([[5.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 2.0, 7.0]], dtype=torch.float64)


@matrix_metric(minimize=True, bounds=(0.0, 2.0))
def mean_distance_for_tests(matrix):
    place = torch.arange(matrix.shape[-1], device=matrix.device)
    return (matrix * (place[:, None] - place).abs()).sum((-2, -1)) / matrix.sum((-2, -1))


@matrix_metric
def gain_for_tests(matrix, gains, scale):
    return scale * (matrix * gains).sum((-2, -1)) / matrix.sum((-2, -1))


@pytest.mark.parametrize(
    "text",
    [
        "cost_matrix(costs=[[0, 1], [10, 0]])",
        "cost_matrix(costs=[[0, -1.5, 1e-07], [10, 0, 1], [2, 3, 0]])",
        "weighted_kappa(power=1)",
        "weighted_kappa(power=2)",
    ],
)
def test_names_read_back(text):
    found = get_metric(text)
    assert found.name == text
    assert isinstance(found, MatrixMetric)
    for other in (get_metric(found.name), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other == found
        assert hash(other) == hash(found)
        assert type(other) is MatrixMetric


def test_quadratic_weights_are_the_default():
    assert get_metric("weighted_kappa") == metrics.weighted_kappa() == metrics.weighted_kappa(power=2)


def test_costs_can_be_lists_tuples_arrays_tensors_and_tables():
    expected, array = metrics.cost_matrix([[0, 1], [10, 0]]), np.array([[0, 1], [10, 0]])
    for costs in (((0, 1), (10, 0)), array, torch.from_numpy(array).float(), pd.DataFrame(array)):
        assert metrics.cost_matrix(costs) == expected


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([[0, 1]], "must be square"),
        ([[0, 1], [1]], "must be square"),
        ([[0]], "must be square"),
        ([], "must be square"),
        ([[0, math.nan], [1, 0]], "must be finite"),
        ([[0, 1e30], [1, 0]], "at most 1e\\+20 in size"),
    ],
)
def test_wrong_costs_are_refused(costs, message):
    with pytest.raises(ValueError, match=message):
        metrics.cost_matrix(costs)


@pytest.mark.parametrize("costs", [3, [1, 2], [[0, "a"], [1, 0]], [[0, True], [1, 0]], [[0, 1], 2], None, "x"])
def test_costs_of_another_type_are_refused(costs):
    with pytest.raises(TypeError, match="cost_matrix: costs must be a matrix"):
        metrics.cost_matrix(costs)


@pytest.mark.parametrize("power", [0, -1, math.nan, [1, 2], "x", [[1, 2], [3, 4]]])
def test_wrong_powers_are_refused(power):
    with pytest.raises((ValueError, TypeError), match="weighted_kappa: power must be"):
        metrics.weighted_kappa(power=power)


@pytest.mark.parametrize("text", ["fbeta(beta=[[1]])", "cost_matrix(costs=[[[0]]])", "cost_matrix(costs=[[x]])"])
def test_other_nested_text_is_refused(text):
    with pytest.raises((ValueError, TypeError)):
        get_metric(text)


def test_values_by_hand():
    assert metrics.cost_matrix([[0, 1, 4], [1, 0, 1], [4, 1, 0]])(MATRIX).item() == pytest.approx(5 / 20)
    distance = np.abs(np.subtract.outer(range(3), range(3)))
    expected = np.outer(MATRIX.sum(1), MATRIX.sum(0)) / 20
    for power in (1, 2, 3):
        by_hand = 1 - (distance**power * MATRIX.numpy()).sum() / (distance**power * expected).sum()
        assert metrics.weighted_kappa(power=power)(MATRIX).item() == pytest.approx(by_hand, abs=1e-14)
    several = metrics.weighted_kappa(power=2)(torch.stack([MATRIX, MATRIX.T]))
    assert several.shape == (2,)
    assert metrics.weighted_kappa(power=2)(MATRIX.long()).item() == pytest.approx(several[0].item())


def test_decisions_of_one_class_have_a_kappa_of_exactly_0():
    generator = torch.Generator().manual_seed(0)
    for column in range(4):
        matrix = torch.zeros(4, 4, dtype=torch.float64)
        matrix[:, column] = torch.rand(4, generator=generator, dtype=torch.float64)
        assert metrics.weighted_kappa(power=2)(matrix).item() == 0.0
    alone = torch.zeros(3, 3)
    alone[1, 1] = 5
    assert metrics.weighted_kappa(power=2)(alone).item() == 0.0
    assert metrics.weighted_kappa(power=2)(torch.zeros(3, 3)).item() == 0.0


@pytest.mark.parametrize("power", [0.25, 1, 2])
def test_kappa_is_at_least_minus_1_up_to_power_2(power):
    """The worst decisions for these margins are those of the largest distance, found by a linear program."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    for classes in (2, 3, 5):
        distance = np.abs(np.subtract.outer(range(classes), range(classes))) ** power
        for _ in range(10):
            rows, columns = rng.dirichlet(np.full(classes, 0.5), size=2)
            margins = np.vstack(
                [np.kron(np.eye(classes), np.ones(classes)), np.kron(np.ones(classes), np.eye(classes))]
            )
            worst = linprog(-distance.ravel(), A_eq=margins, b_eq=np.concatenate([rows, columns])).x
            value = metrics.weighted_kappa(power=power)(torch.tensor(worst.reshape(classes, classes)))
            assert value.item() >= -1 - 1e-9
    assert metrics.weighted_kappa(power=power).bounds == (-1, 1)
    assert metrics.weighted_kappa(power=4).bounds == (-math.inf, 1)


def test_requirements():
    requirement = parse_requirement("cost_matrix(costs=[[0, 1, 4], [1, 0, 1], [4, 1, 0]]) <= 0.3")
    assert requirement.metric.parameters["costs"][0] == (0.0, 1.0, 4.0)
    from metricfit.core.confusion import ConfusionMatrix

    assert bool(requirement.holds(ConfusionMatrix(MATRIX)))
    assert str(metrics.weighted_kappa(power=2) >= 0.5) == "weighted_kappa(power=2) >= 0.5"
    with pytest.raises(ValueError, match="lies between -1 and 1"):
        metrics.weighted_kappa(power=2) >= 1.5  # noqa: B015
    with pytest.raises(TypeError, match="is one number for the whole confusion matrix"):
        metrics.weighted_kappa(power=2)[1]


def test_a_users_metric_is_a_metric():
    assert isinstance(mean_distance_for_tests, MatrixMetric)
    assert mean_distance_for_tests(MATRIX).item() == pytest.approx(5 / 20)
    assert get_metric("mean_distance_for_tests") is mean_distance_for_tests
    assert pickle.loads(pickle.dumps(mean_distance_for_tests)) == mean_distance_for_tests
    logits = torch.eye(3)[[0, 1, 2, 2]] * 9
    found = evaluate(torch.nn.Identity(), (logits, torch.tensor([0, 1, 2, 0])), "mean_distance_for_tests")
    assert found["mean_distance_for_tests"] == pytest.approx(2 / 4)
    x = torch.zeros(4, 3, requires_grad=True)
    MetricLoss(mean_distance_for_tests)(x, torch.tensor([0, 1, 2, 0])).backward()
    assert x.grad.abs().sum() > 0


def test_a_users_metric_with_parameters():
    assert isinstance(gain_for_tests, MatrixMetricFactory)
    made = gain_for_tests(gains=[[1, 0, 0], [0, 2, 0], [0, 0, -3]], scale=2)
    assert made(MATRIX).item() == pytest.approx(2 * (5 + 6 - 21) / 20)
    assert get_metric(made.name) == made
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_users_formula_may_divide_by_zero():
    x = torch.zeros(0, 3, requires_grad=True)
    loss = MetricLoss(mean_distance_for_tests)(x, torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0


def test_a_users_formula_must_return_one_number_per_matrix():
    wrong = matrix_metric(lambda matrix: matrix.sum(-1))
    with pytest.raises(ValueError, match="must give one number per matrix"):
        wrong(MATRIX)
    with pytest.raises(ValueError, match="is the name of a metric of this library"):

        @matrix_metric
        def f1(matrix):
            return matrix.sum((-2, -1))


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(3, 4), torch.zeros(1, 1)])
def test_other_shapes_are_refused(wrong):
    with pytest.raises(ValueError, match="needs a square matrix"):
        metrics.weighted_kappa(power=2)(wrong)


def test_something_else_is_refused():
    with pytest.raises(TypeError, match="is called on a confusion matrix"):
        metrics.weighted_kappa(power=2)([[1, 2], [3, 4]])
    with pytest.raises(TypeError, match="needs its parameters"):
        get_metric(metrics.cost_matrix)


def test_two_classes_are_a_matrix_with_the_negative_class_first():
    counts = Counts(tp=3, fp=1, fn=2, tn=4)
    assert metrics.cost_matrix([[0, 1], [10, 0]])(counts).tolist() == [2.1]
    assert metrics.weighted_kappa(power=2)(counts).tolist() == pytest.approx(metrics.kappa(counts).tolist())
