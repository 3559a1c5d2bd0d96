"""The extra is an extra: without it the library imports, and the estimator says what to install."""

import subprocess
import sys

import pytest

from metricfit.tabular import MetricClassifier

WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
import metricfit
try:
    metricfit.MetricClassifier
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize("missing", ["sklearn", "pandas"])
def test_what_to_install_is_said(missing):
    run = subprocess.run([sys.executable, "-c", WITHOUT, missing], capture_output=True, text=True, check=True)
    expected = f"metricfit.MetricClassifier needs {missing}, which is not installed: pip install metricfit[tabular]"
    assert run.stdout.strip() == expected


def test_predicting_needs_neither_lightning_nor_skrub(quick, blobs, tmp_path):
    X, y = blobs
    MetricClassifier(**quick).fit(X, y).save(tmp_path / "model")
    code = """
import sys, numpy as np
from metricfit import MetricClassifier
print(MetricClassifier.load(sys.argv[1]).predict(np.zeros((2, 4))).shape)
print(sorted({"lightning_fabric", "skrub", "matplotlib"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
    assert run.stdout.split("\n")[:2] == ["(2,)", "[]"]
