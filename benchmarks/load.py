"""The load of the machine by other processes during a measurement.

The load average counts the measured work too, which alone keeps every core busy. So beside the averages before and
after, what other processes used of our cores in between is worked out where the kernel tells: the cores' busy time
less that of this process, of the children it waited for, and of the living processes of its group, such as the workers
of a pool.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

CALM_LOAD = 0.75  # a core: a load average of 1.5 on two cores, before anything of ours ran
CALM_OTHERS = 0.25  # a core: half a core of two taken by others


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float | None:
    """Return the load average of the last minute; above the number of cores, measurements are disturbed."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def is_high(average: float | None) -> bool:
    """Check whether a load average from before our measurements shows that the machine is busy."""
    return average is not None and average > CALM_LOAD * cores()


class Watch:
    """Measures the load from its construction to the call of ``result``."""

    def __init__(self) -> None:
        self._before = load()
        self._start = _moment()

    def result(self) -> dict[str, Any]:
        """Return the loads before and after, the number of cores that other processes used, and whether it is high."""
        others = _others(self._start, _moment())
        under_load = is_high(self._before) if others is None else others > CALM_OTHERS * cores()
        return {"loads": [self._before, load()], "others": others, "under_load": under_load}


def _moment() -> tuple[float, float, float] | None:
    """Return the time, the busy seconds of our cores, and the seconds that this process used."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    busy = 0
    for line in lines:
        name, *counts = line.split()
        if name in ours:
            user, nice, system, _idle, _waiting, *rest = map(int, counts)
            busy += user + nice + system + sum(rest[:3])  # interrupts, and what the host took for other guests
    used = os.times()
    waited_for = used.user + used.system + used.children_user + used.children_system
    return time.monotonic(), busy / ticks, waited_for + _group_ticks() / ticks


def _group_ticks() -> int:
    """Return the clock ticks that the other living processes of our process group, and their children, used."""
    total = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) == os.getpgrp() and file.parent.name != str(os.getpid()):
            total += sum(map(int, fields[11:15]))  # its user and system time, and that of children it waited for
    return total


def _others(start: tuple[float, float, float] | None, end: tuple[float, float, float] | None) -> float | None:
    if start is None or end is None or end[0] == start[0] or end[1] == start[1]:
        return None
    seconds, busy, used = (b - a for a, b in zip(start, end, strict=True))
    return round(max(0.0, busy - used) / seconds, 2)
