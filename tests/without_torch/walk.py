"""What a person with a table does, in an environment without torch: ``make without-torch`` runs this file.

It raises if any step imports torch, fails, or gives a value that another library's arithmetic does not confirm.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

import metricfit


def python_api(folder: Path, training: pd.DataFrame, test: pd.DataFrame) -> None:
    """Estimators, comparison, decisions, statistics and the export, from Python."""
    X, y = training.drop(columns="malignant"), training["malignant"].to_numpy()
    X_test, y_test = test.drop(columns="malignant"), test["malignant"].to_numpy()

    labels = (np.arange(len(y_test)) % 2).astype(int)
    counts = metricfit.Counts.from_labels(labels, y_test)
    assert isinstance(counts.tp, np.ndarray)
    assert np.isclose(float(metricfit.get_metric("f1")(counts).item()), f1_score(y_test, labels))

    model = metricfit.MetricClassifier("f1", models=["linear", "boosting"], random_state=0, n_jobs=1).fit(X, y)
    assert f1_score(y_test, model.predict(X_test)) > 0.9
    model.save(folder / "model")
    again = metricfit.MetricClassifier.load(folder / "model")
    assert (again.predict(X_test) == model.predict(X_test)).all()
    model.report(folder / "report.html")
    model.export_onnx(folder / "model.onnx")

    boosted = LGBMClassifier(n_estimators=40, n_jobs=1, verbose=-1, random_state=0)
    tuned = metricfit.TunedDecisionClassifier(boosted, "mcc", subject_to="recall >= 0.9", cv=3).fit(X, y)
    assert set(np.unique(tuned.predict(X_test))) <= {0, 1}

    comparison = metricfit.compare(training, "malignant", "f1", methods=["metricfit", ("mine", boosted)], folds=3)
    comparison.report(folder / "comparison.html")

    scores = model.predict_proba(X_test)[:, 1]
    threshold, value = metricfit.best_threshold(scores, y_test, "f1")
    assert np.isclose(float(value), f1_score(y_test, scores >= float(threshold)))
    result = metricfit.stats.bootstrap(scores, y_test, "f1", resamples=200)
    assert result.interval[0] <= result.value <= result.interval[1]


def commands(folder: Path, training: pd.DataFrame, test: pd.DataFrame) -> None:
    """The command line, each command in a process of its own."""
    training.to_csv(folder / "training.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)

    def run(*arguments: str) -> str:
        command = Path(sys.executable).with_name("metricfit")
        ended = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"metricfit {' '.join(arguments)}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    run("doctor", "training.csv", "--target", "malignant")
    goal = ("--target", "malignant", "--metric", "f1")
    run("fit", "training.csv", *goal, "--models", "linear,boosting", "--out", "fitted")
    run("predict", "fitted/model", "test.csv", "--out", "labels.csv")
    shown = run("evaluate", "fitted/model", "test.csv", "--target", "malignant", "--json")
    assert "f1" in json.dumps(json.loads(shown))
    run("export", "fitted", "--onnx", "fitted.onnx")
    run("metrics")


def main() -> None:
    """Run all steps and say that torch was not there."""
    if importlib.util.find_spec("torch"):
        raise SystemExit("torch is installed here; this walk shows that tables do without it")
    frame = load_breast_cancer(as_frame=True).frame
    frame["malignant"] = 1 - frame.pop("target")
    training, test = train_test_split(frame, test_size=0.3, stratify=frame["malignant"], random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        python_api(Path(folder), training, test)
        commands(Path(folder), training, test)
    ended = subprocess.run(
        [sys.executable, "-c", "import metricfit; metricfit.MetricLoss"], capture_output=True, text=True, check=False
    )
    assert "pip install metricfit[torch]" in ended.stderr
    assert "torch" not in sys.modules
    print("Tables without torch: estimators, compare, report, export and six commands ran.")


if __name__ == "__main__":
    main()
