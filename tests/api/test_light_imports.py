"""What importing loads: TunedDecisionClassifier needs little more than the libraries that its user has loaded."""

import json
import subprocess
import sys

import pytest

LIBRARIES = "import numpy, scipy, pandas, sklearn, lightgbm"
#: What no import of ours may load, unless one of the libraries above does.
HEAVY = (
    "torch",
    "matplotlib",
    "pyarrow",
    "skrub",
    "baycomp",
    "jinja2",
    "skops",
    "onnxruntime",
    "rich",
    "typer",
    "polars",
)


def loaded_by(code):
    """Return the modules that a fresh interpreter has loaded after running the code."""
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return set(json.loads(ended.stdout))


@pytest.fixture(scope="module")
def libraries():
    return loaded_by(LIBRARIES)


@pytest.mark.parametrize("name", ["TunedDecisionClassifier", "MetricClassifier", "compare", "best_threshold"])
def test_estimators_load_nothing_heavy(name, libraries):
    loaded = loaded_by(f"import metricfit; metricfit.{name}")
    assert f"metricfit.{'metrics.curves' if name == 'best_threshold' else 'tabular'}" in loaded
    assert {module.partition(".")[0] for module in loaded - libraries} & set(HEAVY) == set()


def test_a_tuned_classifier_loads_neither_families_nor_pages(libraries):
    loaded = loaded_by("import metricfit; metricfit.TunedDecisionClassifier")
    others = ("metricfit.tabular.families.forest", "metricfit.report", "metricfit.export", "sklearn.ensemble")
    assert not loaded & set(others) - libraries


def test_boosting_and_metrics_load_numpy_alone():
    packages = {module.partition(".")[0] for module in loaded_by("import metricfit.boosting, metricfit.metrics")}
    assert "numpy" in packages
    assert not packages & {*HEAVY, "scipy", "pandas", "sklearn", "lightgbm"}
