"""Where a run of one model takes place: on one device, directly, or wherever lightning-fabric puts it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from metricfit._extras import explain_missing
from metricfit.train.engine.ranks import find_processes, join_after_restart

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class OneDevice:
    """One process and one device, for models in float32: every call goes to torch directly, as in a loop by hand.

    Its methods are those of Fabric that training uses. Fabric takes milliseconds to start and some 0.1 ms per step,
    which is much of a small model's step, and has nothing to add here.
    """

    world_size, global_rank, is_global_zero = 1, 0, True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def setup(self, model: nn.Module) -> nn.Module:
        """Move the model to the device."""
        return model.to(self.device)

    def setup_optimizers(self, optimizer: Optimizer) -> Optimizer:
        """Return the optimiser."""
        return optimizer

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_gradients(
        self, model: nn.Module, optimizer: Optimizer, *, max_norm: float, error_if_nonfinite: bool
    ) -> None:
        """Clip the gradient of all weights of the optimiser."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        nn.utils.clip_grad_norm_(weights, max_norm, error_if_nonfinite=error_if_nonfinite)

    def no_backward_sync(self, model: nn.Module, enabled: bool) -> AbstractContextManager[None]:
        """Return an empty context: there is no other process."""
        return nullcontext()

    def broadcast(self, value: Any) -> Any:
        """Return the value."""
        return value

    def barrier(self) -> None:
        """Return at once."""


def launch(
    model: nn.Module,
    *,
    accelerator: str,
    devices: int | str,
    num_nodes: int,
    strategy: str,
    precision: str | None,
) -> Fabric | OneDevice:
    """Start the processes of a run; the arguments are those of ``fit``."""
    devices, num_nodes = find_processes(devices, num_nodes)
    own_precision = _find_precision(model)
    if (devices, num_nodes, strategy) == (1, 1, "auto") and (precision or own_precision) == "32-true":
        device = _find_device(accelerator)
        if device is not None:
            return OneDevice(device)
    with explain_missing("metricfit.train", ["lightning_fabric"], "metricfit[train]"):
        from lightning_fabric import Fabric  # imported here because it takes seconds
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        precision=precision or own_precision,  # type: ignore[arg-type]
    )
    join_after_restart(fabric.device)
    fabric.launch()
    return fabric


def get_precision(runtime: Fabric | OneDevice) -> Any:
    """Return Fabric's precision plugin; None without Fabric."""
    return None if isinstance(runtime, OneDevice) else runtime.strategy.precision


def _find_precision(model: nn.Module) -> str:
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return "64-true" if dtypes == {torch.float64} else "32-true"


def _find_device(accelerator: str) -> torch.device | None:
    """Return the device that Fabric would choose, if it is a CPU or a CUDA GPU; None if Fabric must decide."""
    if (dist.is_available() and dist.is_torchelastic_launched()) or "LT_CLI_USED" in os.environ:
        return None
    if accelerator == "auto":
        if torch.backends.mps.is_available() or find_spec("torch_xla") is not None:
            return None
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if accelerator == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", 0) if accelerator in ("gpu", "cuda") and torch.cuda.is_available() else None
