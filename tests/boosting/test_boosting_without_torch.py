"""Objectives and evaluations where torch is not installed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from metricfit.boosting import eval_metric, objective
from metricfit.steps import Identity

CODE = """
import json, sys
sys.modules["torch"] = None
import numpy as np
from metricfit.boosting import eval_metric, objective
from metricfit.metrics import cost_matrix
rng = np.random.default_rng(0)
found = {}
for classes in (2, 3):
    y, z, w = rng.integers(0, classes, 40), rng.normal(size=(40, classes) if classes > 2 else 40), rng.random(40)
    for name in ("f1", "mcc", "2*tp/(2*tp + fp + fn)"):
        made = objective(name)
        value = eval_metric(name)(y, z, w)[1]
        found[f"{name} {classes}"] = [made(y, z, w)[0].ravel().tolist(), value]
found["kappa"] = eval_metric("weighted_kappa(power=2)")(y, z)[1]
try:
    objective(cost_matrix([[0, 1, 2], [1, 0, 1], [2, 1, 0]]))(y, z)
except ModuleNotFoundError as error:
    found["message"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def without_torch():
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_results_are_those_with_torch(without_torch):
    """With torch, a step that is given, such as Identity, is differentiated by torch."""
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        y, z, w = rng.integers(0, classes, 40), rng.normal(size=(40, classes) if classes > 2 else 40), rng.random(40)
        for name in ("f1", "mcc", "2*tp/(2*tp + fp + fn)"):
            gradient, value = without_torch[f"{name} {classes}"]
            by_torch = objective(name, step=Identity())
            np.testing.assert_allclose(gradient, by_torch(y, z, w)[0].ravel(), rtol=1e-9, atol=1e-12)
            assert value == pytest.approx(eval_metric(name)(y, z, w)[1], rel=1e-9)
    assert without_torch["kappa"] == pytest.approx(eval_metric("weighted_kappa(power=2)")(y, z)[1])


def test_what_needs_torch_says_so(without_torch):
    assert "needs torch, which is not installed: pip install metricfit[torch]" in without_torch["message"]
