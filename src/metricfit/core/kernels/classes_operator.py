"""The kernels of exclusive classes as operators of torch, which ``torch.compile`` calls instead of looking into them.

A compiler cannot find the two largest probabilities and the counts in one pass by itself, so that on a CUDA device the
Triton kernels are much faster than what it makes of plain operations. Under ``vmap`` and ``grad`` of torch.func it gets
plain operations: operators with a registered backward do not support these transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from metricfit.core.kernels import classes_blocks, classes_triton
from metricfit.core.kernels.class_layout import Layout, StepAt


def handles(logits: Tensor) -> bool:
    """Return whether a compiler should call the operator for these logits."""
    return classes_triton.handles(logits) and not is_transformed()


def is_transformed() -> bool:
    """Return whether a compiler traces a transform of torch.func, such as ``vmap``."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# What torch.compiler.assume_constant_result does; calling it would import the compiler together with this package.
is_transformed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def counts(logits: Tensor, target: Tensor, weight: Tensor | None, step: StepAt, layout: Layout) -> Tensor:
    """Return the counts ``(4, ..., c)``, differentiably."""
    settings = (*step, layout.class_axis, list(layout.sample_axes))
    result: Tensor = torch.ops.metricfit.class_counts(logits, target, weight, *settings)
    return result


def define_operators(operators: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]]) -> torch.library.Library:
    """Define operators of torch, and return the library that holds them.

    torch.library.custom_op would do the same, but each of its calls passes through several functions in Python.

    Args:
        operators: What computes the result and what makes an empty one of its shape, by the operators' signatures.
    """
    library = torch.library.Library("metricfit", "FRAGMENT")  # type: ignore[no-untyped-call]
    for signature, (function, fake) in operators.items():
        name = signature.partition("(")[0]
        library.define(signature)  # type: ignore[no-untyped-call]
        library.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"metricfit::{name}", fake, lib=library)
    return library


_SETTINGS = "str kind, float number, float? threshold, int class_axis, int[] sample_axes"
_BATCH = "Tensor logits, Tensor target, Tensor? weight"


def _class_counts(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    kind: str,
    number: float,
    threshold: float | None,
    class_axis: int,
    sample_axes: list[int],
) -> Tensor:
    layout = Layout(class_axis, tuple(sample_axes))
    return classes_blocks.counts(logits, target, weight, StepAt(kind, number, threshold), layout)


def _empty_counts(logits: Tensor, *arguments: Any) -> Tensor:
    *_, class_axis, sample_axes = arguments
    kept = [
        size for axis, size in enumerate(logits.shape, -logits.dim()) if axis != class_axis and axis not in sample_axes
    ]
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.new_empty(4, *kept, logits.shape[class_axis], dtype=dtype)


def _class_gradient(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    grad: Tensor,
    kind: str,
    number: float,
    threshold: float | None,
    class_axis: int,
    sample_axes: list[int],
) -> Tensor:
    step, layout = StepAt(kind, number, threshold), Layout(class_axis, tuple(sample_axes))
    return classes_blocks.gradient(logits, target, weight, grad, step, layout).contiguous()


def _empty_gradient(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    logits, target, weight, *ctx.settings = inputs
    ctx.save_for_backward(logits, target, weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.metricfit.class_gradient(*ctx.saved_tensors, grad, *ctx.settings), *(None,) * 7


_LIBRARY = define_operators(
    {
        f"class_counts({_BATCH}, {_SETTINGS}) -> Tensor": (_class_counts, _empty_counts),
        f"class_gradient({_BATCH}, Tensor grad, {_SETTINGS}) -> Tensor": (_class_gradient, _empty_gradient),
    }
)
torch.library.register_autograd("metricfit::class_counts", _backward, setup_context=_remember, lib=_LIBRARY)
