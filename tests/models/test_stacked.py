"""Every network as a population: k stacked models equal k separate ones, forward and backward, in float64."""

import copy

import pytest
import torch
from rtdl_num_embeddings import PeriodicEmbeddings
from torch.func import functional_call, stack_module_state

from metricfit import MetricLoss
from metricfit.models import (
    PerMember,
    TabM,
    embedded_mlp,
    mlp,
    piecewise_linear,
    quantile_bins,
)


def edges():
    table = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    table[:, 0] = table[:, 0] > 0
    return quantile_bins(table, bins=6)


def periodic():
    return PeriodicEmbeddings(4, 3, n_frequencies=5, frequency_init_scale=0.01, lite=False)


TABULAR = {
    "mlp": lambda: mlp(4, (5, 3), dropout=0.0),
    "embedded_piecewise": lambda: embedded_mlp(piecewise_linear(edges(), 3), (5,), dropout=0.0),
    "embedded_periodic": lambda: embedded_mlp(periodic(), (5,), dropout=0.0),
    "tabm": lambda: TabM(4, k=3, width=5, dropout=0.0),
    "tabm_mini": lambda: TabM(4, k=3, width=5, dropout=0.0, architecture="tabm-mini"),
    "tabm_piecewise": lambda: TabM(4, k=3, width=5, dropout=0.0, embedding=piecewise_linear(edges(), 3)),
    "tabm_periodic": lambda: TabM(4, k=3, width=5, dropout=0.0, embedding=periodic()),
}


@pytest.mark.parametrize("name", TABULAR)
def test_stacked_equals_separate(name):
    torch.manual_seed(0)
    models = [TABULAR[name]().double() for _ in range(3)]
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([1, 0, 1, 0, 0, 1])
    loss = PerMember(MetricLoss("f1", validate=False), members=3)
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
