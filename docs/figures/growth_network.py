"""The time of a message between many processes, on paper: ring and tree algorithms, latency and bandwidth assumed."""

from __future__ import annotations

import math

LATENCY = 10e-6  # seconds per step: a message between two machines, with the launch of the operation
BANDWIDTH = 25e9  # bytes per second: a link of 200 Gbit/s per process

DESCRIBED = (
    f"A step between two processes takes {LATENCY * 1e6:g} µs before the first byte arrives, and each process sends "
    f"and receives {BANDWIDTH / 1e9:g} GB/s (a link of 200 Gbit/s)."
)
SENT = "Messages of all processes are sent at the same time and do not slow each other down."
AHEAD = "Nothing is computed meanwhile, so these times are upper bounds for a loss that waits."


def seconds_of_message(operation: str, size: float, processes: int) -> float:
    """Return the seconds that a collective operation takes with the faster of two algorithms."""
    if operation == "all_reduce":
        return min(ring_all_reduce(size, processes), tree_all_reduce(size, processes))
    return ring_all_gather(size, processes)


def ring_all_reduce(size: float, processes: int) -> float:
    """2 (p - 1) steps of 1/p of the message each."""
    steps = 2 * (processes - 1)
    return steps * (LATENCY + size / processes / BANDWIDTH)


def tree_all_reduce(size: float, processes: int) -> float:
    """Up and down a binary tree, the whole message in every step."""
    return 2 * math.ceil(math.log2(processes)) * (LATENCY + size / BANDWIDTH)


def ring_all_gather(size: float, processes: int) -> float:
    """Every process receives the messages of all others, one per step."""
    return (processes - 1) * (LATENCY + size / BANDWIDTH)
