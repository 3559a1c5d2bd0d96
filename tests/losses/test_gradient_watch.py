"""The warning that a loss has stopped teaching: given when it has, and only then."""

import copy
import warnings

import pytest
import torch
from torch import nn

from metricfit import MetricLoss, steps
from metricfit.losses import Mix, WeightedBCELoss
from metricfit.losses.gradient_watch import DeadGradientWarning

TARGET = torch.tensor([1, 0, 0, 0, 1, 0, 0, 0])
AT_P_001 = torch.full((8,), -4.595)
HEALTHY = torch.linspace(-1, 1, 8)
DEAD = {"raised_cosine": steps.RaisedCosine(0.1), "anyloss": steps.Sigmoid(73)}


def learn(loss, at, target=TARGET, scale=1.0, passes=1):
    """Passes over fresh logits, so that nothing is left over from the pass before."""
    for _ in range(passes):
        logits = at.clone().requires_grad_() * 1.0
        (scale * loss(logits, target)).backward()


@pytest.mark.parametrize("step", DEAD)
def test_a_dead_gradient_warns_once_with_the_remedies(step):
    loss = MetricLoss("f1", step=DEAD[step])
    with pytest.warns(DeadGradientWarning, match=r"MetricLoss\('f1'\): the gradient has died.*steps\.Linear") as caught:
        learn(loss, AT_P_001, passes=9)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "forward pass 1 " in message
    assert "8 logits" in message
    assert "losses.Mix" in message


def test_a_gradient_that_dies_later_is_detected():
    loss = MetricLoss("f1", step=steps.RaisedCosine(0.3))
    learn(loss, HEALTHY / 10, passes=2)
    with pytest.warns(DeadGradientWarning, match="forward pass 4 "):
        learn(loss, AT_P_001, passes=2)


@pytest.mark.parametrize("scale", [65536.0, 1e-4, 1e-8, -1.0])
def test_a_scaled_healthy_loss_does_not_warn(scale):
    loss = MetricLoss("f1")
    learn(loss, HEALTHY, scale=scale)
    assert not loss._watch.warned


@pytest.mark.parametrize("scale", [65536.0, 1e-4, 1e12, -1.0])
@pytest.mark.parametrize("step", DEAD)
def test_a_scaled_dead_loss_still_warns(step, scale):
    loss = MetricLoss("f1", step=DEAD[step])
    with pytest.warns(DeadGradientWarning):
        learn(loss, AT_P_001, scale=scale)


@pytest.mark.parametrize("step", [steps.Linear(), steps.Sigmoid(10), steps.Identity(), steps.RaisedCosine(0.3)])
def test_a_healthy_loss_is_silent(step):
    loss = MetricLoss("f1", step=step)
    learn(loss, HEALTHY / 2, passes=8)
    assert not loss._watch.warned


def test_linear_is_alive_where_others_die():
    learn(MetricLoss("f1"), AT_P_001)


def test_a_learnt_loss_is_silent():
    loss = MetricLoss("f1", step=steps.RaisedCosine(0.1))
    learn(loss, torch.where(TARGET == 1, 20.0, -20.0))
    assert not loss._watch.warned


@pytest.mark.parametrize("quiet", ["eval", "no_grad", "detached", "no_backward"])
def test_evaluating_is_silent(quiet):
    loss = MetricLoss("f1", step=steps.RaisedCosine(0.1))
    logits = AT_P_001.clone().requires_grad_()
    if quiet == "eval":
        loss.eval()(logits, TARGET).backward()
    elif quiet == "no_grad":
        with torch.no_grad():
            loss(logits, TARGET)
    elif quiet == "detached":
        loss(logits.detach(), TARGET)
    else:
        loss(logits, TARGET)
    assert not loss._watch.warned


def test_a_dead_loss_in_a_mix_that_learns_does_not_warn():
    mix = Mix((WeightedBCELoss(), 1.0), (MetricLoss("f1", step=steps.RaisedCosine(0.1)), 0.5))
    learn(mix, AT_P_001)


def test_a_leaf_of_logits_that_has_been_learnt_is_silent():
    """Hooks of earlier passes, when the loss was high, must not judge the gradient of a later one."""
    logits = torch.tensor([1.0, -1.0, 0.5, -0.5], requires_grad=True)
    loss, target = MetricLoss("f1", step=steps.Identity()), torch.tensor([1, 0, 1, 0])
    loss(logits, target).backward()
    with torch.no_grad():
        logits.mul_(60)
    value = loss(logits, target)
    assert value < 0.05
    value.backward()


def test_a_batch_without_positives_is_not_blamed_on_the_step():
    """Soft F1 without positives is 0 wherever the scores lie; the remedy is memory or larger batches."""
    loss = MetricLoss("f1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learn(loss, HEALTHY, torch.zeros(8))
    assert not any("The step is flat" in str(given.message) for given in caught)


def test_an_empty_batch_is_silent():
    learn(MetricLoss("f1"), torch.zeros(0), torch.zeros(0))


def test_second_derivatives_are_silent():
    logits = HEALTHY.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        MetricLoss("f1", step=steps.Sigmoid(10))(logits, TARGET), logits, create_graph=True
    )
    gradient.square().sum().backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("at", [AT_P_001, HEALTHY], ids=["dead", "healthy"])
def test_vmap_and_func_grad_are_not_disturbed(at):
    loss = MetricLoss("f1", step=steps.Sigmoid(10))
    leaf = at.clone().requires_grad_()
    expected = torch.autograd.grad(MetricLoss("f1", step=steps.Sigmoid(10)).eval()(leaf, TARGET), leaf)[0]
    torch.testing.assert_close(torch.func.grad(lambda x: loss(x, TARGET))(at), expected)
    many = torch.stack([at, at])
    torch.testing.assert_close(torch.vmap(torch.func.grad(lambda x: loss(x, TARGET)))(many), expected.expand(2, 8))
    stacked = many.clone().requires_grad_()
    torch.vmap(lambda x: loss(x, TARGET))(stacked).sum().backward()
    torch.testing.assert_close(stacked.grad, expected.expand(2, 8))


def test_compiled_it_is_silent_and_right():
    loss = MetricLoss("f1", step=steps.RaisedCosine(0.1))
    run = torch.compile(loss, backend="aot_eager")
    logits = AT_P_001.clone().requires_grad_()
    run(logits, TARGET).backward()
    assert (logits.grad == 0).all()
    assert not loss._watch.warned
    healthy, twin = ((HEALTHY / 10).requires_grad_() for _ in range(2))
    run(healthy, TARGET).backward()
    loss(twin, TARGET).backward()
    torch.testing.assert_close(healthy.grad, twin.grad)


def test_a_validated_loss_of_a_model_warns_through_its_layers():
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    nn.init.constant_(model.bias, -4.6)
    loss = MetricLoss("f1", step=steps.RaisedCosine(0.1))
    with pytest.warns(DeadGradientWarning):
        loss(model(torch.randn(8, 2)), TARGET).backward()


def test_validate_false_turns_the_watch_off():
    learn(MetricLoss("f1", step=steps.RaisedCosine(0.1), validate=False), AT_P_001)


def test_the_loss_can_still_be_copied_after_watching():
    loss = MetricLoss("f1")
    learn(loss, HEALTHY)
    learn(copy.deepcopy(loss), HEALTHY)


def test_it_is_a_user_warning_that_can_be_silenced():
    assert issubclass(DeadGradientWarning, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeadGradientWarning)
        learn(MetricLoss("f1", step=steps.RaisedCosine(0.1)), AT_P_001)
