"""What the tests share: fixtures of every metric and step, batches, and the twins of ``oracles``."""

from types import SimpleNamespace

import pytest
import torch

from oracles import (
    CLOSED_FORM,
    EVERY_METRIC,
    EVERY_STEP,
    SMOOTH,
    naive_counts,
    naive_gradient,
    naive_loss,
    naive_metric,
    naive_step,
)


@pytest.fixture(params=EVERY_METRIC, ids=lambda metric: metric.name)
def any_metric(request):
    return request.param


@pytest.fixture(params=CLOSED_FORM)
def closed_form_step(request):
    return CLOSED_FORM[request.param]()


@pytest.fixture(params=SMOOTH)
def smooth_step(request):
    return SMOOTH[request.param]()


@pytest.fixture(params=EVERY_STEP)
def any_step(request):
    return EVERY_STEP[request.param]()


def make_batch(n, *, seed=0, dtype=torch.float64, device="cpu", rows=None, soft=False):
    """Logits around 0, targets with both classes, weights; ``rows`` adds a leading axis."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n,) if rows is None else (rows, n)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64).mul(1.5).to(dtype)
    target = torch.rand(shape, generator=generator, dtype=torch.float64)
    if not soft:
        target = (target < 0.4).double()
        target[..., 0] = 1
        target[..., -1] = 0 if n > 1 else 1
    weight = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
    wide = torch.promote_types(dtype, torch.float32)
    return SimpleNamespace(
        logits=logits.to(device), target=target.to(device, wide), weight=weight.to(device, wide), n=n
    )


@pytest.fixture
def batch():
    return make_batch


@pytest.fixture
def naive():
    """The twins: one plain definition each, which nothing of the library's arithmetic goes into."""
    return SimpleNamespace(
        step=naive_step, counts=naive_counts, metric=naive_metric, loss=naive_loss, gradient=naive_gradient
    )
