"""The public names are a contract: a change here is a change for everyone outside."""

import importlib
import json
import subprocess
import sys

import pytest

import metricfit
from metricfit.losses.base import BatchLoss

NAMES = {
    "metricfit": """
        AugmentedLagrangian Counts MetricClassifier MetricLoss MetricfitError RankingConstraint RunningCounts
        SurrogateFBetaLoss TunedDecisionClassifier __version__ best_threshold boosting compare constraints curves decide
        evaluate fit get_metric losses metric metrics parse_requirement score scorer stats steps tabular train
    """,
    "metricfit.boosting": """
        eval_metric objective prior_logits
    """,
    "metricfit.decide": """
        Calibration CostDecision Decision DecisionModule Evidence GroupThresholds LabelDecision OffsetDecision Referral
        RowCostDecision ThresholdDecision TopLabelsDecision best_decision best_group_thresholds best_referral
        estimate_prevalence per_image per_row
    """,
    "metricfit.constraints": """
        AugmentedLagrangian Constraint FunctionConstraint MeasuredConstraint RankingConstraint RequirementConstraint
        augmented_term equality_term next_multiplier
    """,
    "metricfit.curves": """
        BestOffsets BestThreshold BestThresholds InfeasibleError InfeasibleWarning PrecisionRecallCurve
        RequirementValue RocCurve UndefinedRankingWarning
        auroc average_precision best_offsets best_threshold best_thresholds brier_score
        expected_calibration_error fpr_at_fn fpr_at_tpr partial_auroc precision_recall roc
    """,
    "metricfit.data": """
        folds read_table split
    """,
    "metricfit.tabular": """
        Comparison ComparisonRow Examination Finding Importance InContext MetricClassifier Network
        TunedDecisionClassifier Watch WorstRows examine_table
    """,
    "metricfit.losses": """
        AveragePrecisionLoss ClassBalanced EffectiveNumberBCELoss FocalLoss LDAMLoss LogitAdjustedLoss LovaszLoss
        MAELoss MBAUCLoss MSFELoss MarginLoss MetricLoss Mix PairHingeLoss PairSquareLoss RunningCounts SoftAUROCLoss
        SurrogateFBetaLoss WMWLoss WeightedBCELoss
    """,
    "metricfit.metrics": """
        Accumulator BinnedScores MatrixMetric Metric PerLabel RankingMetric Requirement ThresholdGrid accuracy auroc
        auroc_ovo average_precision averaged balanced_accuracy confusion_matrix cost cost_matrix f1 fbeta fnr
        fowlkes_mallows fpr get_measure get_metric gmean informedness jaccard kappa markedness matrix_metric mcc metric
        names npv p4 parse_requirement precision ratio recall root selection_rate specificity tversky weighted_kappa
    """,
    "metricfit.models": """
        PerMember TabM embedded_mlp mlp piecewise_linear quantile_bins
    """,
    "metricfit.report": """
        ComparisonRow FirstScreen Report ScoredMethod Section comparison learning_curves models multiclass render scores
        write
    """,
    "metricfit.runs": """
        Cell CellError Progress run
    """,
    "metricfit.stats": """
        BootstrapDifference BootstrapResult Comparison DeLongInterval DeLongTest Interval Probabilities
        SplitComparison bootstrap bootstrap_difference compare compare_splits delong_interval delong_test
        holm
    """,
    "metricfit.steps": """
        Annealed Identity Linear RaisedCosine Sigmoid Step StraightThrough ThreePoint
    """,
    "metricfit.train": """
        Batches Callback CheckpointWarning Checkpoints Evaluation FitResult Hardware History Measured Monitor
        NotFiniteError Plan ProgressBar RequirementResult Stage Steps TensorBoard UnmetRequirementWarning evaluate fit
        recipes start_at_prior
    """,
}
PINNED = {module: names.split() for module, names in NAMES.items()}


@pytest.mark.parametrize("module", PINNED)
def test_exported_names_are_pinned_and_exist(module):
    loaded = importlib.import_module(module)
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    assert set(PINNED[module]) <= set(loaded.__all__)
    for name in PINNED[module]:
        assert getattr(loaded, name) is not None


@pytest.mark.parametrize("module", PINNED)
def test_what_is_added_is_a_metric_a_step_or_a_loss(module):
    """These may be added without a word here; any other new name is a decision."""
    loaded = importlib.import_module(module)
    added = [getattr(loaded, name) for name in set(loaded.__all__) - set(PINNED[module])]
    registered = [*map(metricfit.metrics.__dict__.get, metricfit.metrics.names())]
    kinds = (metricfit.steps.Step, BatchLoss)
    assert all(thing in registered or (isinstance(thing, type) and issubclass(thing, kinds)) for thing in added)


@pytest.mark.parametrize("module", PINNED)
def test_every_public_object_has_a_docstring(module):
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    bare = [name for name in loaded.__all__ if name != "__version__" and not getattr(loaded, name).__doc__]
    assert not bare


FRESH = """
import json, sys, torch
before = set(sys.modules)
import metricfit
metricfit.MetricLoss, metricfit.best_threshold, metricfit.constraints, metricfit.steps
print(json.dumps({"new": sorted(set(sys.modules) - before)}))
"""


@pytest.fixture(scope="module")
def fresh():
    """What a fresh interpreter, with torch loaded, has after ``import metricfit`` and the use of its losses."""
    result = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=300, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "heavy", ["sklearn", "scipy", "pandas", "matplotlib", "lightning_fabric", "skrub", "typer", "rich"]
)
def test_the_import_loads_no_optional_package(fresh, heavy):
    assert "metricfit.losses.metric_loss" in fresh["new"]
    assert heavy not in fresh["new"]


def test_the_import_does_not_start_the_compiler(fresh):
    """torch._dynamo takes about as long to import as torch itself; those who compile pay for it when they do."""
    assert "torch._dynamo" not in fresh["new"]


LIGHT = """
import sys
from metricfit.cli import main
try:
    main()
except SystemExit as ended:
    print(ended.code, sorted({"torch", "pandas", "sklearn"} & set(sys.modules)))
"""


def test_help_does_not_wait_for_torch():
    """``metricfit --help`` took two seconds, nearly all of them for imports that it does not need."""
    command = [sys.executable, "-c", LIGHT, "--help"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert result.stdout.endswith("0 []\n")


def test_there_is_a_version():
    assert metricfit.__version__.split(".")[0].isdigit()
