"""The list of hops from logits to a loss, in docs/architecture.md, is what a call does."""

import re
import sys
from pathlib import Path

import torch
from torch import Tensor

import metricfit
from metricfit import Counts, MetricLoss
from metricfit.core.canonical_batch import Columns

ROOT = Path(metricfit.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
DATA = (Tensor, Counts, Columns)

#: What these call is part of a kernel, a formula or a check, or a helper inside a hop.
CLOSED = (
    "_make_columns",
    "_SoftCounts.forward",
    "Metric.__call__",
    "MetricLoss._inspect",
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
    return "_SoftCounts.forward" if name == "forward" else name  # a static method


def test_the_hops_from_logits_to_a_loss_are_those_of_the_page():
    section = PAGE.read_text(encoding="utf-8").split("### From logits to a loss")[1].split("###")[0]
    listed = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    assert f"That is {len(listed)} hops" in section
    loss, logits, target = MetricLoss("f1"), torch.randn(64, requires_grad=True), torch.randint(2, (64,))
    for _ in range(50):  # the first batches are also watched for a gradient of 0
        loss(logits, target)
    assert record_hops(loss, logits, target) == listed
    assert len(listed) < 15  # those of 0.1.0
