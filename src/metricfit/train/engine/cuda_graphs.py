"""Steps as CUDA graphs: what a step starts on the GPU is written down once and started as a whole from then on.

A step of small networks is a few hundred short kernels, and Python takes longer to start each than the GPU to run it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from metricfit.errors import InvalidStateError

Given = Sequence[Tensor | None]
Step = Callable[..., Tensor]


class Graphs:
    """Runs a step on batches, of each shape once as it is, then from a graph.

    A step gets the same tensors each time, filled with the batch's values; all else that it reads and writes must stay
    where it is, and ``clear`` is called when it does not.

    Args:
        step: takes a batch's tensors, sets the gradients of the weights, moves the weights, returns the losses.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.clear()

    def clear(self) -> None:
        """Forget all graphs: weights, the state of the optimiser or settings are others now.

        The next step of each shape is made as it is again: what an optimiser or a loss creates at its first step would
        be created anew at each replay, if it were part of a graph.
        """
        self.seen: set[tuple[torch.Size | None, ...]] = set()
        self.captured: dict[tuple[torch.Size | None, ...], Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()  # the last one is gone with its last graph

    def __call__(self, given: Given, weights: Sequence[Tensor]) -> Tensor:
        """The losses; weights and their gradients as after the step."""
        shapes = tuple(None if each is None else each.shape for each in given)
        if shapes not in self.seen:
            self.seen.add(shapes)
            return self.step(*given)
        if shapes not in self.captured:
            self.captured[shapes] = Captured(self.step, given, weights, self.pool)
        return self.captured[shapes].replay(given)


class Captured:
    """One graph: a step for batches of one shape."""

    def __init__(self, step: Step, given: Given, weights: Sequence[Tensor], pool: Any) -> None:
        self.given = [None if each is None else each.clone() for each in given]
        self.weights = list(weights)
        self.graph = torch.cuda.CUDAGraph()
        try:
            with _without_collection(), torch.cuda.graph(self.graph, pool=pool):
                self.losses = step(*self.given)
        except RuntimeError as error:
            raise InvalidStateError(
                f"this step cannot be captured as a CUDA graph; train with cuda_graphs=False. The reason: {error}"
            ) from error
        self.gradients = [weight.grad for weight in self.weights]

    def replay(self, given: Given) -> Tensor:
        """The step, made for this batch."""
        for mine, each in zip(self.given, given, strict=True):
            if mine is not None and each is not None:
                mine.copy_(each)
        self.graph.replay()
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            weight.grad = gradient
        return self.losses.clone()


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection for the while: it might free an older graph, which breaks the one that is captured."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def capturable(optimizer: torch.optim.Optimizer) -> None:
    """On a GPU make the optimiser's steps capturable, its count of steps a tensor there; on a CPU make them not so.

    A checkpoint keeps an optimiser's settings, and one that was written on a GPU may go on on a CPU, where torch
    refuses such steps.
    """
    optimizer._warned_capturable_if_run_uncaptured = True  # a shape's first step is
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = all(weight.is_cuda for weight in group["params"])
    for weight, state in optimizer.state.items():
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].to(weight.device)
