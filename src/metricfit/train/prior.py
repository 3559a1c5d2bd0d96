"""start_at_prior: set the last bias of a model to the share of positives before training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError

Model = TypeVar("Model", bound=nn.Module)


def start_at_prior(
    model: Model,
    prior: float,
    *,
    strict: bool = True,
    fresh_only: bool = False,
    logits: Callable[[], Tensor] | None = None,
) -> Model:
    """Set the bias of the model's last layer with one output so that its first predictions are p = ``prior``.

    A fresh network predicts about p = 1/2 for every sample. With 1 % positives the negatives then dominate the loss.
    The first steps push all scores down, often so far that the gradient of a metric vanishes.

    Args:
        model: A model that returns one logit per sample. It is changed in place.
        prior: The share of positives.
        strict: Whether a model without such a layer is an error. Otherwise it is not changed.
        fresh_only: Change the model only if it is evidently untrained. Nothing has then been written to the layer
            since torch initialised it: no optimiser step, no ``load_state_dict``, no copy. And every weight of the
            model that is still as initialised lies in the range of torch's default initialisation.
        logits: Returns the model's outputs for a few samples. With it, only layers are considered whose bias moves all
            logits by the same amount. The bias of a gate or of an auxiliary head does not.

    Returns:
        The model.

    Raises:
        ValueError: The prior is not strictly between 0 and 1, or with ``strict`` there is no such layer.

    Example:
        >>> model = start_at_prior(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), prior=0.1)
        >>> round(model[-1].bias.sigmoid().item(), 4)
        0.1
    """
    if not 0.0 < prior < 1.0:
        raise InvalidValueError(f"prior is the share of positives, strictly between 0 and 1, got {prior}")
    layers = [(getattr(layer, "weight", None), getattr(layer, "bias", None)) for layer in model.modules()]
    outputs = [
        (weight, bias)
        for weight, bias in layers  # normalisation layers, whose weights are vectors, are not outputs
        if isinstance(bias, nn.Parameter)
        and bias.dim()
        and bias.shape[-1] == 1
        and isinstance(weight, Tensor)
        and weight.dim() > 1
    ]
    in_range = _in_default_range(model)  # computed first, because comparing logits() writes to the biases
    moving = [(bias, in_range and _as_initialised(weight) and _as_initialised(bias)) for weight, bias in outputs]
    if logits is not None:
        moving = [(bias, is_fresh) for bias, is_fresh in moving if _moves_all(bias, logits)]
    if not moving and not strict:
        return model
    if not moving:
        missing = "that moves its logits one to one" if outputs else "with one output and a bias"
        raise InvalidValueError(
            f"the model has no layer {missing}; set its last bias to log(prior / (1 - prior)) by hand"
        )
    bias, is_fresh = moving[-1]
    if fresh_only and not is_fresh:
        return model
    with torch.no_grad():
        bias.fill_(math.log(prior / (1 - prior)))
    return model


def _as_initialised(parameter: Tensor) -> bool:
    """Check whether a parameter has been written to exactly once, by its initialisation.

    torch counts the writes to a tensor, for autograd. An optimiser step and ``load_state_dict`` are writes, and a copy
    starts at 0. Writes of fused optimisers and through ``.data`` are not counted; _in_default_range detects these.
    """
    return parameter._version == 1


def _in_default_range(model: nn.Module) -> bool:
    """Whether all weights that are still as initialised lie in the range of torch's default, 1 / sqrt(inputs)."""
    for layer in model.modules():
        if not isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            continue
        largest = 1.01 / math.sqrt(layer.weight[0].numel())  # with room for the rounding of bfloat16
        for parameter in (layer.weight, layer.bias):
            if parameter is not None and _as_initialised(parameter) and float(parameter.detach().abs().max()) > largest:
                return False
    return True


@torch.no_grad()
def _moves_all(bias: nn.Parameter, logits: Callable[[], Tensor]) -> bool:
    """Check whether all logits move by 1 when the bias does."""
    before, original = logits(), bias.detach().clone()
    bias.add_(1.0)
    after = logits()
    bias.copy_(original)
    rounding = 8 * torch.finfo(after.dtype).eps
    return torch.allclose(after, before + 1, rtol=rounding, atol=rounding)
