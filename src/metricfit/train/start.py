"""Where training starts: the last bias at the prior."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def start_at_prior(
    model: Model, prior: float, *, strict: bool = True, logits: Callable[[], Tensor] | None = None
) -> Model:
    """Set the bias of the model's last layer with one output so that it starts at p = ``prior``; returns the model.

    A fresh network says p = 1/2 of everything. With 1 % positives that is a loss dominated by the negatives, whose
    first lesson is to push every score down, often past the point where a metric's gradient is still alive. A model
    without such a layer is an error, or with ``strict=False`` is left as it is.

    ``logits`` gives the model's outputs for a few samples. With it the layer is the last of those whose bias moves all
    logits by what it is moved by itself, which a gate's or an auxiliary head's does not.

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
    found = bool(biases)
    if logits is not None:
        biases = [bias for bias in biases if _moves_all(bias, logits)]
    if not biases and not strict:
        return model
    if not biases:
        wrong = "that moves its logits one to one" if found else "with one output and a bias"
        raise ValueError(f"the model has no layer {wrong}; set its last bias to log(prior / (1 - prior)) by hand")
    with torch.no_grad():
        biases[-1].fill_(math.log(prior / (1 - prior)))
    return model


@torch.no_grad()
def _moves_all(bias: nn.Parameter, logits: Callable[[], Tensor]) -> bool:
    """Whether all logits move by 1 when the bias does."""
    before, kept = logits(), bias.detach().clone()
    bias.add_(1.0)
    after = logits()
    bias.copy_(kept)
    rounding = 8 * torch.finfo(after.dtype).eps
    return torch.allclose(after, before + 1, rtol=rounding, atol=rounding)
