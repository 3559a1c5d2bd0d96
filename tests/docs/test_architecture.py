"""The lists of hops in docs/architecture.md are what calls do: from logits to a loss, and from a table to a report."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from typer.testing import CliRunner

import metricfit
from metricfit import Counts, MetricLoss
from metricfit.cli.app import app
from metricfit.core.canonical_batch import Columns

ROOT = Path(metricfit.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
DATA = (Tensor, Counts, Columns)

#: What these call is part of a kernel, a formula or a check, or a helper inside a hop.
CLOSED = (
    "_make_columns",
    "_SoftCounts.forward",
    "_ValueOfBatch.forward",
    "Metric.__call__",
    "MetricLoss._inspect",
    "MetricLoss._evaluate",
    "check_finite",
    "check_labels",
)


def record_hops(function, *arguments):
    """Return the functions of metricfit that take data and return data, in the order of their calls."""
    hops, closed = {}, []

    def record(frame, event, value):
        code, file = frame.f_code, Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not file.is_relative_to(ROOT):
            return
        name = qualified_name(frame)
        if event == "call":
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if not closed and any(isinstance(frame.f_locals.get(key), DATA) for key in parameters):
                hops[frame] = ".".join((*file.relative_to(ROOT).with_suffix("").parts, name))
            if name in CLOSED:
                closed.append(frame)
        else:
            if not isinstance(value, DATA):
                hops.pop(frame, None)
            if closed and closed[-1] is frame:
                closed.pop()

    sys.setprofile(record)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return list(hops.values())


def qualified_name(frame):
    """Return the function's name, with the class that defines it."""
    name, owner = frame.f_code.co_name, frame.f_locals.get("self")
    for base in () if owner is None else type(owner).__mro__:
        if getattr(vars(base).get(name), "__code__", None) is frame.f_code:
            return f"{base.__name__}.{name}"
    if name != "forward":
        return name
    return "_ValueOfBatch.forward" if "call" in frame.f_locals else "_SoftCounts.forward"  # static methods


def test_the_hops_from_logits_to_a_loss_are_those_of_the_page():
    section = PAGE.read_text(encoding="utf-8").split("### From logits to a loss")[1].split("###")[0]
    listed = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    assert f"That is {len(listed)} hops" in section
    logits, target = torch.randn(64, requires_grad=True), torch.randint(2, (64,))
    short = re.findall(r"^- `([\w.]+)`", section, re.MULTILINE)
    for loss, hops in ((MetricLoss("f1", ignore_index=-100), listed), (MetricLoss("f1"), short)):
        for _ in range(50):  # the first batches are also watched for a gradient of 0
            loss(logits, target)
        assert record_hops(loss, logits, target) == hops
    assert len(listed) < 15  # those of 0.1.0


def listed_hops(title):
    """Return the names of a list of hops, and its section."""
    section = PAGE.read_text(encoding="utf-8").split(title)[1].split("###")[0]
    return re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE), section


def record_calls(function):
    """Return the functions of metricfit that are called, in the order of their first calls."""
    calls, seen, root = {}, set(), str(ROOT)

    def record(frame, event, value):
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        if code.co_filename.startswith(root):
            file = Path(code.co_filename).relative_to(ROOT)
            calls.setdefault(".".join((*file.with_suffix("").parts, qualified_name(frame))))

    sys.setprofile(record)
    try:
        function()
    finally:
        sys.setprofile(None)
    return list(calls)


def test_the_hops_from_a_table_to_a_report_are_called_in_the_order_of_the_page(tmp_path):
    listed, section = listed_hops("### From a table to a report")
    assert f"That is {len(listed)} hops, 18 of them from `MetricClassifier.fit` on" in section
    assert len(listed) - listed.index("tabular.classifier.MetricClassifier.fit") == 18
    assert len(listed) < 23  # those of 0.1.0
    X = np.random.default_rng(0).normal(size=(80, 2))
    pd.DataFrame(X, columns=["a", "b"]).assign(y=X[:, 0] > 0.5).to_csv(tmp_path / "t.csv", index=False)
    options = ["--models", "linear", "--folds", "2", "--jobs", "1", "--quiet"]
    arguments = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "out"), *options]
    calls = record_calls(lambda: CliRunner().invoke(app, arguments, catch_exceptions=False))
    saved = calls.index("tabular.storage.save")  # saving writes files too, before the page is made
    calls = [*calls[:saved], *(name for name in calls[saved:] if name in listed)]
    before_the_page = listed[: listed.index("report.pages.model_page.write_model_page")]
    assert [name for name in calls if name in before_the_page] == before_the_page
    assert set(listed) <= set(calls)
