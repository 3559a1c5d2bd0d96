"""How many threads torch uses; torch is not imported for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def thread_count() -> int:
    """Return how many threads torch uses, or would use if it were imported."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) else cores


def set_threads(number: int) -> None:
    """Let torch use this many threads, if it is imported."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(number)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for a while.

    Thousands of operations on small tensors gain nothing from more threads. On a busy machine they are up to seven
    times as slow with two threads, which wait for each other.

    Example:
        >>> with one_thread():
        ...     thread_count()
        1
    """
    threads = thread_count()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(threads)
