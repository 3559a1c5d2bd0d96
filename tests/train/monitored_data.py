"""Logits and labels to monitor."""

import torch


def masks(n=12, seed=0):
    """Overlapping masks: a pixel can belong to several classes, or to none."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, 4, 4, generator=generator)
    return x, (x + 0.5 * torch.randn(n, 2, 4, 4, generator=generator) > 0.7).float()
