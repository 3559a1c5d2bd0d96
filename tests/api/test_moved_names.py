"""Public names of 0.1.0 that were moved or removed raise an error that names their successor."""

import importlib
import re
from pathlib import Path

import pytest

import metricfit

MOVED = {
    "metricfit.data.bridging_the_gap": "metricfit_papers.datasets.published_sets.bridging_the_gap",
    "metricfit.data.images": "metricfit_papers.images",
    "metricfit.data.two_blobs": "metricfit_papers.datasets.published_sets.two_blobs",
    "metricfit.models.Centred": "metricfit_papers.models.Centred",
    "metricfit.models.CropAndFlip": "metricfit_papers.models.CropAndFlip",
    "metricfit.models.ResNet": "metricfit_papers.models.ResNet",
    "metricfit.models.TinyDarknet": "metricfit_papers.models.TinyDarknet",
    "metricfit.models.btg_mlp": "metricfit_papers.models.btg_mlp",
    "metricfit.models.multiclass_mlp": "metricfit_papers.models.multiclass_mlp",
    "metricfit.models.perceptron": "metricfit_papers.models.perceptron",
    "metricfit.models.periodic": "rtdl_num_embeddings.PeriodicEmbeddings",
    "metricfit.models.resnet18": "metricfit_papers.models.resnet18",
    "metricfit.models.resnet34": "metricfit_papers.models.resnet34",
    "metricfit.models.small_cnn": "metricfit_papers.models.small_cnn",
    "metricfit.models.study_mlp": "metricfit_papers.models.study_mlp",
    "metricfit.report.Method": "metricfit.report.ComparisonRow",
    "metricfit.report.table": "the facts of metricfit.report.Report",
}
MODULES = {
    "metricfit.data.images": "metricfit_papers.images",
    "metricfit.estimators": "metricfit.tabular, or metricfit_papers.SVMPerf",
    "metricfit.experiments": "metricfit.runs for cells, metricfit.compare, or metricfit_papers",
}


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_name_is_an_error_that_names_the_successor(name):
    module, _, attribute = name.rpartition(".")
    loaded = importlib.import_module(module)
    assert attribute not in loaded.__all__
    with pytest.raises(ImportError) as raised:
        getattr(loaded, attribute)
    assert f"{name} is no longer here: use {MOVED[name]}" in str(raised.value)
    with pytest.raises(ImportError) as raised:
        exec(f"from {module} import {attribute}")
    assert MOVED[name] in str(raised.value)


@pytest.mark.parametrize("name", MODULES)
def test_a_moved_module_is_an_error_that_names_the_successor(name):
    with pytest.raises(ImportError) as raised:
        importlib.import_module(name)
    assert f"{name} is no longer here: use {MODULES[name]}" in str(raised.value)


@pytest.mark.parametrize("module", ["metricfit.data", "metricfit.models"])
def test_a_name_that_never_was_is_an_attribute_error(module):
    loaded = importlib.import_module(module)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        loaded.nothing  # noqa: B018
    assert not hasattr(loaded, "nothing")


def test_the_library_never_imports_the_papers():
    sources = {path: path.read_text(encoding="utf-8") for path in Path(metricfit.__file__).parent.rglob("*.py")}
    assert sources
    importing = re.compile(r"^\s*(import|from) metricfit_papers", re.MULTILINE)
    assert [str(path) for path, text in sources.items() if importing.search(text)] == []
