"""Image networks as a population: k stacked models equal k separate ones, forward and backward, in float64."""

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state

from metricfit import MetricLoss
from metricfit_papers.models import ResNet, TinyDarknet, small_cnn

IMAGES = {
    "darknet": TinyDarknet,
    "darknet_batch": lambda: TinyDarknet(norm="batch"),
    "resnet": lambda: ResNet((1, 1, 1, 1)),
    "resnet_batch": lambda: ResNet((1, 1, 1, 1), norm="batch"),
    "cnn": lambda: small_cnn(image_size=16),
}


@pytest.mark.parametrize("name", IMAGES)
def test_stacked_equals_separate(name):
    torch.manual_seed(0)
    models = [IMAGES[name]().double() for _ in range(3)]
    x, y = torch.randn(3, 3, 16, 16, dtype=torch.float64), torch.tensor([1, 0, 1])
    loss = MetricLoss("f1", validate=False)
    separate = copy.deepcopy(models)

    parameters, buffers = stack_module_state(models)
    parameters = {key: value.detach().requires_grad_() for key, value in parameters.items()}
    base = copy.deepcopy(models[0]).to("meta")

    def one(own, state):
        logits = functional_call(base, (own, state), (x,))
        return logits, loss(logits, y)

    logits, values = torch.vmap(one, randomness="different")(parameters, buffers)
    values.sum().backward()

    for place, model in enumerate(separate):
        expected = model(x)
        torch.testing.assert_close(logits[place], expected, rtol=1e-10, atol=1e-12)
        loss(expected, y).backward()
        for key, parameter in model.named_parameters():
            torch.testing.assert_close(parameters[key].grad[place], parameter.grad, rtol=1e-8, atol=1e-12)
        for key, buffer in model.named_buffers():
            torch.testing.assert_close(buffers[key][place], buffer)


def test_buffers_of_batch_norm_cannot_be_shared():
    """The trap that `Norm` speaks of: it fails aloud."""
    models = [TinyDarknet(norm="batch") for _ in range(2)]
    parameters, _ = stack_module_state(models)
    shared = dict(models[0].named_buffers())

    def one(own):
        return functional_call(models[0], (own, shared), (torch.zeros(2, 3, 16, 16),))

    with pytest.raises(RuntimeError, match="running_mean or running_var"):
        torch.vmap(one)(parameters)
