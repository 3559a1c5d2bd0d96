"""Models of one architecture as one function, whose weights and buffers are stacked along a first axis.

Members run together under vmap. Members that convolve images run one by one, because vmap turns their convolutions into
grouped ones, which take 1.5 to 3 times as long. Within a CUDA graph each of them has a stream of its own, so that their
small kernels run side by side.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.rnn import pad_sequence

from metricfit.errors import InvalidStateError, InvalidValueError, quote
from metricfit.train.data.batches import SAMPLES_AT_ONCE
from metricfit.train.engine.member_checks import ALONE
from metricfit.train.engine.model_outputs import has_2d_convolutions
from metricfit.train.engine.stacked_tensors import Stack, clone_stack, select_rows, unstack

#: Maximum number of input values of all members in one forward pass of an evaluation: about 5,000 images of 32 x 32.
VALUES_AT_ONCE = 2**24


class StackedModels:
    """Computes the logits of all members at once, each from its own row of ``weights`` and ``buffers``.

    The stacks are copies, so the models themselves do not change. ``weights`` and ``buffers`` may be replaced, also by
    stacks of fewer members. A call is a forward pass in training mode, which updates the buffers of normalisations.

    Args:
        models: Models of one architecture, which are moved to the device.
        device: The device of the stacks.
        precision: None, or "bf16-mixed" for forward passes under autocast.

    Raises:
        ValueError: The precision is neither of the two.

    Example:
        >>> stack = StackedModels([nn.Linear(3, 1) for _ in range(4)], torch.device("cpu"))
        >>> stack.weights["weight"].shape, stack(torch.randn(4, 8, 3)).shape
        (torch.Size([4, 1, 3]), torch.Size([4, 8, 1]))
    """

    def __init__(self, models: Sequence[nn.Module], device: torch.device, precision: str | None = None) -> None:
        if precision not in (None, "bf16-mixed"):
            raise InvalidValueError(f"a population's precision is None or 'bf16-mixed', got {quote(precision)}")
        self.device, self.mixed = device, precision is not None
        for model in models:
            model.to(device)
        self.skeleton = copy.deepcopy(models[0]).to("meta")
        self.skeleton.train()
        if device.type == "cpu":
            for module in self.skeleton.modules():
                if type(module) is nn.Dropout:
                    module.forward = partial(_drop_units, module)  # type: ignore[method-assign]
        if self.mixed:
            for module in self.skeleton.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.register_forward_pre_hook(self._convert_to_buffer_dtype)
        self.weights, self.buffers = (clone_stack(stack) for stack in stack_module_state(list(models)))
        self.trainable = [name for name, weight in models[0].named_parameters() if weight.requires_grad]
        self.convolves = has_2d_convolutions(self.skeleton)
        self.streams: list[torch.cuda.Stream] | None = None
        self.first_call = True

    @property
    def members(self) -> int:
        """The number of members."""
        return len(next(iter(self.weights.values())))

    @property
    def under_vmap(self) -> bool:
        """Whether the members run together under vmap; a single member runs without it, which is faster."""
        return self.members > 1 and not self.convolves

    @property
    def trainable_weights(self) -> list[Tensor]:
        """The stacked weights that are trained."""
        return [self.weights[name] for name in self.trainable]

    def __call__(self, x: Tensor) -> Tensor:
        """Return each member's logits for its own inputs; the first call reports models that cannot be stacked."""
        if not self.first_call:
            return self._forward(x)
        try:
            logits = self._forward(x)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if not self.under_vmap:
                raise
            kind = type(self.skeleton).__name__
            raise InvalidStateError(
                f"a {kind} cannot be trained as a member of a population, whose members run under torch.vmap; {ALONE}. "
                f"The reason: {error}"
            ) from error
        self.first_call = False
        return logits

    @torch.no_grad()
    def evaluate(self, x: Tensor, numbers: Tensor, shared: bool) -> Tensor:
        """Compute logits in eval mode.

        Args:
            x: The inputs of all samples.
            numbers: For each member, one row of sample numbers.
            shared: Whether all rows are the same.

        Returns:
            One row of logits per member.
        """
        self.skeleton.eval()
        logits = []
        for part in torch.split(numbers, self._samples_at_once(x[0], self.members), dim=1):
            logits.append(self._forward(x[part[0] if shared else part], shared))
        self.skeleton.train()
        return torch.cat(logits, dim=1)

    @torch.no_grad()
    def outputs(self, rows: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of these members in eval mode; shorter inputs are padded meanwhile."""
        weights, buffers = select_rows(self.weights, rows), select_rows(self.buffers, rows)
        lengths, logits = [len(x) for x in inputs], []
        size = self._samples_at_once(inputs[0][0], len(rows))
        self.skeleton.eval()
        for start in range(0, max(lengths), size):
            part = pad_sequence([x[start : start + size] for x in inputs], batch_first=True).to(self.device)
            logits.append(self._forward_members(weights, buffers, part))
        self.skeleton.train()
        return [padded[:length] for padded, length in zip(torch.cat(logits, dim=1), lengths, strict=True)]

    def keep(self, rows: Tensor) -> None:
        """Keep these members only."""
        self.weights = {name: weight.detach()[rows] for name, weight in self.weights.items()}
        self.buffers = select_rows(self.buffers, rows)

    def _samples_at_once(self, sample: Tensor, members: int) -> int:
        """Return how many samples per member are evaluated in one pass; fewer if the samples are large."""
        return max(1, min(SAMPLES_AT_ONCE, VALUES_AT_ONCE // max(1, members * sample.numel())))

    def _convert_to_buffer_dtype(self, norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Convert the input of a batch norm to the type of its buffers; torch.vmap on a GPU refuses other types."""
        mean = norm.running_mean
        return (inputs[0].to(mean.dtype),) if self.under_vmap and isinstance(mean, Tensor) else inputs

    def _forward(self, x: Tensor, shared: bool = False) -> Tensor:
        """Return the logits of all members."""
        return self._forward_members(self.weights, self.buffers, x, shared)

    def _forward_members(self, weights: Stack, buffers: Stack, x: Tensor, shared: bool = False) -> Tensor:
        """Return the logits of the members in these stacks, which may be some of all members."""
        members = len(next(iter(weights.values())))
        if self.under_vmap:
            axes = (0, 0, None if shared else 0)
            logits: Tensor = vmap(self._forward_member, axes, randomness="different")(weights, buffers, x)
            return logits
        inputs = [x] * members if shared else list(x)
        own_buffers = [select_rows(buffers, row) for row in range(members)]  # views that a norm may write to
        calls = list(zip(unstack(weights), own_buffers, inputs, strict=True))
        if members > 1 and x.is_cuda and torch.cuda.is_current_stream_capturing():
            return torch.stack(self._run_on_streams(calls))
        return torch.stack([self._forward_member(*call) for call in calls])

    def _run_on_streams(self, calls: Sequence[tuple[Stack, Stack, Tensor]]) -> list[Tensor]:
        """Run each call on a stream of its own; autograd runs its backward pass on the same stream."""
        current = torch.cuda.current_stream(self.device)
        if self.streams is None or len(self.streams) < len(calls):
            self.streams = [torch.cuda.Stream(self.device) for _ in calls]  # type: ignore[no-untyped-call]
        logits = []
        for stream, call in zip(self.streams, calls, strict=False):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                logits.append(self._forward_member(*call))
        for stream in self.streams[: len(calls)]:
            current.wait_stream(stream)
        return logits

    def _forward_member(self, weights: Stack, buffers: Stack, x: Tensor) -> Tensor:
        if self.convolves:
            weights = {name: _with_channels_last(weight) for name, weight in weights.items()}
        with torch.autocast(x.device.type, torch.bfloat16) if self.mixed else nullcontext():
            logits: Tensor = functional_call(self.skeleton, {**weights, **buffers}, (x,))
        return logits.to(torch.get_default_dtype()) if self.mixed else logits


def _with_channels_last(weight: Tensor) -> Tensor:
    """Lay out the weight of a convolution with its channels last, which convolutions prefer."""
    return weight.contiguous(memory_format=torch.channels_last) if weight.dim() == 4 else weight


def _drop_units(module: nn.Dropout, x: Tensor) -> Tensor:
    """Drop units as nn.Dropout does, by uniform numbers: on a CPU torch takes four times as long for Bernoulli's."""
    if not module.training or not 0 < module.p < 1:
        return nn.functional.dropout(x, module.p, module.training)
    kept = torch.rand_like(x, dtype=torch.float32) >= module.p
    return x * (kept.to(x.dtype) / (1 - module.p))
