"""Where training starts: the last bias at the prior."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def start_at_prior(model: Model, prior: float, *, strict: bool = True) -> Model:
    """Set the bias of the model's last layer with one output so that it starts at p = ``prior``; returns the model.

    A fresh network says p = 1/2 of everything. With 1 % positives that is a loss dominated by the negatives, whose
    first lesson is to push every score down, often past the point where a metric's gradient is still alive. A model
    without such a layer is an error, or with ``strict=False`` is left as it is.

    >>> model = start_at_prior(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), prior=0.1)
    >>> round(model[-1].bias.sigmoid().item(), 4)
    0.1
    """
    if not 0.0 < prior < 1.0:
        raise ValueError(f"prior is the share of positives, strictly between 0 and 1, got {prior}")
    layers = [(getattr(layer, "weight", None), getattr(layer, "bias", None)) for layer in model.modules()]
    biases = [
        bias
        for weight, bias in layers  # normalisation layers, whose weights are vectors, are not outputs
        if isinstance(bias, nn.Parameter)
        and bias.dim()
        and bias.shape[-1] == 1
        and isinstance(weight, Tensor)
        and weight.dim() > 1
    ]
    if not biases and not strict:
        return model
    if not biases:
        raise ValueError(
            "the model has no layer with one output and a bias; set its last bias to log(prior / (1 - prior)) by hand"
        )
    with torch.no_grad():
        biases[-1].fill_(math.log(prior / (1 - prior)))
    return model
