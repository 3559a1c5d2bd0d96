"""Where a run takes place: on one device, directly, or wherever lightning-fabric puts it, also on several processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, Union

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from metricfit._extras import explain_missing
from metricfit.constraints import AugmentedLagrangian, Constraint, FunctionConstraint
from metricfit.core.distributed import gather_over_ranks
from metricfit.losses.combine import Mix
from metricfit.train.data.batches import Batch
from metricfit.train.settings import Hardware

if TYPE_CHECKING:
    from lightning_fabric import Fabric


Result = TypeVar("Result")


class OneDevice:
    """One process and one device: every call goes to torch directly, as in a loop by hand.

    It has the methods of Fabric that training uses. Fabric takes milliseconds to start and some 0.1 ms per step,
    which is much of a small model's step, and has nothing to add here.

    Args:
        device: The device.
    """

    world_size, global_rank, is_global_zero = 1, 0, True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def setup(self, model: nn.Module) -> nn.Module:
        """Move the model to the device, and return it, which computes its logits."""
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


Runtime = Union["Fabric", OneDevice]


def launch(model: nn.Module, hardware: Hardware) -> Runtime:
    """Start the processes of a run."""
    if ":" in hardware.accelerator:  # one device, for a model that this process trains alone
        named = torch.device(hardware.accelerator)
        return OneDevice(torch.device("cpu") if named.type == "cpu" else named)
    devices, num_nodes = find_processes(hardware.devices, hardware.num_nodes)
    accelerator, strategy, precision = hardware.accelerator, hardware.strategy, hardware.precision
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    own_precision = "64-true" if dtypes == {torch.float64} else "32-true"
    if (devices, num_nodes, strategy) == (1, 1, "auto") and (precision or own_precision) == "32-true":
        device = _find_device(accelerator)
        if device is not None:
            return OneDevice(device)
    with explain_missing("metricfit.train", ["lightning_fabric"], "metricfit[torch]"):
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


def on_first_rank(runtime: Any, work: Callable[[], Result]) -> Result:
    """Return on all ranks what rank 0 returns, or raise its error: other machines may not see its files."""
    outcome: tuple[Any, Exception | None] = (None, None)
    if runtime.is_global_zero:
        try:
            outcome = work(), None
        except (OSError, ValueError) as error:
            outcome = None, error
    result, refusal = runtime.broadcast(outcome)
    if refusal is not None:
        raise refusal
    return result


def get_precision(runtime: Runtime) -> Any:
    """Return Fabric's precision plugin; None without Fabric."""
    return None if isinstance(runtime, OneDevice) else runtime.strategy.precision


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


def find_processes(devices: int | str, nodes: int) -> tuple[int | str, int]:
    """Return the number of processes per machine and of machines; by default the numbers that torchrun has started."""
    if (devices, nodes) != (1, 1) or not (dist.is_available() and dist.is_torchelastic_launched()):
        return devices, nodes
    per_machine, total = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return per_machine, total // per_machine


def join_after_restart(device: torch.device) -> None:
    """Join the process group under a new name if torchrun has restarted the processes on one machine.

    The store of torchrun outlives a restart and still holds the addresses of the old processes, for which the new ones
    would wait (PyTorch issue 135712). The number of the restart is the same for all processes of one machine, but not
    for processes of several machines.
    """
    if not (dist.is_available() and dist.is_torchelastic_launched()) or dist.is_initialized():
        return
    environment = os.environ
    restart = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    shared_store = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    world_size = environment["WORLD_SIZE"]
    if restart == "0" or not shared_store or world_size != environment["LOCAL_WORLD_SIZE"] or world_size == "1":
        return
    store = dist.TCPStore(environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore(f"restart {restart}", store),  # type: ignore[attr-defined]
        rank=int(environment["RANK"]),
        world_size=int(world_size),
    )


def sync_over_ranks(loss: nn.Module) -> bool:
    """Make a loss the loss of all ranks' samples together; return whether logits must be gathered for that.

    The losses of this library sum their counts over ranks, or gather the logits that they rank. Nothing is known about
    other losses, not even whether they are means. They receive the logits of all ranks, and losses of this library
    inside them must then not sum over ranks again.
    """
    gathers = not _syncs_itself(loss)
    for module in loss.modules():
        if hasattr(module, "sync"):
            module.sync = not gathers  # type: ignore[assignment]
    return gathers


def _syncs_itself(loss: nn.Module) -> bool:
    if isinstance(loss, AugmentedLagrangian):
        return all(map(_syncs_itself, (loss.objective, *loss.constraints)))
    if isinstance(loss, Mix):
        return all(map(_syncs_itself, loss.losses))
    if isinstance(loss, Constraint):
        return not isinstance(loss, FunctionConstraint)  # a user's function of a share is not known to be additive
    return hasattr(loss, "sync")


def gather_batch(logits: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """Gather logits with the gradient that DistributedDataParallel needs, and the batch without its inputs."""
    parts = (batch.y, batch.weight, batch.index, batch.group)
    gathered = [None if part is None else gather_over_ranks(part) for part in parts]
    return gather_over_ranks(logits), Batch(None, *gathered)  # type: ignore[arg-type]
