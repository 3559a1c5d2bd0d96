"""Times as minima of interleaved repeats, and peak memory beyond the inputs.

On a shared or throttled machine a median measures the neighbours. Candidates therefore take turns within one run,
and each is judged by its fastest turn: a disturbance of a round affects all its candidates.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from benchmarks.tables import Setting

Work = Callable[[], Any]


class Minima(NamedTuple):
    """The minimum seconds of each work, and the number of rounds."""

    seconds: dict[str, float]
    repeats: int


def interleaved_minima(
    works: Mapping[str, Work],
    device: str,
    setting: Setting,
    *,
    times: int = 1,
    warmup: int | None = None,
    fewest: int | None = None,
) -> Minima:
    """Measure the minimum seconds of each work over ``times`` the setting's repeats, in rounds in which all take turns.

    Rounds end early once they took the setting's budget of seconds, but not before the setting's fewest repeats;
    ``fewest`` replaces that number where a round takes long.
    """
    warmup = setting.warmup if warmup is None else warmup
    fewest = setting.fewest if fewest is None else min(fewest, setting.fewest)
    once = _seconds_on_cuda if device == "cuda" else _seconds_on_cpu
    best = dict.fromkeys(works, math.inf)
    for work in works.values():
        for _ in range(warmup):
            once(work)
    collecting = gc.isenabled()
    gc.disable()
    try:
        start, done, asked = time.monotonic(), 0, setting.repeats * times
        while done < asked and (done < fewest or time.monotonic() - start < setting.budget):
            for name, work in works.items():
                best[name] = min(best[name], once(work))
            done += 1
    finally:
        if collecting:
            gc.enable()
    return Minima(best, done)


def peak_bytes(work: Work, device: str) -> int:
    """Measure the peak memory of torch during a second call, beyond the memory before it."""
    work()
    return _peak_bytes_on_cuda(work) if device == "cuda" else _peak_bytes_on_cpu(work)


def _seconds_on_cpu(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _seconds_on_cuda(work: Work) -> float:
    """Measure the time between two events of the stream, including launches that the GPU had to wait for."""
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
