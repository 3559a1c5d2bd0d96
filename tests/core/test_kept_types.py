"""Soft counts of logits and labels in the types in which a user passes them, as on a CUDA device."""

import pytest
import torch

from metricfit import steps
from metricfit.core.kernels.binary import soft_counts

STEPS = [
    steps.Linear(0.1),
    steps.StraightThrough(steps.Sigmoid(12)),
    steps.Annealed(steps.Identity(), steps.Linear(0.1)),
]


@pytest.mark.parametrize("step", STEPS, ids=repr)
@pytest.mark.parametrize("target_type", [torch.bool, torch.uint8, torch.int64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_counts_and_gradients_of_half_precision(step, target_type, weighted):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 50, generator=generator).bfloat16()
    target = torch.rand(2, 50, generator=generator) < 0.3
    weight = torch.rand(2, 50, generator=generator) if weighted else None
    kept, converted = logits.clone().requires_grad_(), logits.float().requires_grad_()
    found = soft_counts(kept, target.to(target_type), weight, step, 0.4)
    expected = soft_counts(converted, target.float(), weight, step, 0.4)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    ours, theirs = (
        torch.autograd.grad(counts[0].sum() - 0.3 * counts[1].sum(), leaf, create_graph=True)[0]
        for counts, leaf in ((found, kept), (expected, converted))
    )
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), theirs.bfloat16().float())
    ours, theirs = (
        torch.autograd.grad(first.float().square().sum(), leaf)[0]
        for first, leaf in ((ours, kept), (theirs, converted))
    )
    torch.testing.assert_close(ours.float(), theirs, rtol=0.05, atol=1e-3)
