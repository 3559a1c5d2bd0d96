"""Several processes: how they find each other, and how they compute the loss of the whole batch together."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn

from metricfit.constraints import AugmentedLagrangian, Constraint
from metricfit.constraints.function import FunctionConstraint
from metricfit.core.distributed import gather_over_ranks
from metricfit.errors import InvalidValueError
from metricfit.losses.combine import Mix
from metricfit.train.data.batches import Batch


def find_processes(devices: int | str, nodes: int) -> tuple[int | str, int]:
    """Return the number of processes per machine and of machines; under torchrun, those that it has started.

    Raises:
        ValueError: The arguments contradict torchrun.
    """
    if not (dist.is_available() and dist.is_torchelastic_launched()):
        return devices, nodes
    per_machine, total = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    started = per_machine, total // per_machine
    if devices not in (1, "auto", per_machine) or nodes not in (1, started[1]):
        raise InvalidValueError(
            f"torchrun has started {per_machine} processes per machine on {started[1]} machines, but devices="
            f"{devices!r} and num_nodes={nodes}; leave them out"
        )
    return started


def join_after_restart(device: torch.device) -> None:
    """Join the process group under a new name if torchrun has restarted the processes on one machine.

    The store of torchrun outlives a restart and still holds the addresses of the old processes, for which the new ones
    would wait (PyTorch issue 135712). The number of the restart is the same for all processes of one machine, but not
    for those of several machines.
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
