"""The walk of ``make without-torch`` on this environment's packages, with torch hidden."""

import subprocess
import sys

import pytest

HIDDEN = """
import sys, runpy
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")
sys.meta_path.insert(0, NoTorch())
"""


@pytest.mark.parametrize(
    "code",
    [
        "import metricfit; metricfit.TunedDecisionClassifier",
        "import metricfit; metricfit.MetricClassifier",
        "import metricfit; metricfit.compare",
        "import metricfit; metricfit.stats.bootstrap",
        "import metricfit; metricfit.curves.auroc; metricfit.best_threshold",
        "import metricfit.export.onnx",
        "import metricfit.report",
        "import metricfit.boosting; metricfit.boosting.objective; metricfit.boosting.eval_metric",
        "from metricfit.cli import main",
    ],
)
def test_what_tables_need_is_imported_without_torch(code):
    ended = subprocess.run(
        [sys.executable, "-c", HIDDEN + code], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    "name", ["MetricLoss", "AugmentedLagrangian", "fit", "evaluate", "RunningCounts", "steps.Linear"]
)
def test_what_training_needs_says_what_to_install(name):
    ended = subprocess.run(
        [sys.executable, "-c", f"{HIDDEN}import metricfit\nmetricfit.{name}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "needs torch, which is not installed: pip install metricfit[torch]" in ended.stderr.splitlines()[-1]
