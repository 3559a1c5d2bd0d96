"""The training passes of several models of one architecture, computed as one under ``torch.vmap``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase as Norm
from torch.nn.utils.rnn import pad_sequence

from metricfit.errors import InvalidStateError
from metricfit.train.engine.launching import OneDevice

#: Convolutional networks with fewer weights run faster under vmap, because their operations are short.
FEWEST_WEIGHTS = 2**13


class Stack:
    """Computes the logits of several models, each for its own inputs, in training mode.

    The weights of the models are stacked in each pass, so autograd gives every model its own gradients. Convolutional
    networks of some size run one after the other on a CPU, where the grouped convolutions of vmap take longer. Batches
    of different lengths run one after the other too if a normalisation would see their padding.

    Args:
        models: Models of one architecture, on their device.
        networks: What computes the logits of each of them alone.
        runtime: Where they are trained.

    Example:
        >>> models = [nn.Linear(3, 1) for _ in range(4)]
        >>> stack = Stack(models, models, OneDevice(torch.device("cpu")))
        >>> [logits.shape for logits in stack([0, 2], [torch.randn(8, 3), torch.randn(5, 3)])]
        [torch.Size([8, 1]), torch.Size([5, 1])]
    """

    def __init__(self, models: Sequence[nn.Module], networks: Sequence[nn.Module], runtime: OneDevice) -> None:
        self.models, self.networks, self.runtime = list(models), list(networks), runtime
        first, on_cpu = self.models[0], runtime.device.type == "cpu"
        weights = sum(weight.numel() for weight in first.parameters())
        self.is_large = has_2d_convolutions(first) and weights >= FEWEST_WEIGHTS
        self.one_by_one = self.is_large and on_cpu
        self.sees_padding = any(isinstance(module, Norm) and module.track_running_stats for module in first.modules())
        self.skeleton = copy.deepcopy(first).to("meta").train()
        for module in self.skeleton.modules():
            if on_cpu and type(module) is nn.Dropout:
                module.forward = partial(_drop_units, module)  # type: ignore[method-assign]
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.register_forward_pre_hook(_convert_to_buffer_dtype)
        self.first_call = True

    def __call__(self, members: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of each of these members; the first call reports models that cannot be stacked."""
        models, lengths = [self.models[member] for member in members], [len(x) for x in inputs]
        differ = min(lengths) < max(lengths)
        if self.one_by_one or len(models) == 1 or (differ and self.sees_padding):
            return [self.networks[member](x) for member, x in zip(members, inputs, strict=True)]
        stacked = pad_sequence(list(inputs), batch_first=True) if differ else torch.stack(list(inputs))
        parts = self._forward(models, stacked)
        if parts is None:
            return self(members, inputs)
        return [part[:length] for part, length in zip(parts, lengths, strict=True)] if differ else list(parts)

    def _forward(self, models: Sequence[nn.Module], x: Tensor) -> tuple[Tensor, ...] | None:
        """Return the logits of these models; None if the first pass shows that they must run one by one."""
        weights = _stack([dict(model.named_parameters(remove_duplicate=False)) for model in models])
        own_buffers = [dict(model.named_buffers()) for model in models]
        buffers = _stack(own_buffers)
        attributes = read_attributes(self.skeleton) if self.first_call else []
        try:
            with self.runtime.autocast():
                logits: Tensor = vmap(self._forward_member, randomness="different")(weights, buffers, x)
        except RuntimeError as error:
            if not self.first_call or isinstance(error, torch.OutOfMemoryError):
                raise
            raise InvalidStateError(
                f"a {type(models[0]).__name__} cannot be trained as a member of a population, whose members run under "
                f"torch.vmap; train them one by one with fit. The reason: {error}"
            ) from error
        if self.first_call:
            self.first_call = False
            self.one_by_one = read_attributes(self.skeleton) != attributes  # vmap would not give back these values
            if self.one_by_one:
                return None
        for name, stacked in buffers.items():
            for own, buffer in zip(own_buffers, stacked.detach().unbind(), strict=True):
                own[name].copy_(buffer)
        return self.runtime.convert(logits).unbind()

    def _forward_member(self, weights: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        state = {**weights, **buffers}
        logits: Tensor = functional_call(self.skeleton, state, (x,))
        for name, buffer in buffers.items():
            if state[name] is not buffer:  # the model assigned a new tensor
                buffer.copy_(state[name].detach())
        return logits


def has_2d_convolutions(model: nn.Module) -> bool:
    """Check whether a model convolves images, which most libraries do faster if the channels come last."""
    return any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in model.modules())


def read_attributes(model: nn.Module) -> list[dict[str, Any]]:
    """Read values and identities of the attributes and buffers of a model's modules."""
    attributes = ({**vars(module), **module._buffers} for module in model.modules())
    return [{name: _identify(value) for name, value in named.items()} for named in attributes]


def _identify(value: Any) -> Any:
    """Return what stays the same as long as a value is only changed in place: tensors keep their memory."""
    if isinstance(value, Tensor):
        return "tensor", value.data_ptr(), value.shape
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return len(value) if isinstance(value, (list, tuple, dict, set)) else type(value).__name__


def _stack(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _convert_to_buffer_dtype(norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Convert the input of a batch norm to the type of its buffers; torch.vmap on a GPU refuses other types."""
    mean = norm.running_mean
    return (inputs[0].to(mean.dtype),) if isinstance(mean, Tensor) else inputs


def _drop_units(module: nn.Dropout, x: Tensor) -> Tensor:
    """Drop units as nn.Dropout does, by uniform numbers: on a CPU torch takes four times as long for Bernoulli's."""
    if not module.training or not 0 < module.p < 1:
        return nn.functional.dropout(x, module.p, module.training)
    kept = torch.rand_like(x, dtype=torch.float32) >= module.p
    return x * (kept.to(x.dtype) / (1 - module.p))
