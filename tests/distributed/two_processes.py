"""Two processes on this machine that work as the ranks of one run, and what they found."""

import datetime
import multiprocessing
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2
LONGEST_WAIT = datetime.timedelta(seconds=40)


def found_by_ranks(work, folder):
    """What ``work(rank)`` returns on each rank, carried over in the folder; a function at a test module's top.

    The processes are forks of a server that has imported torch already, which a process of its own takes seconds for.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OMP_NUM_THREADS", "1")  # two processes with two threads each on two cores crawl
        multiprocessing.set_forkserver_preload(["torch.distributed", "metricfit.train", "pytest"])
        mp.start_processes(_of_rank, args=(work, str(folder)), nprocs=RANKS, start_method="forkserver")
    return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


def _of_rank(rank, work, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS, timeout=LONGEST_WAIT
    )
    found = work(rank)
    dist.barrier()  # a rank that leaves early takes the group down with it
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def flat_gradient(module):
    """All of a module's gradients in one row, a copy."""
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
