"""Data for the frameworks: 600 samples, about one in seven positive, that a small network tells apart."""

import pytest
import torch


@pytest.fixture
def x_y():
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(600, generator=generator) < 0.15).long()
    return torch.randn(600, 4, generator=generator) + 1.5 * y[:, None], y
