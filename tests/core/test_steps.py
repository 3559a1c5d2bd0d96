"""The steps: their printed formulas, their slopes, and the laws every one of them keeps."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricfit import steps
from metricfit.core.steps import Step

GRID = torch.linspace(0, 1, 2001, dtype=torch.float64)
THRESHOLDS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
BUILDERS = {
    "linear": lambda number: steps.Linear(delta=0.02 + 0.46 * number),
    "sigmoid": lambda number: steps.Sigmoid(k=1 + 99 * number),
    "identity": lambda number: steps.Identity(),
    "raised_cosine": lambda number: steps.RaisedCosine(width=0.01 + number),
}
probability = st.floats(0, 1)
inside = st.floats(0.01, 0.99)
every_kind = pytest.mark.parametrize("kind", BUILDERS)
quick = settings(max_examples=60, deadline=None, derandomize=True)


def as_tensor(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@every_kind
@quick
@given(p=probability, t=inside, number=probability)
def test_oddness_about_the_threshold(kind, p, t, number):
    step = BUILDERS[kind](number)
    complement = step(1 - as_tensor(p), 1 - t)
    assert (1 - step(as_tensor(p), t)).item() == pytest.approx(complement.item(), abs=1e-12)


@every_kind
@quick
@given(p=probability, q=probability, t=inside, number=probability)
def test_steps_do_not_decrease(kind, p, q, t, number):
    low, high = BUILDERS[kind](number)(as_tensor(min(p, q), max(p, q)), t).tolist()
    assert low <= high + 1e-14


@quick
@given(p=probability, q=probability, t=inside, delta=st.floats(0.01, 0.49))
def test_linear_is_lipschitz_with_its_largest_slope(p, q, t, delta):
    nearest = min(t, 1 - t)
    bound = max(delta / (t - nearest / 2), (1 - 2 * delta) / nearest, delta / (1 - t - nearest / 2))
    first, second = steps.Linear(delta)(as_tensor(p, q), t).tolist()
    assert abs(first - second) <= bound * abs(p - q) + 1e-12


@quick
@given(t=inside, delta=st.floats(0.01, 0.49))
def test_linear_goes_through_its_five_points(t, delta):
    nearest = min(t, 1 - t)
    points = as_tensor(0, t - nearest / 2, t, t + nearest / 2, 1)
    assert steps.Linear(delta)(points, t).tolist() == pytest.approx([0, delta, 0.5, 1 - delta, 1], abs=1e-12)


def test_the_bound_of_linear_is_attained():
    slopes = steps.Linear(0.1).slope(GRID, 0.3)
    assert slopes.max().item() == pytest.approx(0.8 / 0.3)
    assert sorted({round(slope, 9) for slope in slopes.tolist()}) == pytest.approx([0.1 / 0.55, 0.1 / 0.15, 0.8 / 0.3])


@pytest.mark.parametrize("t", THRESHOLDS)
def test_value_is_the_printed_formula(smooth_step, naive, t):
    torch.testing.assert_close(smooth_step(GRID, t), naive.step(smooth_step, GRID, t), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("t", THRESHOLDS)
def test_sigmoid_is_the_logistic_curve(t):
    expected = [1 / (1 + math.exp(-30 * (p - t))) for p in GRID.tolist()]
    assert steps.Sigmoid(k=30)(GRID, t).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("t", THRESHOLDS)
def test_slope_is_autograds_derivative(closed_form_step, naive, t):
    p = GRID[1:-1:7].clone().requires_grad_()
    (own,) = torch.autograd.grad(closed_form_step(p, t).sum(), p)
    (outside,) = torch.autograd.grad(naive.step(closed_form_step, p, t).sum(), p)
    slope = closed_form_step.slope(p, t)
    smooth = (p - t).abs().sub(min(t, 1 - t) / 2).abs() > 1e-9  # Linear's two kinks have no derivative
    torch.testing.assert_close(slope[smooth], outside[smooth], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(slope[smooth], own[smooth], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [0.05, 0.1, 0.3])
def test_raised_cosine_is_exactly_0_and_1_outside_its_window(width, dtype):
    step, p = steps.RaisedCosine(width), GRID.to(dtype)
    below, above = p < 0.5 - width - 1e-6, p > 0.5 + width + 1e-6
    assert below.any()
    assert (step(p)[below] == 0).all()
    assert (step(p)[above] == 1).all()
    assert (step.slope(p)[below | above] == 0).all()


@pytest.mark.parametrize("t", [0.3, 0.5, 0.8])
def test_values_lie_in_0_to_1_in_float32(closed_form_step, t):
    edge = t - 0.3 + torch.logspace(-6, -1, 20_001)  # the lower end of the raised cosine's window
    values = closed_form_step(torch.cat([torch.linspace(0, 1, 20_001), edge.clamp(0, 1)]), t)
    assert values.min().item() >= 0
    assert values.max().item() <= 1 + 1e-6


def test_straight_through_has_hard_values_and_the_inner_slope(closed_form_step):
    p = as_tensor(0.1, 0.39, 0.4, 0.41, 0.9).requires_grad_()
    value = steps.StraightThrough(closed_form_step)(p, 0.4)
    assert value.tolist() == [0, 0, 1, 1, 1]
    (grad,) = torch.autograd.grad(value.sum(), p)
    torch.testing.assert_close(grad, closed_form_step.slope(p.detach(), 0.4))


def test_thresholds_broadcast_against_probabilities(smooth_step, naive):
    t = torch.tensor(THRESHOLDS, dtype=torch.float64).unsqueeze(-1)
    together = smooth_step(GRID, t).expand(9, 2001)
    for row, one in zip(together, THRESHOLDS, strict=True):
        torch.testing.assert_close(row, naive.step(smooth_step, GRID, one), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.2, 1.5])
def test_a_threshold_outside_0_to_1_is_refused(closed_form_step, threshold):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        closed_form_step(GRID, threshold)


@pytest.mark.parametrize(
    ("build", "number"),
    [(steps.Linear, 0.5), (steps.Sigmoid, math.inf), (steps.RaisedCosine, math.inf)],
)
@pytest.mark.parametrize("nothing", [0.0, -1.0, math.nan])
def test_a_step_refuses_a_parameter_out_of_range(build, number, nothing):
    for refused in (number, nothing):
        with pytest.raises(ValueError, match="needs"):
            build(refused)


@pytest.mark.parametrize("build", [steps.StraightThrough, lambda step: steps.Annealed(step, steps.Linear())])
def test_composed_steps_refuse_other_objects(build):
    with pytest.raises(TypeError, match="needs a step"):
        build(torch.sigmoid)


def test_a_user_defined_step_must_define_forward():
    with pytest.raises(TypeError, match="must define forward"):
        Step()(GRID)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_linear_is_near_the_limits_that_it_does_not_take(threshold, limit):
    """Figure 4 of the supplement of Tsoi et al. 2022: flat outer pieces, or a flat middle piece."""
    p = torch.linspace(0, 1, 501, dtype=torch.float64)
    half = min(threshold, 1 - threshold) / 2
    corners = [0, threshold - half, threshold, threshold + half, 1]
    exact = np.interp(p, corners, [0, limit, 0.5, 1 - limit, 1])
    np.testing.assert_allclose(steps.Linear(abs(limit - 1e-6))(p, threshold), exact, rtol=0, atol=1.001e-6)
    with pytest.raises(ValueError, match="Linear needs a delta"):
        steps.Linear(limit)
