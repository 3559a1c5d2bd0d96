"""Operators of torch that compute a value together with its gradient, which a compiler calls on the CPU.

A compiler cannot fuse what they contain, such as sorts, or takes seconds for it, such as formulas of a few numbers.
``torch.library.custom_op`` would define the same, but it imports the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("metricfit", "FRAGMENT")  # type: ignore[no-untyped-call]


def register(name: str, arguments: str, function: Callable[..., tuple[Tensor, Tensor]], kept_axes: int) -> None:
    """Register ``torch.ops.metricfit.<name>``.

    Args:
        name: Its name.
        arguments: Its arguments in the language of torch's schemas; the first one is the tensor with a gradient.
        function: Returns the value and the gradient, of the tensor's type. The operator's second result is only for its
            backward pass.
        kept_axes: How many of the tensor's last axes the value does not have.
    """

    def fake(tensor: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        return tensor.new_empty(tensor.shape[: tensor.dim() - kept_axes]), tensor.new_empty(tensor.shape)

    def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.arguments, ctx.kept_axes = len(inputs), kept_axes
        ctx.save_for_backward(output[1])

    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        for _axis in range(ctx.kept_axes):
            grad = grad.unsqueeze(-1)
        return grad * ctx.saved_tensors[0], *(None,) * (ctx.arguments - 1)

    _LIBRARY.define(f"{name}({arguments}) -> (Tensor, Tensor)")  # type: ignore[no-untyped-call]
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"metricfit::{name}", fake, lib=_LIBRARY)
    torch.library.register_autograd(f"metricfit::{name}", backward, setup_context=remember, lib=_LIBRARY)
