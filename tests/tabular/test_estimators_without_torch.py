"""The estimators fit, decide, explain, write pages, are saved and loaded where torch is not installed."""

import subprocess
import sys

CODE = """
import sys


class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("torch is not installed", name="torch")


sys.meta_path.insert(0, NoTorch())
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

from metricfit import MetricClassifier, TunedDecisionClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3))
folder = Path(tempfile.mkdtemp())


def check_saved(model, name):
    model.save(folder / name)
    again = type(model).load(folder / name)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.value_ == model.value_


for y in ((X[:, 0] > 1).astype(int), np.digitize(X[:, 0], [-0.5, 0.5])):
    model = MetricClassifier("f1", models=["linear", "boosting_small"], random_state=0).fit(X, y)
    check_saved(model, f"ensemble-{y.max()}")
    model.importance(X, y, out_of_fold=True, repeats=1)
    model.report(folder / "page.html")
    model.rethreshold(prevalence="estimate", X=X).rethreshold().score(X, y)
    if y.max() == 1:
        model.refer(0.1).row_thresholds(X)
        assert len(model.curve_.threshold)
    tuned = TunedDecisionClassifier(LogisticRegression(), "mcc", random_state=0).fit(X, y)
    tuned.worst(X, y, out_of_fold=True)
    check_saved(tuned, f"tuned-{y.max()}")
labels = TunedDecisionClassifier(MultiOutputClassifier(LogisticRegression()), random_state=0)
check_saved(labels.fit(X, (X[:, :2] > 0).astype(int)), "labels")
several = X.repeat(3, axis=0) + 0.1 * rng.normal(size=(720, 3))
certified = MetricClassifier(
    "precision", models=["linear"], subject_to="recall >= 0.6", confidence=0.8, calibration=0.4, random_state=0
)
print(certified.fit(several, (X[:, 0] > 1).repeat(3)).certificate_, "torch" in sys.modules)
"""


def test_the_estimators_need_no_torch():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "guaranteed False\n"
