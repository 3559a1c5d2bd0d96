"""AdversarialLoss on a CUDA device: the game is solved on the CPU, the gradient arrives where the logits are."""

import pytest
import torch

from metricfit_papers import AdversarialLoss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_as_on_the_cpu():
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(20, generator=generator) < 0.3).long()
    x = torch.randn(20, generator=generator) * 0.3 + 0.2 * y
    loss = AdversarialLoss("f1", subject_to="recall >= 0.8")
    here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
    expected, value = loss(here, y), loss(there, y.cuda())
    expected.backward()
    value.backward()
    assert value.device.type == there.grad.device.type == "cuda"
    torch.testing.assert_close(value.cpu(), expected)
    assert torch.equal(there.grad.cpu(), here.grad)
