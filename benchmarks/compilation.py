"""What torch.compile takes for one loss on a CPU: processor seconds of a fresh interpreter with an empty cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.tables import Line, Setting, Table

#: Each is compiled after ``BCEWithLogitsLoss``, so that torch's own start is not counted.
LOSSES = {
    "BCEWithLogitsLoss": "torch.nn.BCEWithLogitsLoss(reduction='sum')",
    'MetricLoss("f1")': "MetricLoss('f1')",
    'MetricLoss("mcc")': "MetricLoss('mcc')",
    'MetricLoss("f1"), Sigmoid': "MetricLoss('f1', step=steps.Sigmoid(10))",
    'MetricLoss("f1"), multiclass': "MetricLoss('f1')",
    "FocalLoss": "losses.FocalLoss(2.0)",
    "PairHingeLoss": "losses.PairHingeLoss()",
}
CODE = """
import json, resource, sys, warnings
import torch
from metricfit import MetricLoss, losses, steps
warnings.simplefilter("ignore")

def processor_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

def compile_and_run(loss, classes):
    logits = torch.randn((64, classes) if classes else 64, requires_grad=True)
    target = torch.randint(0, classes or 2, (64,))
    torch.compile(loss)(logits, target if classes else target.float()).backward()

compile_and_run(torch.nn.BCEWithLogitsLoss(), 0)
before = processor_seconds()
compile_and_run({loss}, {classes})
print(json.dumps(processor_seconds() - before))
"""


def measure(setting: Setting) -> list[Line]:
    """Return the processor seconds of each loss; in a tiny run of the first two alone."""
    lines = []
    for name, loss in list(LOSSES.items())[: 2 if setting.tiny else None]:
        code = CODE.replace("{loss}", loss).replace("{classes}", "5" if "multiclass" in name else "0")
        with tempfile.TemporaryDirectory() as cache:
            settings = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", code]
            ended = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | settings)
        lines.append(Line(name, json.loads(ended.stdout.splitlines()[-1]), repeats=1))
    return lines


TABLES = (
    Table(
        "compilation", "compiling one loss, processor seconds, CPU", "cpu", measure, "it takes seconds", is_long=True
    ),
)
