"""CUDA graphs for the steps of one model, wherever a step can be captured; ``fit`` decides it by the rule below.

A step is captured if all of this holds:

- it runs on one CUDA device, in the model's own precision, and computes its batch in one part;
- the optimiser is one of torch's whose steps can be captured, and its learning rate moves at most once per epoch;
- the stage has at least ``FEWEST_STEPS`` steps, and the weights, and what a step keeps for its backward pass, take at
  most ``MOST_SAVED`` bytes: larger steps do not wait for Python, and a graph has memory of its own;
- model and loss are plain modules, neither compiled nor hooked, and a trial run of copies of both neither waits for
  the GPU nor changes anything but tensors in place: what Python does is not repeated by a graph.
"""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from metricfit.errors import InvalidStateError, shorten
from metricfit.train.checkpoint import randomness
from metricfit.train.data.batches import Batch
from metricfit.train.engine.cuda_graphs import StepGraphs, free_generator, make_capturable

FEWEST_STEPS = 50
MOST_SAVED = 2**30
CAPTURED = "captured"


class AutomaticGraphs:
    """Makes the steps of one model: the first directly, and the others from graphs if the step can be captured.

    Args:
        step: Makes an optimiser step on a batch and returns the losses.
        backward: Takes a model and an objective, and computes the gradients of a batch with them.
        model: The model.
        loss: The loss.
        optimizer: The optimiser.
        obstacle: Why the steps of this stage cannot be captured, if it is known beforehand.
        required: Whether an obstacle is an error.

    Attributes:
        note: "captured", or why steps are not captured, for the history.
    """

    def __init__(
        self,
        step: Callable[[Batch], Tensor],
        backward: Callable[[nn.Module, nn.Module, Batch], None],
        model: nn.Module,
        loss: nn.Module,
        optimizer: Optimizer,
        *,
        obstacle: str | None,
        required: bool,
    ) -> None:
        self.step, self.backward, self.model, self.loss, self.optimizer = step, backward, model, loss, optimizer
        self.required = required
        self.graphs: StepGraphs | None = None
        self.started = False
        self.note = "not yet"
        if obstacle is not None:
            self._give_up(obstacle)

    def __call__(self, batch: Batch) -> Tensor:
        """Make a step, and return the losses; the gradients of the weights are set."""
        if self.note not in (CAPTURED, "not yet"):
            return self.step(batch)
        if not self.started:  # optimisers and losses create their state in the first step
            self.started = True
            return self.step(batch)
        if self.graphs is None:
            obstacle = find_obstacle(self.model, self.loss, batch, self.backward)
            if obstacle is not None:
                self._give_up(obstacle)
                return self.step(batch)
            make_capturable(self.optimizer)
            self.graphs, self.rates, self.note = StepGraphs(self._step), self._read_rates(), CAPTURED
        if self._read_rates() != self.rates:  # a captured step contains its learning rate
            self.graphs.clear()
            self.rates = self._read_rates()
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        try:
            return self.graphs((batch.x, batch.y, batch.weight, batch.index, batch.group), weights)
        except InvalidStateError as error:
            if self.required:
                raise
            free_generator()
            self._give_up(shorten(error.__cause__ or error))
            return self.step(batch)

    def _step(self, *inputs: Any) -> Tensor:
        return self.step(Batch(*inputs))

    def _read_rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _give_up(self, obstacle: str) -> None:
        if self.required:
            raise InvalidStateError(
                f"cuda_graphs=True, but this step cannot be captured as a CUDA graph: {obstacle}; leave cuda_graphs out"
            )
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
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[batch.y.device]), randomness.seeded(0):
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
    for module in (part for whole in modules for part in whole.modules()):
        attributes = {**vars(module), **module._buffers}
        state.append({name: _identify(value) for name, value in attributes.items()})
    return state


def _identify(value: Any) -> Any:
    """Return what stays the same as long as a value is only changed in place: tensors keep their memory."""
    if isinstance(value, Tensor):
        return "tensor", value.data_ptr(), value.shape
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return len(value) if isinstance(value, (list, tuple, dict, set)) else type(value).__name__
