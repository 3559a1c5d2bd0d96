"""Models of one architecture as one function, whose weights and buffers are stacked along a first axis.

Members run together under vmap, or one by one if they are convolutional networks of some size: vmap turns their
convolutions into grouped ones, which take longer. Within a CUDA graph, members that run one by one have a CUDA stream
each, so that their small kernels run side by side.
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
#: Convolutional networks with fewer weights run faster under vmap, because their operations are short.
FEWEST_WEIGHTS = 2**13


def runs_one_by_one(model: nn.Module, device: torch.device, cuda_graphs: bool) -> bool:
    """Check whether members like this model run faster one by one than under vmap.

    On a GPU this is so only within CUDA graphs, because Python starts the operations of one member after the other.
    """
    weights = sum(weight.numel() for weight in model.parameters())
    return has_2d_convolutions(model) and weights >= FEWEST_WEIGHTS and (device.type != "cuda" or cuda_graphs)


class StackedModels:
    """Computes the logits of all members at once, each from its own row of ``weights`` and ``buffers``.

    The stacks are copies, so the models themselves do not change. ``weights`` and ``buffers`` may be replaced, also by
    stacks of fewer members, whose numbers are then set as ``active``. A call is a forward pass in training mode, which
    updates the buffers of normalisations.

    Args:
        models: Models of one architecture, which are moved to the device.
        device: The device of the stacks.
        precision: None, or "bf16-mixed" for forward passes under autocast.
        one_by_one: Whether members run one by one instead of under vmap.

    Raises:
        ValueError: The precision is neither of the two.

    Example:
        >>> stack = StackedModels([nn.Linear(3, 1) for _ in range(4)], torch.device("cpu"))
        >>> stack.weights["weight"].shape, stack(torch.randn(4, 8, 3)).shape
        (torch.Size([4, 1, 3]), torch.Size([4, 8, 1]))
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        device: torch.device,
        precision: str | None = None,
        *,
        one_by_one: bool = False,
    ) -> None:
        if precision not in (None, "bf16-mixed"):
            raise InvalidValueError(f"a population's precision is None or 'bf16-mixed', got {quote(precision)}")
        self.device, self.mixed, self.one_by_one = device, precision is not None, one_by_one
        for model in models:
            model.to(device)
        # Models without their weights. Members that run one by one have one each, for what they keep in Python.
        self.skeletons = [self._make_skeleton(model) for model in (models if one_by_one else models[:1])]
        self.weights, self.buffers = (clone_stack(stack) for stack in stack_module_state(list(models)))
        self.active = list(range(len(models)))
        self.trainable = [name for name, weight in models[0].named_parameters() if weight.requires_grad]
        self.with_channels_last = _name_convolutions(models[0]) if one_by_one and device.type == "cuda" else set()
        self.streams: list[torch.cuda.Stream] = []
        self.first_call = True

    def _make_skeleton(self, model: nn.Module) -> nn.Module:
        skeleton = copy.deepcopy(model).to("meta").train()
        for module in skeleton.modules():
            if self.device.type == "cpu" and type(module) is nn.Dropout:
                module.forward = partial(_drop_units, module)  # type: ignore[method-assign]
            if self.mixed and not self.one_by_one and isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.register_forward_pre_hook(self._convert_to_buffer_dtype)
        return skeleton

    @property
    def members(self) -> int:
        """The number of members."""
        return len(next(iter(self.weights.values())))

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
        except (torch.OutOfMemoryError, InvalidStateError):
            raise
        except RuntimeError as error:
            how = "" if self.one_by_one else ", whose members run under torch.vmap"
            kind = type(self.skeletons[0]).__name__
            raise InvalidStateError(
                f"a {kind} cannot be trained as a member of a population{how}; {ALONE}. The reason: {error}"
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
        self._train(mode=False)
        logits = []
        for part in torch.split(numbers, self._samples_at_once(x[0], self.members), dim=1):
            logits.append(self._forward(x[part[0] if shared else part], shared))
        self._train()
        return torch.cat(logits, dim=1)

    @torch.no_grad()
    def outputs(self, rows: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the logits of these members in eval mode; shorter inputs are padded meanwhile."""
        weights, buffers = select_rows(self.weights, rows), select_rows(self.buffers, rows)
        members = [self.active[row] for row in rows]
        lengths, logits = [len(x) for x in inputs], []
        size = self._samples_at_once(inputs[0][0], len(rows))
        self._train(mode=False)
        for start in range(0, max(lengths), size):
            part = pad_sequence([x[start : start + size] for x in inputs], batch_first=True).to(self.device)
            logits.append(self._forward_members(members, weights, buffers, part))
        self._train()
        return [padded[:length] for padded, length in zip(torch.cat(logits, dim=1), lengths, strict=True)]

    def keep(self, rows: Tensor) -> None:
        """Keep these members only."""
        self.weights = {name: weight.detach()[rows] for name, weight in self.weights.items()}
        self.buffers = select_rows(self.buffers, rows)
        self.active = [self.active[row] for row in rows.tolist()]

    def _train(self, mode: bool = True) -> None:
        for skeleton in self.skeletons:
            skeleton.train(mode)

    def _samples_at_once(self, sample: Tensor, members: int) -> int:
        """Return how many samples per member are evaluated in one pass; fewer if the samples are large."""
        return max(1, min(SAMPLES_AT_ONCE, VALUES_AT_ONCE // max(1, members * sample.numel())))

    def _convert_to_buffer_dtype(self, norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Convert the input of a batch norm to the type of its buffers; torch.vmap on a GPU refuses other types."""
        mean = norm.running_mean
        return (inputs[0].to(mean.dtype),) if isinstance(mean, Tensor) and self.members > 1 else inputs

    def _forward(self, x: Tensor, shared: bool = False) -> Tensor:
        """Return the logits of all members."""
        return self._forward_members(self.active, self.weights, self.buffers, x, shared)

    def _forward_members(
        self, members: Sequence[int], weights: Stack, buffers: Stack, x: Tensor, shared: bool = False
    ) -> Tensor:
        """Return the logits of some members, whose stacks these are; a single member runs without vmap."""
        if self.one_by_one:
            return self._forward_one_by_one(members, weights, buffers, x, shared)
        forward = partial(self._forward_member, self.skeletons[0])
        if self.members == 1:
            return forward(select_rows(weights, 0), select_rows(buffers, 0), x if shared else x[0]).unsqueeze(0)
        axes = (0, 0, None if shared else 0)
        logits: Tensor = vmap(forward, axes, randomness="different")(weights, buffers, x)
        return logits

    def _forward_one_by_one(
        self, members: Sequence[int], weights: Stack, buffers: Stack, x: Tensor, shared: bool
    ) -> Tensor:
        skeletons = [self.skeletons[member] for member in members]
        own_buffers = [select_rows(buffers, row) for row in range(len(members))]  # views that a norm may write to
        inputs = [x] * len(members) if shared else list(x)
        calls = zip(skeletons, unstack(weights), own_buffers, inputs, strict=True)
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            return torch.stack(self._run_on_streams(list(calls)))
        return torch.stack([self._forward_member(*call) for call in calls])

    def _run_on_streams(self, calls: Sequence[tuple[nn.Module, Stack, Stack, Tensor]]) -> list[Tensor]:
        """Run each call on a stream of its own; autograd runs its backward pass on the same stream."""
        current = torch.cuda.current_stream(self.device)
        missing = len(calls) - len(self.streams)
        self.streams += [torch.cuda.Stream(self.device) for _ in range(missing)]  # type: ignore[no-untyped-call]
        logits = []
        try:
            for stream, call in zip(self.streams, calls, strict=False):
                stream.wait_stream(current)
                with torch.cuda.stream(stream):
                    logits.append(self._forward_member(*call))
        finally:  # a capture ends with an error of its own if a stream is left
            for stream in self.streams[: len(calls)]:
                current.wait_stream(stream)
        return logits

    def _forward_member(self, skeleton: nn.Module, weights: Stack, buffers: Stack, x: Tensor) -> Tensor:
        weights = {name: self._lay_out(name, weight) for name, weight in weights.items()}
        given = {**weights, **buffers}
        before = _identify(weights) if self.first_call and self.one_by_one else {}
        with torch.autocast(x.device.type, torch.bfloat16) if self.mixed else nullcontext():
            logits: Tensor = functional_call(skeleton, given, (x,))
        for name, buffer in buffers.items():
            if given[name] is not buffer:  # the model assigned a new tensor
                buffer.copy_(given[name].detach())
        if before and _identify(weights) != before:
            kind = type(skeleton).__name__
            raise InvalidStateError(f"a {kind} changes its weights in forward, which a population would lose; {ALONE}")
        return logits.to(torch.get_default_dtype()) if self.mixed else logits

    def _lay_out(self, name: str, weight: Tensor) -> Tensor:
        """Lay out the weights of convolutions with their channels last, which convolutions on a GPU prefer."""
        return weight.contiguous(memory_format=torch.channels_last) if name in self.with_channels_last else weight


def _name_convolutions(model: nn.Module) -> set[str]:
    """Return the names of the weights of 2D convolutions."""
    kinds = (nn.Conv2d, nn.ConvTranspose2d)
    return {f"{name}.weight".lstrip(".") for name, module in model.named_modules() if isinstance(module, kinds)}


def _identify(weights: Stack) -> dict[str, tuple[int, int]]:
    """Return what changes when a weight is written to or replaced."""
    return {name: (weight._version, weight.data_ptr()) for name, weight in weights.items()}


def _drop_units(module: nn.Dropout, x: Tensor) -> Tensor:
    """Drop units as nn.Dropout does, by uniform numbers: on a CPU torch takes four times as long for Bernoulli's."""
    if not module.training or not 0 < module.p < 1:
        return nn.functional.dropout(x, module.p, module.training)
    kept = torch.rand_like(x, dtype=torch.float32) >= module.p
    return x * (kept.to(x.dtype) / (1 - module.p))
