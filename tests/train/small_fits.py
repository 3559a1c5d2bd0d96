"""A small dataset and network, trained by fit."""

import torch
from torch import nn

from metricfit.train import fit

N = 150


def data(n=N, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64) > 0.8).long()
    return x.to(dtype), y


def network(outputs=1, dropout=0.0, dtype=torch.float64):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, outputs)).to(dtype)


def weights_of(model):
    return torch.cat([tensor.detach().flatten() for tensor in model.parameters()])


def trained(objective, train=None, model=None, **settings):
    settings = {"epochs": 4, "batch_size": 50, "lr": 0.02, "progress": False} | settings
    return fit(model or network(), train or data(), objective, **settings)


X32, Y32 = data(dtype=torch.float32)
