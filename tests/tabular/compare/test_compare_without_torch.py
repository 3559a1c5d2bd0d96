"""compare without networks and doctor work where torch is not installed."""

import subprocess
import sys

CODE = """
import sys


class NoTorch:  # SciPy asks modules of sys.modules for their tensors, so that None there is an error
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("torch is not installed", name="torch")


sys.meta_path.insert(0, NoTorch())
import numpy as np
import pandas as pd
from sklearn.naive_bayes import GaussianNB
from typer.testing import CliRunner

import metricfit
from metricfit.cli.app import app
from metricfit.tabular.doctor.examination import examine_table

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
for classes in (2, 3):
    y = np.array(["late", "never", "on time"])[np.digitize(X["a"] + rng.normal(size=120), [0.5, 1.2][: classes - 1])]
    asked = "recall['never'] >= 0.9" if classes > 2 else None
    found = examine_table(X.assign(y=y, id=range(120)), "y", subject_to=asked)
    print([each.kind for each in found.findings])
    wanted = ["metricfit", "boosted trees on the metric", ("mine", GaussianNB())]
    result = metricfit.compare(X, y, "f1", methods=wanted, predictions={"theirs": y}, folds=2)
    print(len(result.rows), result.report("page.html").is_file(), len(result._repr_html_()) > 500)
X.assign(y=y).to_csv("t.csv", index=False)
options = ["--target", "y", "--method", "logistic regression", "--folds", "2", "--quiet", "--json"]
print(CliRunner().invoke(app, ["compare", "t.csv", *options]).exit_code)
print(CliRunner().invoke(app, ["doctor", "t.csv", "--target", "y"]).exit_code)
try:
    metricfit.compare(X, y, "f1", methods=["network (cross-entropy)"], folds=2)
except Exception as error:
    print(error)
"""


def test_compare_and_doctor_need_no_torch(tmp_path):
    run = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    *lines, error = run.stdout.splitlines()
    assert lines == ["['identifier']", "9 True True", "['too_few_rows', 'identifier']", "8 True True", "0", "0"]
    assert "needs torch" in error
    assert "pip install metricfit[torch]" in error
