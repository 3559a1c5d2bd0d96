"""What it takes to start: processor seconds and memory of fresh interpreters that import, or run a short command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping

from benchmarks.tables import Line, Setting, Table

REPEATS = 5
LIBRARIES, TUNED, CLASSIFIER = "the libraries for tables", "TunedDecisionClassifier", "MetricClassifier"
IMPORTS = {
    LIBRARIES: "import numpy, scipy, pandas, sklearn, lightgbm",
    TUNED: "import metricfit; metricfit.TunedDecisionClassifier",
    CLASSIFIER: "import metricfit; metricfit.MetricClassifier",
}
HELP, METRICS = "fit --help", "metrics"
RUN = "import contextlib, sys; from metricfit.cli import main; sys.argv[1:] = {}.split()\n"
RUN += "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None): main()"
COMMANDS = {name: RUN.format(repr(name)) for name in (HELP, METRICS)}
#: The kernel's own peak of an interpreter; what ``resource`` reports begins at the memory of the process before it.
MEASURED = """
import json, time, pathlib
peak = pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(json.dumps([time.process_time(), 1024 * int(peak)]))
"""


def interpreters(codes: Mapping[str, str]) -> Callable[[Setting], list[Line]]:
    """Return a function that runs each code in fresh interpreters, in turns, and keeps the least of each."""

    def measure(setting: Setting) -> list[Line]:
        rounds = 1 if setting.tiny else REPEATS
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in codes}
        for _ in range(rounds):
            for name, code in codes.items():
                command = [sys.executable, "-c", f"{code}\n{MEASURED}"]
                ended = subprocess.run(command, capture_output=True, text=True, check=True)
                found[name].append(tuple(json.loads(ended.stdout.splitlines()[-1])))
        least = {name: [min(values) for values in zip(*pairs, strict=True)] for name, pairs in found.items()}
        return [Line(name, seconds, peak, repeats=rounds) for name, (seconds, peak) in least.items()]

    return measure


WHY_FEWER = "an import takes seconds"
TABLES = (
    Table("imports", "importing, processor seconds and peak memory", "cpu", interpreters(IMPORTS), WHY_FEWER),
    Table("commands", "short commands, processor seconds", "cpu", interpreters(COMMANDS), WHY_FEWER),
)
