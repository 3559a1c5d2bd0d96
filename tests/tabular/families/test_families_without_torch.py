"""All families but networks are fitted, combined, stored and restored where torch is not installed."""

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
from metricfit.metrics import get_metric
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.families.choice import make_families
from metricfit._schema import read, write
from metricfit.tabular.families.family import Deadline, Features, FittedModel, TrainingRows
from metricfit.tabular.storage import Folder
from metricfit.tabular.out_of_fold import fit_families
from metricfit.tabular.ensemble import Selection

metric = get_metric("f1")
rng = np.random.default_rng(0)
for classes in (2, 3):
    x = rng.normal(size=(150, 4))
    y = np.digitize(x[:, 0] + 0.3 * rng.normal(size=150), [0.5, 1.0][: classes - 1])
    rows = TrainingRows(Features(TableEncoder().fit(x)), y, None, classes)
    folds = np.arange(150) % 2
    splits = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(2)]
    families = make_families(["auto", "boosting_metric", "in_context"], metric=metric, average="macro", requirements=())
    results, left_out = fit_families(families, rows, splits, seed=0, jobs=1, deadline=Deadline())
    for result in results:
        folder = Folder(columns=4, classes=classes)
        again = read(FittedModel, write(FittedModel, result.model, "model", folder), "model", folder)
        np.testing.assert_array_equal(again.logits(rows.features), result.model.logits(rows.features))
    weights = Selection(y, None, metric, "macro").weights([result.logits for result in results])
    print(classes, [result.name for result in results], len(left_out), round(weights.sum(), 6))
try:
    make_families("network", metric=metric, average="macro", requirements=())
except ModuleNotFoundError as error:
    print(error)
"""
NAMES = ["linear", "boosting_small", "extra_trees", "boosting", "kernel", "boosting_metric"]


def test_families_work_and_networks_say_what_to_install():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        f"2 {[*NAMES[:-1], 'in_context', NAMES[-1]]} 0 1.0",
        f"3 {NAMES} 1 1.0",  # the network is for two classes
        "the family 'network' needs torch, which is not installed: pip install metricfit[torch]",
    ]
