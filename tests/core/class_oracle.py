"""Counts of exclusive classes in loops over the samples, and the comparison of kernels with them."""

import torch

from metricfit.core.kernels.soft_classes import Layout, StepAt

ROWS, PIXELS, IMAGES = Layout(-1, (-2,)), Layout(-2, (-3, -1)), Layout(-2, (-1,))


def make(layout, shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = (2 * torch.randn(shape, generator=generator)).to(dtype)
    samples = x.select(layout.class_axis, 0).shape
    y = torch.randint(x.shape[layout.class_axis], samples, generator=generator)
    return x, y, torch.rand(samples, generator=generator) + 0.5


def decide(naive, step, x, threshold):
    """The decisions of one sample, as the paper prints them."""
    p = torch.softmax(x, 0)
    t = p.topk(2).values.mean() if threshold is None else threshold
    mass = naive.step(step, p, t)
    return mass / mass.sum()


def count(naive, x, y, w, step, threshold, layout):
    """Sum over samples one by one: counts (4, images, c), or (4, c) over all of them."""
    classes = x.shape[layout.class_axis]
    x = x.movedim(layout.class_axis, -1).reshape(-1, classes)
    totals = [torch.zeros(4, classes, dtype=x.dtype) for _ in range(len(y) if layout == IMAGES else 1)]
    labels = torch.eye(classes, dtype=x.dtype)[y.reshape(-1)]
    for sample, (logits, label, weight) in enumerate(zip(x, labels, w.reshape(-1), strict=True)):
        h = decide(naive, step, logits, threshold)
        cells = torch.stack([label * h, (1 - label) * h, label * (1 - h), (1 - label) * (1 - h)])
        image = sample * len(totals) // len(x)
        totals[image] = totals[image] + weight * cells
    return torch.stack(totals, 1) if layout == IMAGES else totals[0]


def compare(kernel, naive, x, y, w, step, layout, threshold=None, tolerance=1e-5):
    """Compare counts and gradients."""
    at = StepAt(step.kind, step.number, threshold if step.kind != "identity" else 0.5)
    wide = x.double().requires_grad_()
    weights = torch.ones(y.shape, dtype=torch.float64) if w is None else w.double()
    expected = count(naive, wide, y, weights, step, threshold, layout)
    counts = kernel.counts(x, y, w, at, layout)
    torch.testing.assert_close(counts.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (wanted,) = torch.autograd.grad((expected * grad.double()).sum(), wide)
    result = kernel.gradient(x, y, w, grad, at, layout)
    assert result.dtype == x.dtype
    torch.testing.assert_close(result.double(), wanted, rtol=tolerance, atol=tolerance * wanted.abs().max().item())
