"""Metrics, curves and statistics of arrays without torch: imported, computed, and the same as with torch loaded."""

import json
import subprocess
import sys

import pytest

BLOCK = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""

COMPUTE = """
import json
import warnings

import numpy as np

from metricfit import Counts, best_threshold, curves, get_metric, metrics, parse_requirement, score, stats
from metricfit.stats.resampling import resampled_counts

rng = np.random.default_rng(0)
y = (rng.random(300) < 0.3).astype(int)
s = np.round(0.5 * rng.random(300) + 0.3 * y, 2)
w = rng.random(300)
P, c = rng.dirichlet([1, 1, 1], 300), rng.integers(0, 3, 300)
L = (P > 0.3).astype(int)
found = {}
for name in metrics.names():
    metric = {"fbeta": "fbeta(beta=2)", "tversky": "tversky(alpha=0.3, beta=0.7)", "cost": "cost(fp=1, fn=5)"}.get(name)
    if name in ("cost_matrix", "weighted_kappa"):
        continue
    metric = get_metric(metric or name)
    found[f"binary {name}"] = metric(Counts.from_labels(s > 0.4, y, weight=w)).tolist()
    found[f"several {name}"] = metric(Counts.from_labels(P.argmax(1), c, num_classes=3)).tolist()
    found[f"labels {name}"] = metrics.averaged(metric, Counts.hard(np.log(P / 0.3), L)).tolist()
    found[f"best {name}"] = list(best_threshold(s, y, metric))
    found[f"best weighted {name}"] = list(best_threshold(s, y, metric, weight=w))
found["required"] = list(best_threshold(s, y, "precision", subject_to=["recall >= 0.5", "fpr <= 0.3"]))
found["columns"] = [column.tolist() for column in curves.best_thresholds(P, L, "f1")]
found["roc"] = [column.tolist() for column in curves.roc(s, y, w)]
found["precision recall"] = [column.tolist() for column in curves.precision_recall(s, y)]
found["areas"] = [curves.auroc(s, y), curves.average_precision(s, y, w), curves.fpr_at_tpr(s, y, 0.9)]
found["areas of classes"] = [curves.auroc(P, c), curves.auroc(P, c, versus="one"), curves.average_precision(P, c)]
found["areas of labels"] = curves.auroc(P, L, w, average=None).tolist()
found["matrix"] = [
    score(np.log(P), c, metrics.weighted_kappa(power=2)),
    score(np.log(P), c, metrics.cost_matrix([[0, 1, 2], [1, 0, 1], [5, 1, 0]])),
    score(np.log(P), c, "auroc"),
    score(np.log(P), c, "f1", zero_division="skip"),
    metrics.mcc.score(c, P.argmax(1)),
]
groups = Counts.hard(s - 0.4, y, group=c, groups=3)
found["gap"] = metrics.recall.gap(3)(groups).tolist()
images = Counts.hard(rng.normal(size=(4, 3, 5, 5)), rng.integers(0, 3, (4, 5, 5)), per_image=True)
found["images"] = metrics.averaged(metrics.jaccard, images).tolist()
found["written"] = get_metric("sqrt(tp/(tp + fp) * tp/(tp + fn))")(groups).tolist()
found["holds"] = parse_requirement("recall == 0.5 +- 0.1").holds(groups).tolist()
found["bootstrap"] = [repr(stats.bootstrap(s, y, name, resamples=200)) for name in ("f1", "auroc", "average_precision")]
found["difference"] = repr(stats.bootstrap_difference(s, P[:, 0], y, "f1", threshold=0.4, resamples=200))
found["delong"] = [repr(stats.delong_interval(s, y)), repr(stats.delong_test(s, P[:, 0], y))]
found["resampled"] = metrics.f1(resampled_counts(P.argmax(1), c, 3)).sum(0).tolist()
print(json.dumps(found))
"""


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def test_values_of_arrays_are_the_same_with_and_without_torch():
    without = json.loads(run(BLOCK + COMPUTE + "assert 'torch' not in sys.modules\n"))
    loaded = json.loads(
        run("import warnings\nwith warnings.catch_warnings(action='ignore'):\n    import torch\n" + COMPUTE)
    )
    assert len(without) > 100
    assert without == loaded


@pytest.mark.parametrize("name", ["Accumulator", "BinnedScores"])
def test_streams_of_batches_say_that_they_need_torch(name):
    code = BLOCK + (
        "import metricfit.metrics\n"
        f"try:\n    metricfit.metrics.{name}\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    assert (
        run(code).strip()
        == f"metricfit.metrics.{name} needs torch, which is not installed: pip install metricfit[torch]"
    )
