"""The resident memory of a piece of work, in a separate process.

The kernel keeps a process's peak, and the allocator what a work gave back, so two works in one process would share
theirs. The peak is read from ``/proc/self/status``, where it starts anew with the program: ``ru_maxrss`` of a child
starts at its parent's peak.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATUS = Path("/proc/self/status")


def extra_resident_bytes(module: str, function: str, *arguments: str | int, threads: int = 1) -> int:
    """Measure by how much a piece of work raises the peak resident memory of its process.

    ``function`` of ``module`` makes the inputs and returns a small work and the measured work. The small one runs
    first, so that the memory of libraries, threads and code is not counted.
    """
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    command = [sys.executable, "-m", "benchmarks.resident", module, function, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def _measure(module: str, function: str, arguments: str) -> int:
    small, work = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    small()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident
    before = _peak_bytes()
    work()
    return _peak_bytes() - before


def _peak_bytes() -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(_measure(*sys.argv[1:]))
