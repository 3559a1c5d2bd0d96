"""The public names are a contract: a change here is a change for everyone outside."""

import importlib
import json
import subprocess
import sys

import pytest

import metricfit

PINNED = {
    "metricfit": [
        *("AugmentedLagrangian", "Counts", "MetricLoss", "RankingConstraint", "RunningCounts", "SurrogateFBetaLoss"),
        *(
            "__version__",
            "constraints",
            "curves",
            "get_metric",
            "losses",
            "metric",
            "metrics",
            "parse_requirement",
            "steps",
        ),
    ],
    "metricfit.curves": [
        *(
            "BestOffsets",
            "BestThreshold",
            "InfeasibleError",
            "PrecisionRecallCurve",
            "RocCurve",
            "auroc",
            "average_precision",
        ),
        *("best_offsets", "best_threshold", "fpr_at_fn", "fpr_at_tpr", "precision_recall", "roc"),
    ],
    "metricfit.steps": ["Annealed", "Identity", "Linear", "RaisedCosine", "Sigmoid", "Step", "StraightThrough"],
    "metricfit.losses": [
        *("ClassBalanced", "DeadGradientWarning", "EffectiveNumberBCELoss", "FocalLoss", "MAELoss", "MSFELoss"),
        *("MarginLoss", "MetricLoss", "Mix", "RunningCounts", "SurrogateFBetaLoss", "SurrogateTverskyLoss"),
        *("AdditiveLoss", "MBAUCLoss", "PairHingeLoss", "SoftAUROCLoss", "WMWLoss", "WeightedBCELoss"),
        "backward_in_chunks",
    ],
    "metricfit.metrics": [
        *("Metric", "MetricFactory", "Requirement", "accuracy", "balanced_accuracy", "cost", "f1", "fbeta", "fnr"),
        *("fowlkes_mallows", "fpr", "get_metric", "gmean", "informedness", "jaccard", "kappa", "markedness", "mcc"),
        *("metric", "names", "npv", "p4", "parse_requirement", "precision", "ratio", "recall", "root"),
        *("averaged", "confusion_matrix", "share", "specificity", "tversky"),
    ],
    "metricfit.constraints": [
        *("AugmentedLagrangian", "Constraint", "FunctionConstraint", "RankingConstraint", "RequirementConstraint"),
        *("augmented_term", "equality_term", "next_multiplier"),
    ],
    "metricfit.train": ["start_at_prior"],
}


@pytest.mark.parametrize("module", PINNED)
def test_names_are_pinned_and_there(module):
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == sorted(PINNED[module])
    for name in PINNED[module]:
        assert getattr(loaded, name) is not None


@pytest.mark.parametrize("module", PINNED)
def test_every_public_thing_has_a_docstring(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    bare = [name for name in loaded.__all__ if name != "__version__" and not getattr(loaded, name).__doc__]
    assert not bare


FRESH = """
import json, sys, torch
before = set(sys.modules)
import metricfit
print(json.dumps({"new": sorted(set(sys.modules) - before)}))
"""


@pytest.fixture(scope="module")
def fresh():
    """What a fresh interpreter, with torch loaded, has after ``import metricfit``."""
    result = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=300, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize("heavy", ["sklearn", "scipy", "pandas", "matplotlib", "lightning_fabric", "typer", "rich"])
def test_the_import_takes_no_extra_with_it(fresh, heavy):
    assert "metricfit.losses.metric_loss" in fresh["new"]
    assert heavy not in fresh["new"]


def test_the_import_does_not_start_the_compiler(fresh):
    """torch._dynamo takes about as long to import as torch itself; those who compile pay for it when they do."""
    assert "torch._dynamo" not in fresh["new"]


def test_there_is_a_version():
    assert metricfit.__version__.split(".")[0].isdigit()
