"""A type checker finds the mistakes of a user's script."""

import subprocess
import sys
from pathlib import Path

import pytest

import metricfit

pytest.importorskip("mypy")
pytestmark = pytest.mark.slow  # mypy reads torch

CORRECT = """
from typing import Any

import torch
from torch import Tensor
from metricfit import Counts, MetricLoss, get_metric, metric, metrics

counts = Counts.hard(torch.tensor([1.0]), torch.tensor([1]), task="binary")
value: Tensor = metrics.f1(counts)
per_class: metrics.Metric = metrics.fbeta(beta=[1, 2.0])
one: metrics.Metric = metrics.jaccard
bound: metrics.Requirement = metrics.recall[1] >= 0.9
average: Tensor = metrics.averaged(metrics.f1, counts, "micro")
loss = MetricLoss(metrics.fbeta(2), task="multilabel", average="macro")
threshold = get_metric("f1").name.upper()

@metric
def lift(c: Counts) -> Any:
    return c.tp * c.n / (c.predicted * c.positives)

@metric(minimize=True)
def scaled(c: Counts, k: float) -> Any:
    return k * c.fp / c.n

mine: metrics.Metric = scaled(k=2)
also_mine: Tensor = lift(counts)
"""

MISTAKES = {
    "metrics.f11(counts)": "attr-defined",
    'metrics.fbeta(beta="2")': "arg-type",
    "metrics.fbeta(gamma=2)": "call-arg",
    "metrics.f1.nam": "attr-defined",
    'metrics.averaged(metrics.f1, counts, "mean")': "arg-type",
    'Counts.hard(torch.zeros(1), torch.zeros(1), task="two classes")': "arg-type",
    'scaled(k="2")': "arg-type",
}


def check(folder: Path, script: str) -> list[str]:
    path = folder / "script.py"
    path.write_text(script)
    source = str(Path(metricfit.__file__).parents[1])
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", path.name]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=folder, env={"MYPYPATH": source, "PATH": ""}
    )
    return [line for line in result.stdout.splitlines() if line.startswith("script.py:") and ": error: " in line]


def test_correct_use_passes_and_mistakes_are_found(tmp_path):
    assert check(tmp_path, CORRECT) == []
    lines = len(CORRECT.splitlines())
    errors = check(tmp_path, CORRECT + "\n".join(MISTAKES) + "\n")
    for number, (mistake, code) in enumerate(MISTAKES.items(), lines + 1):
        assert any(error.startswith(f"script.py:{number}:") and f"[{code}]" in error for error in errors), mistake
