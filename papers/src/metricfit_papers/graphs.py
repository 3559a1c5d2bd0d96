"""Optimiser steps as CUDA graphs: the kernels of a step are recorded once and then launched together.

A step of small networks consists of a few hundred short kernels, and Python takes longer to launch each of them than
the GPU takes to run it. A step is captured if all of this holds:

- it runs on one CUDA device, in the model's own precision, and computes its batch in one part;
- the optimiser is one of torch's whose steps can be captured, and its learning rate moves at most once per epoch;
- the stage has at least ``FEWEST_STEPS`` steps, and the weights, and what a step keeps for its backward pass, take at
  most ``MOST_SAVED`` bytes: larger steps do not wait for Python, and a graph has memory of its own;
- model and loss are plain modules, neither compiled nor hooked, and a trial run of copies of both neither waits for
  the GPU nor changes anything but tensors in place: what Python does is not repeated by a graph.

Of several members the first one is tried, because all have one architecture and copies of one loss.
"""

from __future__ import annotations

import copy
import gc
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidStateError, shorten
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch
from metricfit.train.engine.learner import Member
from metricfit.train.stage import Objective, Stage
from metricfit_papers.populations import StackedLearner, read_attributes

FEWEST_STEPS = 50
MOST_SAVED = 2**30
CAPTURED = "captured"
#: Batches of more shapes than this run directly, because every graph has memory of its own.
MOST_GRAPHS = 8

Inputs = Sequence[Tensor | None]
Step = Callable[..., Tensor]


class CapturedLearner(StackedLearner):
    """A learner whose steps are captured as CUDA graphs wherever they can be: ``fit_population(make_learner=...)``.

    The column "cuda_graphs" of the history says "captured", or why not. On a CPU this is a plain learner.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members)
        if self.stack is not None and self.stack.is_large:
            self.stack.one_by_one = True  # within a graph the kernels of separate models need no time of Python

    def begin(self, stage: Stage, lr: Sequence[float], steps: int | None = None) -> None:
        """Start a stage with new optimizers and without graphs."""
        super().begin(stage, lr, steps)
        self.graphs: StepGraphs | None = None
        self.started = False
        first = self.members[0]
        self.note: str | None = None
        if self.runtime.device.type == "cuda":
            self.note = "not yet"
            obstacle = find_obstacle_in_settings(
                first.network,
                first.objective.loss,
                first.optimizer,
                steps=steps,
                per_batch=first.schedule.per_batch,
                accumulate=self.settings.accumulate,
            )
            if obstacle is not None:
                self._give_up(obstacle)

    def notes(self, member: int) -> dict[str, Any]:
        """Say whether steps were captured."""
        return super().notes(member) | ({} if self.note is None else {"cuda_graphs": self.note})

    def retire(self, members: Sequence[int]) -> None:
        """Stop the training of these members; graphs of all of them are no longer of use."""
        super().retire(members)
        if members and self.graphs is not None:
            self.graphs.clear()

    def make_step(self, batches: Sequence[Batch]) -> Tensor:
        """Make a step: the first directly, and later ones from graphs."""
        if self.note not in (CAPTURED, "not yet"):
            return super().make_step(batches)
        if not self.started:  # optimisers and losses create their state in the first step
            self.started = True
            return super().make_step(batches)
        if self.graphs is None:
            first = self.members[0]
            obstacle = find_obstacle(first.network, first.objective.loss, batches[0], self._backward)
            if obstacle is not None:
                self._give_up(obstacle)
                return super().make_step(batches)
            for member in self.members:
                make_capturable(member.optimizer)
            self.graphs, self.rates, self.note = StepGraphs(self._step), self._read_rates(), CAPTURED
        if self._read_rates() != self.rates:  # a captured step contains its learning rate
            self.graphs.clear()
            self.rates = self._read_rates()
        weights = [weight for group in self._groups() for weight in group["params"]]
        inputs = [part for batch in batches for part in (batch.x, batch.y, batch.weight, batch.index, batch.group)]
        try:
            return self.graphs(inputs, weights)
        except InvalidStateError as error:
            free_generator()
            self._give_up(shorten(error.__cause__ or error))
            return super().make_step(batches)

    def _step(self, *inputs: Any) -> Tensor:
        return super().make_step([Batch(*inputs[first : first + 5]) for first in range(0, len(inputs), 5)])

    def _backward(self, network: nn.Module, loss: nn.Module, batch: Batch) -> None:
        x = self.members[0].lay_out(batch.x)
        self.runtime.backward(Objective(loss)(network(x), batch))

    def _groups(self) -> list[dict[str, Any]]:
        return [group for member in self.members for group in member.optimizer.param_groups]

    def _read_rates(self) -> list[float]:
        return [float(group["lr"]) for group in self._groups()]

    def _give_up(self, obstacle: str) -> None:
        self.graphs, self.note = None, obstacle


def find_obstacle_in_settings(
    model: nn.Module, loss: nn.Module, optimizer: Any, *, steps: int | None, per_batch: bool, accumulate: int
) -> str | None:
    """Return why the steps of a stage cannot be captured, as far as its settings show it, or None."""
    if steps is not None and steps < FEWEST_STEPS:
        return f"fewer than {FEWEST_STEPS} steps"
    if per_batch:
        return "the learning rate changes in every step"
    if accumulate > 1:
        return "batches are computed in parts"
    if sum(weight.nbytes for weight in model.parameters()) > MOST_SAVED:
        return f"the weights take more than {MOST_SAVED >> 20} MiB"
    is_torchs = type(optimizer).__module__.startswith("torch.optim.")
    if not is_torchs or not ("capturable" in optimizer.defaults or isinstance(optimizer, torch.optim.SGD)):
        return f"steps of {type(optimizer).__name__} cannot be captured"
    for module in (*model.modules(), *loss.modules()):
        if hasattr(module, "_orig_mod"):
            return f"{type(module._orig_mod).__name__} is compiled"
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return f"{type(module).__name__} has hooks"
    return None


def find_obstacle(
    model: nn.Module, loss: nn.Module, batch: Batch, backward: Callable[[nn.Module, nn.Module, Batch], None]
) -> str | None:
    """Run a forward and a backward pass with copies of model and loss; return why it cannot be captured, or None."""
    if not isinstance(batch.x, Tensor):
        return "the inputs are not one tensor"
    saved = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += tensor.nbytes
        return tensor

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[batch.y.device]), randomness.Stream(0):
        warnings.simplefilter("ignore")  # torch's, that it does not find every wait
        try:
            modules = copy.deepcopy(model), copy.deepcopy(loss)
            before = _read_python_state(modules)
            torch.cuda.set_sync_debug_mode("error")
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                backward(*modules, batch)
        except Exception as error:  # whatever the reason is, the step then runs directly
            return shorten(error)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        if _read_python_state(modules) != before:
            return "a step changes values in Python"
    return f"a step keeps more than {MOST_SAVED >> 20} MiB" if saved > MOST_SAVED else None


def _read_python_state(modules: Sequence[nn.Module]) -> list[Any]:
    """Read what a step could change in Python: values and identities of attributes, and random numbers."""
    numpy = sys.modules.get("numpy")
    state: list[Any] = [random.getstate(), torch.get_rng_state().tolist()]
    state.append(None if numpy is None else numpy.random.get_state()[1].tolist())
    return state + [read_attributes(module) for module in modules]


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
            raise InvalidStateError(f"this step cannot be captured as a CUDA graph. The reason: {error}") from error
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
