"""Optimiser steps as CUDA graphs: the kernels of a step are recorded once and then launched together.

A step of small networks consists of a few hundred short kernels, and Python takes longer to launch each of them than
the GPU takes to run it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from metricfit.errors import InvalidStateError

#: Batches of more shapes than this run directly, because every graph has memory of its own.
MOST_GRAPHS = 8

Inputs = Sequence[Tensor | None]
Step = Callable[..., Tensor]


class StepGraphs:
    """Runs a step on batches: the first batch of each shape directly, later ones from a captured graph.

    A captured step reads its batch from fixed tensors, into which the values of each batch are copied. All other
    tensors that the step reads and writes must keep their memory; when they do not, call ``clear``.

    Args:
        step: Takes the tensors of a batch, sets the gradients of the weights, moves the weights, and returns the
            losses.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.clear()

    def clear(self) -> None:
        """Drop all graphs, because the weights, the optimiser's state or the settings were replaced.

        The next step of each shape then runs directly again. Tensors that an optimiser or a loss creates in its first
        step would be created anew in every replay if they were part of a graph.
        """
        self.seen: set[tuple[torch.Size | None, ...]] = set()
        self.captured: dict[tuple[torch.Size | None, ...], CapturedStep] = {}
        self.pool = torch.cuda.graph_pool_handle()  # the old pool is freed with its last graph

    def __call__(self, inputs: Inputs, weights: Sequence[Tensor]) -> Tensor:
        """Make a step, and return the losses; the gradients of the weights are set."""
        shapes = tuple(None if tensor is None else tensor.shape for tensor in inputs)
        if shapes not in self.seen:
            self.seen.add(shapes)
            return self.step(*inputs)
        if shapes not in self.captured:
            if len(self.captured) == MOST_GRAPHS:
                return self.step(*inputs)
            self.captured[shapes] = CapturedStep(self.step, inputs, weights, self.pool)
        return self.captured[shapes].replay(inputs)


class CapturedStep:
    """One graph: a step for batches of one shape."""

    def __init__(self, step: Step, inputs: Inputs, weights: Sequence[Tensor], pool: Any) -> None:
        self.inputs = [None if tensor is None else tensor.clone() for tensor in inputs]
        self.weights = list(weights)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with _without_garbage_collection(), torch.cuda.graph(self.graph, pool=pool):
                self.losses = step(*self.inputs)
        except RuntimeError as error:
            raise InvalidStateError(
                f"this step cannot be captured as a CUDA graph; train with cuda_graphs=False. The reason: {error}"
            ) from error
        self.gradients = [weight.grad for weight in self.weights]

    def replay(self, inputs: Inputs) -> Tensor:
        """Make the step for this batch, and return the losses."""
        for captured, tensor in zip(self.inputs, inputs, strict=True):
            if captured is not None and tensor is not None:
                captured.copy_(tensor)
        self.graph.replay()
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            weight.grad = gradient
        return self.losses.clone()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which could free an older graph and so invalidate the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def free_generator() -> None:
    """Let random numbers be drawn again after a capture that failed.

    torch leaves its generator in the state of the capture, in which it draws numbers for graphs only. Another capture
    ends that state.
    """
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.empty(1, device="cuda").zero_()


def make_capturable(optimizer: torch.optim.Optimizer) -> None:
    """Make an optimiser's steps capturable if its weights are on a GPU, and not capturable otherwise.

    A checkpoint keeps the optimiser's settings. One that was written on a GPU may be loaded on a CPU, where torch
    refuses capturable steps.
    """
    optimizer._warned_capturable_if_run_uncaptured = True  # the first step of each shape runs uncaptured on purpose
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = all(weight.is_cuda for weight in group["params"])
    for weight, state in optimizer.state.items():
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].to(weight.device)
