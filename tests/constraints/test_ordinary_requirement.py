"""A requirement on an ordinary batch has the term, gradient and recorded counts that the plain path gives."""

import pytest
import torch

from metricfit.constraints import RequirementConstraint
from metricfit.core import ordinary_batch
from metricfit.core.kernels import binary_small

REQUIREMENTS = ["recall >= 0.9", "precision >= 0.8", "fpr <= 0.05", "mcc >= 0.5", "selection_rate == 0.2", "f1 >= 0.7"]


def run(requirement, settings, logits, target, weight):
    """Return the terms and gradients of three batches, the counts recorded and the multipliers after an update."""
    constraint = RequirementConstraint(requirement, **settings)
    penalty, found = torch.tensor(0.7, dtype=torch.float64), []
    for part in range(3):
        x = (logits + part / 4).requires_grad_()
        term = constraint(x, target, penalty, weight=weight)
        found += [term.detach(), torch.autograd.grad(term, x)[0]]
        if part == 1:
            found.append(constraint.seen.clone())
            constraint.update(penalty)
            found.append(constraint.multiplier.clone())
    fused = any(recorded is not None for recorded in constraint._formula._recorded.values())
    return found, fused


@pytest.mark.parametrize("requirement", REQUIREMENTS)
@pytest.mark.parametrize("shape", [(40,), (40, 3)], ids=["binary", "multilabel"])
@pytest.mark.parametrize("numpy", [True, False], ids=["numpy", "torch"])
def test_the_ordinary_path_is_the_plain_one(requirement, shape, numpy, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    target = (torch.rand(shape, generator=generator) < 0.4).long()
    weight = torch.rand(shape, generator=generator, dtype=torch.float64)
    if not numpy:
        monkeypatch.setattr(binary_small, "load_numpy", lambda: None)
    for settings in ({}, {"threshold": 0.3}, {"average": "macro"}):
        settings = settings if shape == (40,) else {"task": "multilabel", **settings}
        for w in (None, weight):
            ordinary, fused = run(requirement, settings, logits, target, w)
            assert fused
            with monkeypatch.context() as patch:
                patch.setattr(ordinary_batch, "_is_plain", lambda *tensors: False)
                plain, fused = run(requirement, settings, logits, target, w)
            assert not fused
            for given, expected in zip(ordinary, plain, strict=True):
                torch.testing.assert_close(given, expected, rtol=1e-9, atol=1e-12)
