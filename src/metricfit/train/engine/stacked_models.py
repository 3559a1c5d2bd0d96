"""Models of one architecture as one function: weights and buffers stacked along a first axis, forward under vmap."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.rnn import pad_sequence

from metricfit.errors import InvalidStateError, InvalidValueError, quote
from metricfit.train.data.batches import SAMPLES_AT_ONCE
from metricfit.train.engine.member_checks import ALONE
from metricfit.train.engine.stacked_tensors import Stack, cloned, rows_of

#: How many numbers all members are given at once when they are evaluated: 5,000 images of 32 x 32, or more rows.
EVALUATED = 2**24


class StackedModels:
    """The models' logits, all computed at once, each from its own row of ``weights`` and ``buffers``.

    The stacks are copies: the models themselves stay as they are. ``weights`` and ``buffers`` may be replaced, by
    stacks of fewer members too. Calling it is a forward pass in training mode, which moves the buffers of norms.

    Args:
        models: of one architecture; moved to the device.
        device: where.
        precision: None, or "bf16-mixed" for forward passes under autocast.

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
        if self.mixed:
            for part in self.skeleton.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    part.register_forward_pre_hook(self._as_buffers)
        self.weights, self.buffers = (cloned(stack) for stack in stack_module_state(list(models)))
        self.trainable = [name for name, given in models[0].named_parameters() if given.requires_grad]
        self.untried = True

    @property
    def members(self) -> int:
        """How many there are."""
        return len(next(iter(self.weights.values())))

    @property
    def learning(self) -> list[Tensor]:
        """The stacked weights that are trained."""
        return [self.weights[name] for name in self.trainable]

    def __call__(self, x: Tensor) -> Tensor:
        """Each member's logits of its own inputs; of models that cannot be stacked, what to do instead."""
        if not self.untried:
            return self._all(x)
        try:
            logits = self._all(x)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            kind = type(self.skeleton).__name__
            raise InvalidStateError(
                f"a {kind} cannot be trained as one of a population, whose members run under torch.vmap; {ALONE}. The "
                f"reason: {error}"
            ) from error
        self.untried = False
        return logits

    @torch.no_grad()
    def evaluated(self, x: Tensor, numbers: Tensor, shared: bool) -> Tensor:
        """Each member's logits in eval mode of its row of samples, numbers into ``x``; ``shared`` rows are the same."""
        self.skeleton.eval()
        found = []
        for part in torch.split(numbers, self._at_once(x[0], self.members), dim=1):
            found.append(self._all(x[part[0] if shared else part], shared))
        self.skeleton.train()
        return torch.cat(found, dim=1)

    @torch.no_grad()
    def outputs(self, rows: Sequence[int], inputs: Sequence[Tensor]) -> list[Tensor]:
        """The logits, in eval mode, of these members; inputs of unequal length are filled up for the while."""
        weights, buffers = rows_of(self.weights, rows), rows_of(self.buffers, rows)
        lengths, found = [len(x) for x in inputs], []
        many = self._at_once(inputs[0][0], len(rows))
        self.skeleton.eval()
        for first in range(0, max(lengths), many):
            part = pad_sequence([x[first : first + many] for x in inputs], batch_first=True).to(self.device)
            found.append(vmap(self._one)(weights, buffers, part))
        self.skeleton.train()
        return [mine[:length] for mine, length in zip(torch.cat(found, dim=1), lengths, strict=True)]

    def keep(self, rows: Tensor) -> None:
        """Go on with these members alone."""
        self.weights = {name: given.detach()[rows] for name, given in self.weights.items()}
        self.buffers = rows_of(self.buffers, rows)

    def _at_once(self, sample: Tensor, members: int) -> int:
        """How many samples of each member are evaluated at once: fewer of large ones."""
        return max(1, min(SAMPLES_AT_ONCE, EVALUATED // max(1, members * sample.numel())))

    def _as_buffers(self, norm: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        """What a batch norm is given, in the type of its buffers: torch.vmap on a GPU refuses another."""
        kept = norm.running_mean
        return (given[0].to(kept.dtype),) if isinstance(kept, Tensor) and self.members > 1 else given

    def _all(self, x: Tensor, shared: bool = False) -> Tensor:
        """All members' logits; one alone needs no vmap, whose layers are not torch's fastest."""
        if self.members == 1:
            return self._one(rows_of(self.weights, 0), rows_of(self.buffers, 0), x if shared else x[0]).unsqueeze(0)
        axes = (0, 0, None if shared else 0)
        logits: Tensor = vmap(self._one, axes, randomness="different")(self.weights, self.buffers, x)
        return logits

    def _one(self, weights: Stack, buffers: Stack, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16) if self.mixed else nullcontext():
            logits: Tensor = functional_call(self.skeleton, {**weights, **buffers}, (x,))
        return logits.to(torch.get_default_dtype()) if self.mixed else logits
