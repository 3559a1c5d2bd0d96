"""Times as minima of interleaved repeats, and peak memory beyond the inputs.

On a shared or throttled machine a median measures the neighbours. Candidates therefore take turns within one run,
and each is judged by its fastest turn: what disturbs one round disturbs all candidates of it.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

Work = Callable[[], Any]


def interleaved_minima(works: Mapping[str, Work], *, device: str, repeats: int, warmup: int = 3) -> dict[str, float]:
    """The fewest seconds each work took over ``repeats`` rounds in which all take turns."""
    once = _seconds_on_cuda if device == "cuda" else _seconds_on_cpu
    best = dict.fromkeys(works, math.inf)
    for work in works.values():
        for _ in range(warmup):
            once(work)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, work in works.items():
                best[name] = min(best[name], once(work))
    finally:
        if collecting:
            gc.enable()
    return best


def peak_bytes(work: Work, device: str) -> int:
    """The most memory torch held at one moment of a second call beyond what it held before it."""
    work()
    return _peak_bytes_on_cuda(work) if device == "cuda" else _peak_bytes_on_cpu(work)


def _seconds_on_cpu(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _seconds_on_cuda(work: Work) -> float:
    """Between two events of the stream: the launches that the GPU had to wait for are in it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def _peak_bytes_on_cuda(work: Work) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def _peak_bytes_on_cpu(work: Work) -> int:
    """From the profiler's record of allocations: torch's CPU allocator keeps no statistics of its own."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        work()
    events = profile.profiler.kineto_results.events() if profile.profiler else []
    held = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
