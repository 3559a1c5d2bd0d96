"""Several processes: how they find one another, and how the loss of a batch they share is that of the whole batch."""

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


def processes(devices: int | str, nodes: int) -> tuple[int | str, int]:
    """How many processes a machine and how many machines: what torchrun has started, where it has."""
    if not (dist.is_available() and dist.is_torchelastic_launched()):
        return devices, nodes
    here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    started = here, everywhere // here
    if devices not in (1, "auto", here) or nodes not in (1, started[1]):
        raise InvalidValueError(
            f"torchrun has started {here} processes a machine on {started[1]} machines, but devices={devices!r} and "
            f"num_nodes={nodes}; leave them out"
        )
    return started


def join_after_restart(device: torch.device) -> None:
    """Join the processes that torchrun has started again, on one machine, under a name of their own.

    Its store outlives them, and still holds the addresses of those before, which the new ones would wait for (PyTorch
    issue 135712). The number of the restart is the same for all processes of one machine, and not over several.
    """
    given = os.environ
    if not (dist.is_available() and dist.is_torchelastic_launched()) or dist.is_initialized():
        return
    restart, shared = given.get("TORCHELASTIC_RESTART_COUNT", "0"), given.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if restart == "0" or not shared or given["WORLD_SIZE"] != given["LOCAL_WORLD_SIZE"] or given["WORLD_SIZE"] == "1":
        return
    store = dist.TCPStore(given["MASTER_ADDR"], int(given["MASTER_PORT"]), is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore(f"restart {restart}", store),  # type: ignore[attr-defined]
        rank=int(given["RANK"]),
        world_size=int(given["WORLD_SIZE"]),
    )


def over_ranks(loss: nn.Module) -> bool:
    """Make a loss that of all ranks' samples together; whether logits must be gathered for that.

    The losses of this library add up their counts, or gather what they rank, by themselves. Of any other loss nothing
    is known, not even that it is a mean: it is given all ranks' logits, and then those of this library in it must not
    add up again.
    """
    gathers = not _adds_up(loss)
    for module in loss.modules():
        if hasattr(module, "sync"):
            module.sync = not gathers  # type: ignore[assignment]
    return gathers


def _adds_up(loss: nn.Module) -> bool:
    if isinstance(loss, AugmentedLagrangian):
        return all(map(_adds_up, (loss.objective, *loss.constraints)))
    if isinstance(loss, Mix):
        return all(map(_adds_up, loss.losses))
    if isinstance(loss, Constraint):
        return not isinstance(loss, FunctionConstraint)  # of a user's function only a mean over ranks could be taken
    return hasattr(loss, "sync")


def gathered(logits: Tensor, batch: Batch) -> tuple[Tensor, Batch]:
    """All ranks' logits, with the gradient that DistributedDataParallel needs, and all but the inputs of the batch."""
    parts = (batch.y, batch.weight, batch.index, batch.group)
    rest = [None if part is None else gather_over_ranks(part) for part in parts]
    return gather_over_ranks(logits), Batch(None, *rest)  # type: ignore[arg-type]
