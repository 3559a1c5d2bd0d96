"""Buffers whose precision matters: sums, some of which have a shape known at the first batch, and exact settings."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from metricfit.core.tensor_numerics import counting_dtype, has_storage, in_backward
from metricfit.errors import InvalidStateError, InvalidValueError


class ExactBuffers(nn.Module):
    """A module whose own buffers are settings: ``.half()`` and ``.to(dtype)`` leave their type and values unchanged."""

    def _apply(self, fn: Any, recurse: bool = True) -> ExactBuffers:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype != old.dtype:
                setattr(self, name, old.to(new.device))
        return self


#: How many forward passes are remembered, to recognise one that a checkpoint computes again.
REMEMBERED = 16

_copies: WeakKeyDictionary[LateBuffers, WeakSet[LateBuffers]] = WeakKeyDictionary()
_passes: WeakKeyDictionary[LateBuffers, deque[tuple[Tensor, Tensor]]] = WeakKeyDictionary()


class LateBuffers(nn.Module):
    """A module with buffers that are None until they are first used; ``late`` lists their names.

    They are saved and loaded like other buffers. Loading takes the saved shape, or None if there was no buffer yet.
    ``.half()`` leaves all buffers of the module in at least float32, because they hold sums.
    """

    late: ClassVar[tuple[str, ...]] = ()
    #: What to do if a batch needs buffers of another shape.
    remedy: ClassVar[str] = "call reset(), or give each loss its own state"

    def __init__(self) -> None:
        super().__init__()
        #: If this module is a copy: the buffers that were made together with the original's buffers.
        self._with_original: set[str] = set()
        for name in self.late:
            self.register_buffer(name, None)

    def made(self, name: str, like: Tensor) -> Tensor:
        """Return a late buffer; at its first use it is created, filled with zeros, and it moves to the batch's device.

        Args:
            name: The name of the buffer.
            like: A tensor of the shape and on the device that the buffer should have.

        Returns:
            The buffer, in at least float32.

        Raises:
            RuntimeError: If the buffer does not exist yet and ``like`` is a tensor under vmap.
            ValueError: If the buffer was created for another shape.
        """
        buffer: Tensor | None = getattr(self, name)
        owner = type(self).__name__
        if name in self._with_original and buffer is not None:
            self._with_original.remove(name)
            if buffer.shape != like.shape:
                buffer = None
        if not has_storage(like) and (buffer is None or has_storage(buffer)):
            raise InvalidStateError(
                f"{owner} under vmap needs its {name!r} for each member: call the loss once without vmap, stack its "
                "buffers, and use torch.func.functional_call"
            )
        if buffer is None:
            buffer = self._make(name, like)
        elif buffer.device != like.device:  # loaded from a checkpoint on the CPU, say
            buffer = buffer.to(like.device)
            setattr(self, name, buffer)
        if buffer.shape != like.shape:
            raise InvalidValueError(
                f"{owner} holds {name!r} of shape {tuple(buffer.shape)}, but the batch needs {tuple(like.shape)}; "
                f"{self.remedy}"
            )
        return buffer

    def _make(self, name: str, like: Tensor) -> Tensor:
        """Create a buffer, also in copies without one: AveragedModel pairs the buffers of a model with its copy's."""
        with torch.inference_mode(False):  # a buffer created in validation is also used in training
            buffer = torch.zeros(like.shape, dtype=counting_dtype(like.dtype), device=like.device)
        setattr(self, name, buffer)
        for copied in () if torch.compiler.is_compiling() else _copies.get(self, ()):
            if getattr(copied, name) is None:
                copied._make(name, like)
                copied._with_original.add(name)
        return buffer

    def __deepcopy__(self, memo: dict[int, Any]) -> LateBuffers:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        _copies.setdefault(self, WeakSet()).add(copied)
        return copied

    def remember_pass(self, amount: Tensor, state: Tensor) -> None:
        """Remember what a forward pass in training added, and a state that its recomputation needs.

        Args:
            amount: What was added, by which the pass is recognised.
            state: What ``recomputed_pass`` returns for this pass.
        """
        if not (torch.compiler.is_compiling() or in_backward()) and has_storage(amount):
            _passes.setdefault(self, deque(maxlen=REMEMBERED)).append((amount, state))

    def recomputed_pass(self, amount: Tensor) -> Tensor | None:
        """Return the state of an earlier forward pass if a checkpoint now computes it again, within a backward pass.

        ``torch.utils.checkpoint(..., use_reentrant=False)`` calls everything twice. With ``use_reentrant=True`` the
        first call has no gradients and adds nothing, so that there is no such pass.

        Args:
            amount: What the pass adds.

        Returns:
            The state that was remembered, or None if this is no recomputation.
        """
        if torch.compiler.is_compiling() or not in_backward() or not has_storage(amount):
            return None
        passes = reversed(_passes.get(self, deque()))
        return next((state for seen, state in passes if seen.shape == amount.shape and torch.equal(seen, amount)), None)

    def reset(self) -> None:
        """Set the late buffers to None, as before their first use."""
        for name in self.late:
            setattr(self, name, None)

    def _apply(self, fn: Any, recurse: bool = True) -> LateBuffers:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._buffers[name]
            if old is None or new is None or not new.is_floating_point():
                continue
            if new.dtype != counting_dtype(new.dtype):
                setattr(self, name, old.to(new.device, torch.promote_types(torch.float32, old.dtype)))
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *args: Any
    ) -> None:
        for name in self.late:
            saved, buffer = state_dict.get(prefix + name), getattr(self, name)
            if saved is not None:
                setattr(self, name, torch.zeros_like(saved, device=saved.device if buffer is None else buffer.device))
            elif strict:
                setattr(self, name, None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *args)
