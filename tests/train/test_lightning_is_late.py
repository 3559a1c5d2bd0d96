"""lightning-fabric, which takes seconds to import, is loaded only for several devices and for other precisions."""

import subprocess
import sys

POPULATION = """
import sys, torch
from metricfit.losses import MetricLoss
from metricfit.train import Hardware, fit
from metricfit_papers.populations import fit_population
x, on_cpu = torch.randn(32, 2), Hardware(accelerator="cpu")
fit_population([torch.nn.Linear(2, 1)], (x, x[:, 0] > 0), MetricLoss("f1"), epochs=1, device="cpu", progress=False)
fit(torch.nn.Linear(2, 1), (x, x[:, 0] > 0), MetricLoss("f1"), epochs=1, hardware=on_cpu, progress=False)
assert "lightning_fabric" not in sys.modules
"""
WITHOUT = """
import sys, torch
sys.modules["lightning_fabric"] = None
from metricfit.losses import MetricLoss
from metricfit.train import Hardware, fit
x, mixed = torch.randn(32, 2), Hardware(precision="bf16-mixed")
fit(torch.nn.Linear(2, 1), (x, x[:, 0] > 0), MetricLoss("f1"), epochs=1, hardware=mixed, progress=False)
"""


def run(script: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)


def test_one_device_and_populations_need_no_lightning():
    result = run(POPULATION)
    assert result.returncode == 0, result.stderr


def test_mixed_precision_without_it_says_what_to_install():
    assert (
        "metricfit.train needs lightning_fabric, which is not installed: pip install metricfit[torch]"
        in run(WITHOUT).stderr
    )
