"""Every public name of 0.1.0 works, or raises an error that names its successor."""

import ast
import importlib
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest
import torch

import metricfit
from metricfit import metrics
from metricfit.losses import MBAUCLoss, PairHingeLoss, PairSquareLoss, PartialAUCLoss, WMWLoss
from metricfit.metrics import Metric
from metricfit.runs import Progress
from metricfit.train import Monitor

PAPER_NETWORKS = [
    *("Centred", "CropAndFlip", "ResNet", "TinyDarknet", "btg_mlp", "multiclass_mlp", "perceptron"),
    *("resnet18", "resnet34", "small_cnn", "study_mlp"),
]
IMAGE_SETS = ["BadImageFile", "ImageSet", "Images", "caltech256", "cifar10", "fashion_mnist"]

#: Names that were moved, and where they are now.
MOVED = {
    "metricfit.data.bridging_the_gap": "metricfit_papers.datasets.published_sets.bridging_the_gap",
    "metricfit.data.two_blobs": "metricfit_papers.datasets.published_sets.two_blobs",
    "metricfit.estimators": "metricfit.tabular",
    "metricfit.estimators.MetricClassifier": "metricfit.tabular.MetricClassifier",
    "metricfit.estimators.SVMPerf": "metricfit_papers.SVMPerf",
    "metricfit.experiments.Cell": "metricfit.runs.Cell",
    "metricfit.experiments.CellError": "metricfit.runs.CellError",
    "metricfit.experiments.Progress": "metricfit.runs.Progress",
    "metricfit.experiments.run": "metricfit.runs.run",
    "metricfit.experiments.compare.Comparison": "metricfit.tabular.Comparison",
    "metricfit.experiments.compare.compare": "metricfit.compare",
    "metricfit.experiments.standings.Row": "metricfit.tabular.ComparisonRow",
    "metricfit.experiments.reproduce.Copied": "metricfit_papers.CopyReport",
    "metricfit.experiments.reproduce.Result": "metricfit_papers.TableResult",
    "metricfit.experiments.reproduce.SpecError": "metricfit_papers.SpecError",
    "metricfit.experiments.reproduce.TableSpec": "metricfit_papers.TableSpec",
    "metricfit.experiments.reproduce.Unfinished": "metricfit_papers.UnfinishedCellsError",
    "metricfit.experiments.reproduce.copy_finished": "metricfit_papers.copy_finished",
    "metricfit.experiments.reproduce.find": "metricfit_papers.find_table",
    "metricfit.experiments.reproduce.names": "metricfit_papers.table_names",
    "metricfit.experiments.reproduce.run_table": "metricfit_papers.run_table",
    "metricfit.models.norms.Norm": "metricfit_papers.models.normalisation.Norm",
    "metricfit.models.periodic": "rtdl_num_embeddings.PeriodicEmbeddings",
    "metricfit.report.Method": "metricfit.report.ComparisonRow",
    "metricfit.report.table": "metricfit.report.Report",
}
MOVED |= {f"metricfit.models.{name}": f"metricfit_papers.models.{name}" for name in PAPER_NETWORKS}
MOVED |= {f"metricfit.data.images.{name}": f"metricfit_papers.images.{name}" for name in IMAGE_SETS}

#: Modules that were moved as a whole: importing them is an error.
MODULES = ["metricfit.data.images", "metricfit.estimators", "metricfit.experiments", "metricfit.models.norms"]

RENAMED_ATTRIBUTES = {
    "metricfit.experiments.Progress.found": "reused",
    "metricfit.losses.MBAUCLoss.centred": "center",
    "metricfit.losses.PairHingeLoss.chosen": "select",
    "metricfit.losses.PairSquareLoss.centred": "center",
    "metricfit.losses.PartialAUCLoss.chosen": "select",
    "metricfit.losses.WMWLoss.chosen": "select",
    "metricfit.metrics.Metric.own": "user_defined",
}
RENAMED_PARAMETERS = {
    "metricfit.experiments.Progress": {"found": "reused"},  # made by run, not by its users
    "metricfit.metrics.Metric": {"own": "user_defined"},
    "metricfit.train.Monitor.better": {"value": "measured"},
    "metricfit.train.Stage.filled": {"*usual": "*defaults"},  # any keywords
}


def read_names() -> dict[str, tuple[str, list[str]]]:
    """Return, for each name of the list, the class that it is an attribute of (or "") and its parameters."""
    names, owner = {}, ""
    for line in Path(__file__).with_name("names_of_0_1_0.txt").read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"( *)([\w.]+)(?:\((.*)\))?", line)
        if match is None:
            assert line.startswith("#")
            continue
        indent, name, parameters = match.groups()
        if not indent:
            owner = name
        full = f"{owner}.{name}" if indent else name
        names[full] = owner if indent else "", parameters.split(", ") if parameters else []
    return names


NAMES = read_names()
TOP_NAMES = [name for name, (owner, _) in NAMES.items() if not owner]
CLASSES = sorted({owner for owner, _ in NAMES.values() if owner})
WITH_PARAMETERS = [
    name
    for name, (_, parameters) in NAMES.items()
    if parameters and (name not in MOVED or name.startswith("metricfit.experiments."))
]


def load(name: str) -> object:
    """Return the object of a full name, also of an attribute of a class."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return getattr(load(module), attribute)


def present_name(name: str) -> str:
    """Return what a name is called now."""
    owner, _, attribute = name.rpartition(".")
    if NAMES[name][0]:
        return f"{present_name(owner)}.{RENAMED_ATTRIBUTES.get(name, attribute)}"
    return MOVED.get(name, name)


@cache
def instance_attributes(cls: type) -> frozenset[str]:
    """Return what only instances have: fields of dataclasses, buffers, and names that are assigned to ``self``."""
    names: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("metricfit"):
            continue
        names.update(inspect.get_annotations(base))
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_buffer":
                names.add(getattr(node.args[0], "value", ""))
    return frozenset(names)


def test_the_list_has_every_moved_and_renamed_name():
    assert len(TOP_NAMES) == 206
    assert set(TOP_NAMES) >= MOVED.keys()
    assert NAMES.keys() >= RENAMED_ATTRIBUTES.keys() | RENAMED_PARAMETERS.keys()


@pytest.mark.parametrize("name", [name for name in TOP_NAMES if name not in MOVED])
def test_a_name_is_still_available(name):
    assert load(name) is not None


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_name_is_an_error_that_names_the_successor(name):
    module, _, attribute = name.rpartition(".")
    with pytest.raises(ImportError) as raised:
        exec(f"from {module} import {attribute}")
    package, _, successor = MOVED[name].rpartition(".")
    message = str(raised.value)
    assert re.search(r"metricfit\S* is no longer here: use ", message)
    assert package in message
    assert successor in message or successor == attribute  # a whole module may be named
    assert load(MOVED[name]) is not None


@pytest.mark.parametrize("name", MODULES)
def test_a_moved_module_is_an_error(name):
    with pytest.raises(ImportError, match=f"{name} is no longer here: use metricfit"):
        importlib.import_module(name)
    package, _, module = name.rpartition(".")
    with pytest.raises(ImportError, match=f"{name} is no longer here: use metricfit"):
        getattr(importlib.import_module(package), module)


@pytest.mark.parametrize("name", CLASSES)
def test_the_attributes_of_a_class_are_there(name):
    cls = load(present_name(name))
    attributes = [
        present_name(attribute).rpartition(".")[2] for attribute, (owner, _) in NAMES.items() if owner == name
    ]
    assert [
        attribute
        for attribute in attributes
        if not hasattr(cls, attribute) and attribute not in instance_attributes(cls)
    ] == []


@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_the_parameters_are_there(name):
    present = inspect.signature(load(present_name(name))).parameters
    renamed = RENAMED_PARAMETERS.get(name, {})
    assert [item for item in NAMES[name][1] if renamed.get(item, item).lstrip("*") not in present] == []


@pytest.mark.parametrize("loss", [PairHingeLoss(), PartialAUCLoss(), WMWLoss(), PairSquareLoss(), MBAUCLoss()], ids=str)
def test_a_renamed_method_is_an_error_that_names_the_successor(loss):
    owner = type(loss).__name__
    name = "chosen" if hasattr(loss, "select") else "centred"
    new = RENAMED_ATTRIBUTES[f"metricfit.losses.{owner}.{name}"]
    with pytest.raises(AttributeError, match=rf"{owner}\.{name} is no longer here: use {owner}\.{new}"):
        getattr(loss, name)(torch.zeros(3))


def test_a_renamed_attribute_is_an_error_that_names_the_successor():
    with pytest.raises(AttributeError, match=r"Metric\.own is no longer here: use Metric\.user_defined"):
        metrics.f1.own  # noqa: B018
    with pytest.raises(AttributeError, match=r"Progress\.found is no longer here: use Progress\.reused"):
        Progress(1, 2, 0, None, "").found  # noqa: B018
    assert not hasattr(metrics.f1, "own")


def test_a_renamed_parameter_is_an_error_that_names_the_successor():
    with pytest.raises(TypeError, match="the parameter own of Metric is no longer here: use user_defined"):
        Metric("mine", lambda c: c.tp, own=True)
    with pytest.raises(TypeError, match=r"the parameter value of Monitor\.better is no longer here: use measured"):
        Monitor("f1").better(value=0.5, than=0.4)
    assert Monitor("f1").better(0.5, than=0.4)


@pytest.mark.parametrize("module", ["metricfit.data", "metricfit.models", "metricfit.report"])
def test_a_name_that_never_existed_is_an_attribute_error(module):
    loaded = importlib.import_module(module)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        loaded.nothing  # noqa: B018
    assert not hasattr(loaded, "nothing")


def test_the_library_never_imports_the_papers():
    sources = {path: path.read_text(encoding="utf-8") for path in Path(metricfit.__file__).parent.rglob("*.py")}
    assert sources
    importing = re.compile(r"^\s*(import|from) metricfit_papers", re.MULTILINE)
    assert [str(path) for path, text in sources.items() if importing.search(text)] == []
